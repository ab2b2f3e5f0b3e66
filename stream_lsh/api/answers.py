"""What the engine has judged, as verdicts and matches of Python."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import orjson

from stream_lsh.api.verdict import Kind, Match, Representative, Verdict
from stream_lsh.documents.columns import Rejection
from stream_lsh.documents.fields import id_value
from stream_lsh.embedded.engine import Judged
from stream_lsh.index.index import Index
from stream_lsh.index.reader import IndexReader
from stream_lsh.index.rows import layout
from stream_lsh.judging import verdicts
from stream_lsh.judging.verdicts import Judgement
from stream_lsh.settings.model import Settings

KINDS = tuple(cast(Kind, kind.label) for kind in verdicts.Kind)
"""The kinds by their numbers."""


def known_id(id: bytes) -> str | int:
    """The id of a document that is in the index."""
    value = id_value(id)
    assert value is not None, "a document in the index has no id"
    return value


def matches_of(judgement: Judgement, index: IndexReader, i: int) -> Iterator[Match]:
    """The matches of a document, the best first."""
    for m in range(int(judgement.starts[i]), int(judgement.starts[i + 1])):
        id = index.id_of(int(judgement.matched_shards[m]), int(judgement.matched_rows[m]))
        similarity, why = float(judgement.matched_similarities[m]), dict[str, Any]()
        if len(judgement.evidence):
            why = orjson.loads(b"{%b}" % judgement.evidence[m].removeprefix(b","))
        yield Match(known_id(id), int(judgement.matched_seqs[m]), similarity, why)


def verdicts_of(judged: Judged, index: Index) -> list[Verdict]:
    """The verdicts on the documents of a batch; before a commit, which may forget ids."""
    j = judged.judgement
    columns = (
        j.seqs, j.kinds, j.first_kinds, j.groups, j.replaces, j.not_compared, j.truncated, j.of[:, 1],
        j.representatives[:, 1],
    )  # fmt: skip
    rows = zip(*[column.tolist() for column in columns], strict=True)
    return [_verdict(j, index, i, judged.reasons.get(i), *row) for i, row in enumerate(rows)]


def _verdict(
    judgement: Judgement, index: Index, i: int, why: Rejection | None, seq: int, kind: int, first: int, group: int,
    replaces: int, not_compared: int, truncated: int, row: int, representative_row: int,
) -> Verdict:  # fmt: skip
    of = judgement.oldest(i) if row >= 0 else b""
    representative = judgement.representative(i) if representative_row >= 0 else b""
    return Verdict(
        id=id_value(judgement.ids[i]),
        seq=seq,
        kind=KINDS[kind],
        first_kind=None if first == layout.UNKNOWN else KINDS[first],
        duplicate_of=known_id(of) if of and kind != verdicts.Kind.UNIQUE else None,
        similarity=float(judgement.similarities[i]) if of else None,
        group=None if group == layout.NO_GROUP else group,
        matches=tuple(matches_of(judgement, index, i)) if len(judgement.matched_seqs) else (),
        truncated=truncated,
        not_compared=not_compared,
        reason=None if why is None else why.reason,
        verified=index.settings.verify,
        replaces=None if replaces < 0 else replaces,
        new_representative=Representative(known_id(representative), int(judgement.representative_seqs[i]))
        if representative
        else None,
        new_representatives=_new_representatives(judgement, index, i) if len(judgement.later) else (),
        supersedes=known_id(of) if of and kind == verdicts.Kind.UNIQUE else None,
        detail=why.detail if why is not None else detail_of(kind, replaces, not_compared, index.settings),
    )


def _new_representatives(judgement: Judgement, index: Index, i: int) -> tuple[tuple[int, str | int, int], ...]:
    found = judgement.later[judgement.later[:, 0] == i].tolist()
    return tuple((group, known_id(index.id_of(shard, row)), seq) for _, group, shard, row, seq in found)


def detail_of(kind: int, replaces: int, not_compared: int, settings: Settings) -> str | None:
    """What there is to explain of a verdict on a document that is not rejected."""
    if kind == verdicts.Kind.OUTDATED:
        return "a later version of the document, or its deletion, came before"
    if kind == verdicts.Kind.DELETED and replaces < 0:
        return "there is no document with this id"
    if not_compared:
        return (
            f"{not_compared:,} buckets or candidates were not compared: of a bucket the newest "
            f"{settings.max_bucket_rows:,} "
            f"documents are read (max_bucket_rows), and {settings.max_candidates:,} candidates are compared "
            f"(max_candidates)"
        )
    return None
