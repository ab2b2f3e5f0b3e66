"""An index as tests open, feed and ask it; and how it is compared with a model that sees the whole feed at once."""

import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from stream_lsh.documents.builder import columns
from stream_lsh.documents.document import Document
from stream_lsh.documents.fields import Fields
from stream_lsh.index.index import Index
from stream_lsh.index.segments.identity import identity
from stream_lsh.index.store.rocksdb import Store, name_key
from stream_lsh.judging.verdicts import Judgement, Kind, judge, verdicts
from stream_lsh.settings.model import Settings
from support.feeds import START
from support.models.changes import Verdict, model_of
from support.models.matching import unique_verdicts

# All that is similar is found (64 bands of one row: J of 1/2 is missed once in 2^64), and no limit is met.
SURE: dict[str, Any] = {
    "shingles": "words:1", "threshold": 0.45, "bands": 64, "rows": 1, "signature_size": 128, "max_bucket_rows": 4096,
    "max_candidates": 4096, "max_matches": 0, "segment_documents": 1000,  # so small that they end by time
}  # fmt: skip
ANY: dict[str, Any] = {"compare_with": "all", "max_verified_matches": 0}
UNIQUE: dict[str, Any] = {"compare_with": "kept", "max_verified_matches": 1000}
LATER = 10**9  # seconds: everything is due to be erased
Feed = Callable[[Index, Sequence[Document], int], Sequence[Any]]


@contextmanager
def opened(settings: Settings, folder: Path, **more: Any) -> Iterator[Index]:
    """An index that is closed afterwards."""
    index = Index(settings, folder, durable=False, **more)
    try:
        yield index
    finally:
        index.close()


def judged(index: Index, documents: Sequence[Document], first: int, **more: Any) -> Judgement:
    """What the index says of the next documents, the numbers of which begin with `first`."""
    given = index.settings
    fields = Fields(set_field=given.set_field, rank_field=given.rank_field, source_field=given.source_field)
    signed = index.sign(columns(documents, fields))
    seqs = np.arange(first, first + len(signed))
    return judge(index.match(signed, seqs, **more), signed.ids, seqs, index.settings.max_matches, index)


def verdicts_of(index: Index, documents: Sequence[Document], first: int, **more: Any) -> list[Verdict]:
    """The same as the model of windows and updates tells it."""
    return list(_verdicts_of(judged(index, documents, first, **more)))


def _verdicts_of(judgement: Judgement) -> Iterator[Verdict]:
    def id_of(place: Sequence[int]) -> Any:
        return orjson.loads(judgement.names.id_of(*place))

    for i in range(len(judgement.ids)):
        kind, first, group, removed, representative = (
            int(column[i])
            for column in (
                judgement.kinds, judgement.first_kinds, judgement.groups, judgement.replaces,
                judgement.representative_seqs,
            )
        )  # fmt: skip
        of, kept = judgement.oldest(i), kind == Kind.UNIQUE
        listed = slice(int(judgement.starts[i]), int(judgement.starts[i + 1]))
        places = zip(judgement.matched_shards[listed].tolist(), judgement.matched_rows[listed].tolist(), strict=True)
        seqs, similarities = judgement.matched_seqs[listed].tolist(), judgement.matched_similarities[listed].tolist()
        yield Verdict(
            kind=Kind(kind).label,
            first_kind=None if first == 255 else Kind(first).label,
            duplicate_of=orjson.loads(of) if of and not kept else None,
            supersedes=orjson.loads(of) if of and kept else None,
            similarity=float(judgement.similarities[i]) if of else None,
            group=None if group < 0 else group,
            matches=tuple(zip(map(id_of, places), seqs, similarities, strict=True)),
            replaces=None if removed < 0 else removed,
            new_representative=None
            if representative < 0
            else (id_of(judgement.representatives[i].tolist()), representative),
            new_representatives=tuple(
                (group, id_of((shard, row)), seq) for at, group, shard, row, seq in judgement.later.tolist() if at == i
            ),
        )


def fed(index: Index, documents: Sequence[Document], first: int, batch: int) -> list[dict[str, Any]]:
    """The verdicts on documents with the numbers from `first` on, in batches, as JSON has them."""
    lines: list[bytes] = []
    for start in range(0, len(documents), batch):
        lines += verdicts(judged(index, documents[start : start + batch], first + start))
    return [orjson.loads(line + b"}") for line in lines]


def once(documents: Sequence[Document], settings: Settings, folder: Path, batch: int = 64) -> list[dict[str, Any]]:
    """The verdicts of a new index that is closed afterwards."""
    with opened(settings, folder) as index:
        out = fed(index, documents, 0, batch)
        index.commit({})
    return out


def asked(index: Index, documents: Sequence[Document], *, known: bool = True) -> list[dict[str, Any]]:
    """What an index says of documents that are not stored; their numbers are -1."""
    signed = index.sign(columns(documents, Fields(set_field=index.settings.set_field)), want_texts=False)
    seqs = np.full(len(signed), -1)
    found = judge(index.query(signed, known=known), signed.ids, seqs, index.settings.max_matches, index)
    return [orjson.loads(line + b"}") for line in verdicts(found)]


def in_pieces(
    documents: Sequence[Document], settings: Settings, folder: Path, chance: random.Random, *, feed: Feed = verdicts_of,
    erasing: bool = False,
) -> list[Any]:  # fmt: skip
    """The verdicts, through batches, commits and restarts of any size.

    What was not committed is lost with a restart: it is fed again, or it was something else, which never comes again.
    erasing: also through erasing at random places, of which some are broken off, and through a loss of all postings.
    """
    out: list[Any] = []
    committed = 0
    while committed < len(documents):
        del out[committed:]
        with opened(settings, folder) as index:
            for _ in range(chance.choice((1, 2, 10, 50))):
                batch = documents[len(out) : len(out) + chance.choice((1, 2, 7, 30, 200))]
                if not batch:
                    break
                out += feed(index, batch, len(out))
                if chance.random() < 0.6:
                    index.commit({}, now=chance.choice((0, LATER)) if erasing else 0)
                    committed = len(out)
                    if erasing and chance.random() < 0.3:
                        index.erase(LATER, everything=chance.random() < 0.7)
            if not committed or chance.random() < 0.7:
                index.commit({})
                committed = len(out)
                if chance.random() < 0.3:
                    feed(index, [Document(-1 - i, f"lost {i} {i + 1}", time=START) for i in range(5)], len(out))
            if erasing and chance.random() < 0.4:
                index.erase(LATER)
        if erasing and chance.random() < 0.2 and committed < len(documents):  # who opens it next makes them again
            for postings in folder.glob("segments/*/postings"):
                shutil.rmtree(postings)
    return out


def agreed(
    documents: Sequence[Document], settings: Settings, folder: Path, chance: random.Random, *, erasing: bool = False
) -> list[Verdict]:
    """Have the index say in pieces what the model of windows and updates says; returns it."""
    found = in_pieces(documents, settings, folder, chance, erasing=erasing)
    same(comparable(found, settings), comparable(modelled(documents, settings), settings))
    return found


def agreed_with_limits(
    documents: Sequence[Document], settings: Settings, folder: Path, chance: random.Random
) -> list[dict[str, Any]]:
    """Have the index say in pieces what the rule of matching says of limits, too; returns it."""
    found = in_pieces(documents, settings, folder, chance, feed=lambda *given: fed(*given, batch=150))
    same(found, unique_verdicts(documents, settings))
    return found


def modelled(documents: Sequence[Document], settings: Settings) -> list[Verdict]:
    """What the model of windows and updates says of documents."""
    model = model_of(settings)
    return [
        model.delete(seq, str(d.id), d.time)
        if d.deleted
        else model.judge(seq, str(d.id), d.text or "", d.time, rank=float(d.rank or 0), source=d.source)
        for seq, d in enumerate(documents)
    ]


def same(found: Sequence[Any], expected: Sequence[Any]) -> None:
    """Verdict by verdict, so that the first difference is what is shown."""
    for seq, (one, other) in enumerate(zip(found, expected, strict=True)):
        assert one == other, seq


def comparable(verdicts: Sequence[Verdict], settings: Settings) -> list[Verdict]:
    """What several shards say alike: under `all` none of them knows the first verdict of what is redelivered."""
    if settings.shards == 1 or settings.late:
        return list(verdicts)
    return [Verdict("redelivered") if verdict.kind == "redelivered" else verdict for verdict in verdicts]


def take_key(settings: Settings, folder: Path, key: bytes) -> None:
    """Give a new index this key. It is in the hashes of scopes, and decides which terms share a counter."""
    folder.mkdir(exist_ok=True)  # of groups, already
    store = Store(folder / "db", sync=False)
    facts = identity(store, folder, settings, 0, read_only=False)
    store.write({name_key("index"): orjson.dumps(facts | {"key": key.hex()})})
    store.close()
