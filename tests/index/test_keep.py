"""Which copy is kept: an index says what the model says, whatever batches, erasing and restarts."""

import random
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from support.feeds import drifting_and_changing, families, ranked
from support.in_memory import temporary_folder
from support.indexes import LATER, SURE, UNIQUE, agreed, asked, in_pieces, opened, same, verdicts_of
from support.long_form import LONG, rotating
from support.short_histories import short_histories

from stream_lsh.documents.document import Document
from stream_lsh.embedded.information import information
from stream_lsh.errors import StoreError, UsageError
from stream_lsh.index.rows.layout import DELETED, DROPPED, ERASED, FLAGS, ID, OF
from stream_lsh.settings.model import Settings

KEEP = ("longest", "newest", "best")
PER_SOURCE: dict[str, Any] = {"keep_per": "source", "source_field": "source"}


def keeping(keep: str, *, per_source: bool = False, **more: Any) -> Settings:
    return Settings(
        **more, **(PER_SOURCE if per_source else {}), keep=keep, rank_field="rank" if keep == "best" else None
    )


WAYS = [
    (keep, per_source, shards)
    for (keep, per_source), shards in product([*product(KEEP, (False, True)), ("first", True)], (1, 2, 3))
]
QUICK_WAYS = [("longest", False, 1), ("best", True, 3)]


@pytest.mark.parametrize(
    ("keep", "per_source", "shards"), [*QUICK_WAYS, *rotating([way for way in WAYS if way not in QUICK_WAYS], 4)]
)
@hypothesis_settings(max_examples=300 if LONG else 20, deadline=None)
@given(
    short_histories(), st.sampled_from((None, None, "1s", "10s", "2m", "20m")), st.booleans(), st.booleans(),
    st.integers(0),
)  # fmt: skip
def test_short_histories(
    keep: str, per_source: bool, shards: int, documents: list[Document], window: str | None, updates: bool,
    erasing: bool, seed: int,
) -> None:  # fmt: skip
    chance = random.Random(seed)
    must = shards > 1 and any(document.deleted for document in documents)  # otherwise they are refused
    settings = keeping(
        keep, per_source=per_source, **{**SURE, "segment_documents": chance.choice((20, 60, 1000, 10**6))}, **UNIQUE,
        window=window, shards=shards, decision_lag=chance.choice((2, 2, 10, 30, 1000)),
        on_conflict="update" if updates or must else "reject", memtable_documents=chance.choice((16, 16, 65536)),
    )  # fmt: skip
    with temporary_folder() as folder:
        agreed(ranked(documents, chance), settings, folder, chance, erasing=erasing)


CASES = [*product(range(40), KEEP, (None, "8m"), (1, 2, 3))]
QUICK = [(0, "longest", None, 1), (1, "newest", None, 2)]


@pytest.mark.parametrize(
    ("seed", "keep", "window", "shards"), [*QUICK, *rotating([case for case in CASES if case not in QUICK], 6)]
)
def test_a_feed_of_updates_and_deletions(
    tmp_path: Path, seed: int, keep: str, window: str | None, shards: int
) -> None:  # fmt: skip
    settings = keeping(
        keep, per_source=seed % 4 > 1, **SURE, **UNIQUE, window=window, on_conflict="update", memtable_documents=16,
        shards=shards, decision_lag=100,
    )  # fmt: skip
    chance = random.Random(seed)
    documents = ranked(drifting_and_changing(seed, 3000 if LONG or seed else 1000), chance)
    found = agreed(documents, settings, tmp_path, chance, erasing=seed % 2 == 0)
    assert sum(verdict.supersedes is not None for verdict in found) > 5
    assert sum(v.new_representative is not None or len(v.new_representatives) > 0 for v in found) > 2
    facts: Any = information(tmp_path, check=True)
    assert facts["health"]["problems"] == []


@pytest.mark.parametrize(("seed", "keep"), [(1, "newest"), *rotating(product(range(60), KEEP), 6)])
def test_families_whose_ids_go_and_come_again(tmp_path: Path, seed: int, keep: str) -> None:
    chance = random.Random(seed)
    settings = keeping(
        keep, per_source=seed % 2 == 1, **{
            **SURE, "threshold": chance.choice((0.45, 0.6, 0.75)),
            "segment_documents": chance.choice((100, 200, 1000, 10**6)),
        }, **UNIQUE, on_conflict="update", window=chance.choice((None, None, "1m", "4m", "15m")),
        memtable_documents=chance.choice((16, 16, 16, 64)), shards=chance.choice((1, 2, 3)),
        decision_lag=chance.choice((2, 10, 60)),
    )  # fmt: skip
    agreed(ranked(families(seed, 700 if LONG else 450), chance), settings, tmp_path, chance, erasing=True)


@pytest.mark.parametrize(("seed", "keep"), [(2, "best"), *rotating(product(range(60), ("longest", "best")), 6)])
def test_erasing_leaves_the_names_of_live_versions(tmp_path: Path, seed: int, keep: str) -> None:
    """A row names what it was dropped for as long as this version is live, however often that was superseded."""
    chance = random.Random(seed)
    settings = keeping(
        keep, per_source=seed % 2 == 1, **{**SURE, "threshold": 0.6, "segment_documents": chance.choice((100, 10**6))},
        **UNIQUE, on_conflict="update", memtable_documents=chance.choice((16, 64)),
    )  # fmt: skip
    documents = ranked(families(seed, 600), chance)
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
        assert named > 5


def edited(seed: int, n: int) -> list[Document]:
    """Copies of a few texts with small edits and one of four ranks; two of an id in ten, some deletions."""
    chance, out = random.Random(seed), list[Document]()
    texts = [[f"word{chance.randrange(400)}" for _ in range(30)] for _ in range(8)]
    for i in range(n):
        words = list(chance.choice(texts))
        for _ in range(chance.randrange(4)):
            words[chance.randrange(len(words))] = f"word{chance.randrange(400)}"
        if chance.random() < 0.3:
            words = words[: chance.randrange(10, 30)]
        id = str(chance.randrange(i) if i and chance.random() < 0.1 else i)
        deleted = chance.random() < 0.05
        out.append(Document(id, deleted=True) if deleted else Document(id, " ".join(words), rank=chance.randrange(4)))
    return out


MEASURES = {
    "jaccard": {}, "signature": {"verify": "signature"}, "containment": {"measure": "containment", "min_shingles": 8},
    "levenshtein": {"measure": "levenshtein", "max_distance": 8},
}  # fmt: skip


@pytest.mark.parametrize("measure", ["signature", *rotating(["jaccard", "containment", "levenshtein"], 1)])
def test_measures(tmp_path: Path, measure: str) -> None:
    """Restarts and erasing change nothing, and equal ranks keep the first copy."""
    documents = edited(5, 400)
    equal = [document if document.deleted else replace(document, rank=1) for document in documents]
    shape = {**MEASURES[measure], "on_conflict": "update", "memtable_documents": 64, "segment_documents": 150}
    for keep in KEEP:
        settings = keeping(keep, **shape)
        with opened(settings, tmp_path / keep) as index:
            whole = verdicts_of(index, documents, 0)
        same(in_pieces(documents, settings, tmp_path / f"{keep} pieces", random.Random(3), erasing=True), whole)
        assert any(verdict.supersedes is not None for verdict in whole)
    with opened(Settings(**shape), tmp_path / "first") as first, opened(settings, tmp_path / "equal") as index:
        same(verdicts_of(index, equal, 0), verdicts_of(first, equal, 0))


@pytest.mark.parametrize("keep", KEEP)
def test_several_shards_answer_as_one(tmp_path: Path, keep: str) -> None:
    """Without deletions: of a group that loses its representative, several shards know this later."""
    documents = [document for document in ranked(families(4, 600), random.Random(4)) if not document.deleted]
    found, asked_of = [], []
    for shards in (1, 2, 3):
        settings = keeping(keep, per_source=keep == "best", **SURE, **UNIQUE, shards=shards, decision_lag=60)
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
        with opened(keeping(keep, shingles="words:1", shards=shards), tmp_path / str(shards)) as index:
            found.append(verdicts_of(index, documents, 0))
    assert {verdict.group for verdict in found[0]} == {0}
    same(found[1], found[0])


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"keep": "best"}, "keep = 'best' needs rank_field"),
        ({"rank_field": "r"}, "rank_field is for keep = 'best'"),
        ({"keep": "newest", "rank_order": ("a",)}, "rank_order is for keep = 'best'"),
        ({"keep": "newest", "compare_with": "all"}, "keep = 'newest' is for compare_with = 'kept'"),
        ({"keep": "newest", "measure": "tf-idf"}, "keep is not used with measure = tf-idf"),
        ({"keep": "longest", "set_field": "set"}, "keep = 'longest' is for texts"),
        ({"keep_per": "source"}, "keep_per = 'source' needs source_field"),
        ({**PER_SOURCE, "compare_with": "all"}, "keep_per = 'source' is for compare_with = 'kept'"),
        ({**PER_SOURCE, "measure": "tf-idf"}, "keep_per is not used with measure = tf-idf"),
    ],
)
def test_what_does_not_go_together_is_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        Settings(**settings)


def test_another_keep_is_refused(tmp_path: Path) -> None:
    with opened(keeping("newest"), tmp_path):
        pass
    with pytest.raises(StoreError, match="keep = 'newest' \\(now 'longest'\\)"), opened(keeping("longest"), tmp_path):
        pass
    with opened(Settings(), tmp_path) as index:
        assert index.settings.keep == "newest"
