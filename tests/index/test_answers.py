"""Whatever batches, flushes, erasing, restarts, and whichever copy is kept: an index says what the model says."""

import json
import lzma
import random
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import islice, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from support.feeds import START, drifting, drifting_and_changing, families, improving, ranked
from support.in_memory import temporary_folder
from support.indexes import ANY, LATER, SURE, UNIQUE, agreed, asked, in_pieces, modelled, opened, same, verdicts_of
from support.long_form import LONG, rotating
from support.short_histories import short_histories

from stream_lsh.documents.document import Document
from stream_lsh.embedded.information import information
from stream_lsh.errors import StoreError
from stream_lsh.index.rows.layout import DELETED, DROPPED, ERASED, FLAGS, ID, OF
from stream_lsh.settings.model import Settings

KEEP: dict[str, dict[str, Any]] = {
    "longest": {"keep": "longest"}, "newest": {"keep": "newest"}, "best": {"keep": "best", "rank_field": "rank"},
}  # fmt: skip
PER_SOURCE: dict[str, Any] = {"keep_per": "source", "source_field": "source"}
KEEPING = {
    keep + " per source" * bool(more): {**UNIQUE, **given, **more}
    for (keep, given), more in product({**KEEP, "first": {}}.items(), ({}, PER_SOURCE)) if given or more
}  # fmt: skip
MODES: dict[str, dict[str, Any]] = {"kept": UNIQUE, "all": ANY, **KEEPING}


def cases(every: Iterable[tuple[Any, ...]], quick: Sequence[tuple[Any, ...]], gate: int) -> list[Any]:
    """The quick ones; of the others the gate runs as many as it says."""
    return [*quick, *rotating([case for case in every if case not in quick], gate)]


def keeping(seeds: Iterable[int], ways: Iterable[str], each: int = 2) -> list[tuple[int, str]]:
    """Seeds with modes; so many seeds keep one copy of all, then so many keep one per source."""
    return [(seed, way + " per source" * (seed % each >= each // 2)) for seed, way in product(seeds, ways)]


def ranked_for(mode: str, documents: list[Document], chance: random.Random) -> list[Document]:
    """Where it matters which copy is kept, they have ranks and sources."""
    return ranked(documents, chance) if mode in KEEPING else documents


def healthy(folder: Path) -> None:
    facts: Any = information(folder, check=True)
    assert facts["health"]["problems"] == []


@pytest.mark.parametrize(("mode", "shards"), [
    *cases(product(("kept", "all"), (1, 2, 3)), [("kept", 2)], 2),
    *cases(product(KEEPING, (1, 2, 3)), [("longest", 1), ("best per source", 3)], 4),
])  # fmt: skip
@hypothesis_settings(max_examples=300 if LONG else 20, deadline=None)
@given(
    short_histories(), st.sampled_from((None, None, "1s", "10s", "2m", "20m")), st.booleans(), st.booleans(),
    st.integers(0),
)  # fmt: skip
def test_short_histories(
    mode: str, shards: int, documents: list[Document], window: str | None, updates: bool, erasing: bool,
    seed: int,
) -> None:  # fmt: skip
    chance = random.Random(seed)
    must = any(document.deleted for document in documents)  # `reject` refuses deletions: see test_changes.py
    settings = Settings(
        **{**SURE, "segment_documents": chance.choice((20, 60, 1000, 10**6))}, **MODES[mode], window=window,
        on_conflict="update" if updates or must else "reject", shards=shards,
        decision_lag=chance.choice((2, 2, 10, 30, 1000)), memtable_documents=chance.choice((16, 16, 65536)),
    )  # fmt: skip
    with temporary_folder() as folder:
        agreed(ranked_for(mode, documents, chance), settings, folder, chance, erasing=erasing)


@pytest.mark.parametrize(
    ("seed", "compare_with", "shards"), cases(product(range(3), ("kept", "all"), (1, 3)), [(0, "all", 1)], 2)
)
def test_a_feed_of_many_windows(tmp_path: Path, seed: int, compare_with: str, shards: int) -> None:
    settings = Settings(
        **SURE, **MODES[compare_with], window="8m", shards=shards, decision_lag=100, memtable_documents=16
    )  # fmt: skip
    documents = drifting(seed, 4000 if LONG or seed else 1000)
    found = agreed(documents, settings, tmp_path, random.Random(seed))
    assert {verdict.kind for verdict in found} == {
        "unique", "near_duplicate", "exact_duplicate", "redelivered", "rejected"
    }  # fmt: skip
    with opened(settings, tmp_path) as index:
        assert index.count < 0.5 * len(documents)
        assert index.shards[0].segments[0].first > 0


CHANGING = [
    (seed, compare_with, shards, window)
    for seed, (compare_with, shards), window in product(
        range(3), (("kept", 1), ("kept", 2), ("kept", 3), ("all", 1), ("all", 3)), (None, "8m")
    )
]


@pytest.mark.parametrize(("seed", "mode", "shards", "window"), [
    *cases(CHANGING, [(0, "kept", 2, "8m")], 4),
    *cases(
        ((*each, *way) for each, *way in product(keeping(range(40), KEEP, 4), (1, 2, 3), (None, "8m"))),
        [(0, "longest", 1, None), (0, "newest", 2, None)], 6,
    ),
])  # fmt: skip
def test_a_feed_of_updates_and_deletions(tmp_path: Path, seed: int, mode: str, shards: int, window: str | None) -> None:
    settings = Settings(
        **SURE, **MODES[mode], shards=shards, decision_lag=100, window=window, on_conflict="update",
        memtable_documents=16,
    )  # fmt: skip
    chance = random.Random(seed)
    documents = ranked_for(mode, drifting_and_changing(seed, 3000 if LONG or seed else 1000), chance)
    found = agreed(documents, settings, tmp_path, chance, erasing=seed % 2 == 0)
    kinds = {"unique", "redelivered", "deleted", "outdated"}
    if not mode.startswith("newest"):  # there, each copy supersedes those before
        kinds |= {"near_duplicate", "exact_duplicate"}
    assert kinds <= {verdict.kind for verdict in found}
    representatives = sum(
        (verdict.new_representative is not None) + len(verdict.new_representatives) for verdict in found
    )
    assert (representatives == 0) if mode == "all" else (representatives > 5 - 3 * (mode in KEEPING))
    assert mode not in KEEPING or sum(verdict.supersedes is not None for verdict in found) > 5
    assert sum(verdict.replaces is not None and verdict.kind == "unique" for verdict in found) > 5
    healthy(tmp_path)


@pytest.mark.parametrize(
    ("seed", "mode", "shards"),
    [
        *cases(product(range(20), ("kept", "all"), (1, 2, 3)), [(1, "kept", 3)], 8),
        *cases(
            ((*each, shards) for each, shards in product(keeping(range(60), KEEP), (1, 2, 3))),
            [(1, "newest per source", 1)],
            6,
        ),
    ],
)
def test_families_whose_ids_go_and_come_again(tmp_path: Path, seed: int, mode: str, shards: int) -> None:
    """With hardly any memory: long texts of shared words, as others of the family had them before."""
    chance = random.Random(seed)
    settings = Settings(
        **{
            **SURE,
            "threshold": chance.choice((0.45, 0.6, 0.75)),
            "segment_documents": chance.choice((100, 200, 1000, 10**6)),
        },
        **MODES[mode],
        shards=shards,
        on_conflict="update",
        window=chance.choice((None, None, "1m", "4m", "15m")),
        decision_lag=chance.choice((2, 10, 100)),
        memtable_documents=chance.choice((16, 16, 16, 64)),
    )
    documents = ranked_for(mode, families(seed, 700 if LONG else 450), chance)
    agreed(documents, settings, tmp_path, chance, erasing=True)
    healthy(tmp_path)


@pytest.mark.parametrize("order", ["as they came", "the kept one last", "all"])
def test_a_crowd_of_one_text_is_removed(tmp_path: Path, order: str) -> None:
    """It has representatives to its end; and when the text comes again nobody is met."""
    n, text, chance = 600 if LONG else 200, "one text of nine words that all of them have", random.Random(1)
    ids = {"as they came": list(range(n)), "the kept one last": [*range(1, n - 1), 0, n - 1]}.get(order)
    gone = [Document(str(i), deleted=True) for i in ids or chance.sample(range(n), n)]
    documents = [Document(str(i), text) for i in range(n)] + gone + [Document(f"new {i}", text) for i in range(3)]
    settings = Settings(**{**SURE, "max_bucket_rows": 2}, **UNIQUE, on_conflict="update", memtable_documents=16)
    found = agreed(documents, settings, tmp_path, random.Random(1))
    representatives = sum(verdict.new_representative is not None for verdict in found)
    assert representatives == {"as they came": n - 1, "the kept one last": 1}.get(order, representatives) > 0


@pytest.mark.parametrize("shards", rotating([1, 3], 1))
def test_pages_that_were_crawled_again_and_again(tmp_path: Path, shared_data: Path, shards: int) -> None:
    """Each crawl is an update of its page, of which there are copies; some pages are taken down, or come late."""
    chance, documents = random.Random(5), []
    with lzma.open(shared_data / "terms-3k.jsonl.xz") as file:
        for line in islice(file, 3000 if LONG else 700):
            page = json.loads(line)
            text, time = " ".join(re.findall(r"\w+", page["text"].lower())), page["ts"]
            documents.append(Document(page["source"], text, time=time))
            if chance.random() < 0.2:
                documents.append(Document(f"{page['source']} {chance.randrange(3)}", text, time=time))
            if chance.random() < 0.05:
                old = chance.choice(documents[-chance.choice((50, 1500)) :])  # provisional still, or decided
                documents.append(Document(old.id, time=chance.choice((None, time)), deleted=True))
            elif chance.random() < 0.02:
                documents.append(chance.choice(documents[-50:]))
    settings = Settings(
        **{**SURE, "threshold": 0.8}, **UNIQUE, on_conflict="update", shards=shards, decision_lag=100,
        memtable_documents=500,
    )  # fmt: skip
    found = agreed(documents, settings, tmp_path, chance)
    kinds = Counter(verdict.kind for verdict in found)
    assert min(kinds[kind] for kind in ("near_duplicate", "exact_duplicate", "deleted", "outdated")) > 2, kinds
    assert sum(verdict.replaces is not None and verdict.kind == "unique" for verdict in found) > len(found) // 4
    assert sum((verdict.new_representative is not None) + len(verdict.new_representatives) for verdict in found) > 2


def test_ids_that_were_deleted_come_again_as_their_representatives(tmp_path: Path) -> None:
    """What is kept of such a deletion has the new representative's signature, but no text: none is read."""
    texts = [" ".join(f"w{i}x{k}" for k in range(20)) for i in range(60)]
    documents = [Document(f"{who} {i}", text) for i, text in enumerate(texts) for who in ("first", "second")]
    documents += [Document(f"first {i}", deleted=True) for i in range(60)]
    again = [Document(f"{'first' if i % 3 else 'third'} {i}", text + " more") for i, text in enumerate(texts)]
    settings = Settings(**SURE, **UNIQUE, on_conflict="update", memtable_documents=16)
    with opened(settings, tmp_path) as index:
        found = verdicts_of(index, documents, 0)
        index.commit({})
    with opened(settings, tmp_path) as index:
        found += verdicts_of(index, again, len(documents))
    same(found, modelled(documents + again, settings))
    assert [verdict.duplicate_of for verdict in found[-60:]] == [f"second {i}" for i in range(60)]


def test_a_repeated_id_has_not_the_copies_of_the_one_before(tmp_path: Path) -> None:
    """Under `all`: all in one segment, where copies stand behind a row that is not seen any more."""
    settings = Settings(**SURE, **ANY, window="10s")
    feed = [
        ("begin", "x y z", 0), ("a", "one two three", 1), ("c", "one two three", 6), ("b", "four five six", 7),
        ("a", "seven eight nine", 13), ("d", "seven eight nine", 14), ("e", "one two three", 15),
        ("f", "seven eight nine", 16), ("g", "one two", 16),
    ]  # fmt: skip
    # The median of the last few times has to follow at once: each time comes often enough, in what is redelivered.
    documents = [Document("begin", "x y z", time=START)]
    for id, text, second in feed:
        documents += [Document(f"clock {second}", "tick", time=START + 1000 * second)] * 70
        documents.append(Document(id, text, time=START + 1000 * second))
    with opened(settings, tmp_path) as index:
        found = verdicts_of(index, documents, 0)
    same(found, modelled(documents, settings))
    last = {str(d.id): verdict for d, verdict in zip(documents, found, strict=True)}
    assert [[id for id, *_ in last[name].matches] for name in "adefg"] == [[], ["a"], ["c"], ["a", "d"], ["c", "e"]]


@pytest.mark.parametrize(("seed", "mode"), [(2, "best"), *rotating(keeping(range(60), ("longest", "best")), 6)])
def test_erasing_leaves_the_names_of_live_versions(tmp_path: Path, seed: int, mode: str) -> None:
    """A row names what it was dropped for as long as this version is live, however often that was superseded."""
    chance = random.Random(seed)
    settings = Settings(
        **{**SURE, "threshold": 0.6, "segment_documents": chance.choice((100, 10**6))},
        **MODES[mode], on_conflict="update", memtable_documents=chance.choice((16, 64)),
    )  # fmt: skip
    documents = ranked_for(mode, families(seed, 600), chance)
    with opened(settings, tmp_path) as index:
        for at in range(0, len(documents), 150):
            verdicts_of(index, documents[at : at + 150], at)
            index.commit({}, now=0)
            index.erase(LATER)
        (shard,) = index.shards
        rows, versions, named = shard.stored.at(np.arange(shard.count)), dict[int, int](), 0
        for row, words in enumerate(rows):
            if (flags := int(words[FLAGS])) & DROPPED:
                version = versions.get(int(words[OF]))
                live = version is not None and not shard.rows.deleted_rows.deleted(np.array([version]))[0]
                erased = bool(flags & ERASED)
                assert bool(shard.ids.named(row)[1]) == (live and not erased), row
                named += bool(live)
            if not flags & (DELETED | ERASED):
                versions[int(words[ID])] = row
        assert named > 3 or mode.endswith("per source")  # a source has few copies


MEASURES = {
    "jaccard": {}, "signature": {"verify": "signature"}, "containment": {"measure": "containment", "min_shingles": 8},
    "levenshtein": {"measure": "levenshtein", "max_distance": 8},
}  # fmt: skip


@pytest.mark.parametrize("measure", ["signature", *rotating(["jaccard", "containment", "levenshtein"], 1)])
def test_measures(tmp_path: Path, measure: str) -> None:
    """Restarts and erasing change nothing, and equal ranks keep the first copy."""
    # Copies of a few texts with small edits and one of four ranks; two of an id in ten, some deletions.
    chance, documents = random.Random(5), list[Document]()
    texts = [[f"word{chance.randrange(400)}" for _ in range(30)] for _ in range(8)]
    for i in range(400):
        words = list(chance.choice(texts))
        for _ in range(chance.randrange(4)):
            words[chance.randrange(len(words))] = f"word{chance.randrange(400)}"
        if chance.random() < 0.3:
            words = words[: chance.randrange(10, 30)]
        id = str(chance.randrange(i) if i and chance.random() < 0.1 else i)
        deleted = chance.random() < 0.05
        text = " ".join(words)
        documents.append(Document(id, deleted=True) if deleted else Document(id, text, rank=chance.randrange(4)))
    equal = [document if document.deleted else replace(document, rank=1) for document in documents]
    shape = {**MEASURES[measure], "on_conflict": "update", "memtable_documents": 64, "segment_documents": 150}
    for keep in KEEP:
        settings = Settings(**shape, **KEEP[keep])
        with opened(settings, tmp_path / keep) as index:
            whole = verdicts_of(index, documents, 0)
        same(in_pieces(documents, settings, tmp_path / f"{keep} pieces", random.Random(3), erasing=True), whole)
        assert any(verdict.supersedes is not None for verdict in whole)
    with opened(Settings(**shape), tmp_path / "first") as first, opened(settings, tmp_path / "equal") as index:
        same(verdicts_of(index, equal, 0), verdicts_of(first, equal, 0))


@pytest.mark.parametrize(("mode", "shards"), cases(product(("best", "longest", "best per source"), (1, 2, 3)), [
    ("best", 1), ("best", 3), ("longest", 2),
], 2))  # fmt: skip
def test_a_better_copy_supersedes_its_own_text_first(tmp_path: Path, mode: str, shards: int) -> None:
    plain = improving(shards, 500)
    # Normalised alike, and longer.
    documents = [replace(document, text=f"{document.text}{' ' * int(document.rank)}") for document in plain]
    given = {**SURE, "threshold": 0.7, "shards": shards, "decision_lag": 30, "memtable_documents": 64}
    found = in_pieces(documents, Settings(**given, **MODES[mode]), tmp_path, random.Random(2))
    same(found, modelled(plain, Settings(**given, **MODES[mode.replace("longest", "best")])))
    kept, preferred = dict[str, tuple[str | None, str | None]](), 0
    for document, verdict in zip(plain, found, strict=True):
        if verdict.kind != "unique":
            continue
        text = document.text, document.source if "source" in mode else None
        if verdict.supersedes is not None:
            own = [int(id) for id, *_ in verdict.matches if kept[id][1] == text[1]]
            preferred += kept.pop(verdict.supersedes) == text and min(own) < int(verdict.supersedes)
        assert text not in kept.values(), document.id
        kept[str(document.id)] = text
    assert preferred > 4


@pytest.mark.parametrize("mode", ["longest", "newest", "best per source"])
def test_several_shards_answer_as_one(tmp_path: Path, mode: str) -> None:
    """Without deletions: of a group that loses its representative, several shards know this later."""
    documents = [document for document in ranked(families(4, 600), random.Random(4)) if not document.deleted]
    found, asked_of = [], []
    for shards in (1, 2, 3):
        settings = Settings(**SURE, **MODES[mode], shards=shards, decision_lag=60)
        with opened(settings, tmp_path / str(shards)) as index:
            found.append(verdicts_of(index, documents, 0))
            asked_of.append(asked(index, documents[:200], known=False))
    assert sum(verdict.supersedes is not None for verdict in found[0]) > 5
    same(found[1], found[0])
    same(found[2], found[0])
    assert asked_of[0] == asked_of[1] == asked_of[2]


@pytest.mark.parametrize("keep", KEEP)
def test_several_shards_find_the_kept_one_of_many_provisional_copies(tmp_path: Path, keep: str) -> None:
    """There are more of them than are verified, and any may be the kept one."""
    chance, documents = random.Random(1), list[Document]()
    text = [f"word{i}" for i in range(60)]
    for i in range(300):
        words = [*text, *text[: chance.randrange(20)]]
        words[i % 60] = f"edit{i}"
        documents.append(Document(str(i), " ".join(words), rank=chance.random()))
    found = []
    for shards in (1, 2):
        with opened(Settings(shingles="words:1", **KEEP[keep], shards=shards), tmp_path / str(shards)) as index:
            found.append(verdicts_of(index, documents, 0))
    assert {verdict.group for verdict in found[0]} == {0}
    same(found[1], found[0])


def test_another_keep_is_refused(tmp_path: Path) -> None:
    with opened(Settings(keep="newest"), tmp_path):
        pass
    with (
        pytest.raises(StoreError, match="keep = 'newest' \\(now 'longest'\\)"),
        opened(Settings(keep="longest"), tmp_path),
    ):
        pass
    with opened(Settings(), tmp_path) as index:
        assert index.settings.keep == "newest"
