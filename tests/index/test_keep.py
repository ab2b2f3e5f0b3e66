"""Which copy is kept: an index says what the model says, whatever batches, erasing and restarts."""

import random
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from support.feeds import drifting_and_changing, families
from support.in_memory import temporary_folder
from support.indexes import SURE, UNIQUE, agreed
from support.long_form import LONG, rotating
from support.short_histories import short_histories

from stream_lsh.documents.document import Document
from stream_lsh.embedded.information import information
from stream_lsh.settings.model import Settings

KEEP = ("longest", "newest", "best")


def keeping(keep: str, **more: Any) -> Settings:
    return Settings(**more, keep=keep, rank_field="rank" if keep == "best" else None)


def ranked(documents: list[Document], chance: random.Random) -> list[Document]:
    """Each with one of four ranks; 0 is also the rank of a deletion."""
    return [document if document.deleted else replace(document, rank=chance.randrange(4)) for document in documents]


@pytest.mark.parametrize("keep", KEEP)
@hypothesis_settings(max_examples=300 if LONG else 20, deadline=None)
@given(
    short_histories(), st.sampled_from((None, None, "1s", "10s", "2m", "20m")), st.booleans(), st.booleans(),
    st.integers(0),
)  # fmt: skip
def test_short_histories(
    keep: str, documents: list[Document], window: str | None, updates: bool, erasing: bool, seed: int
) -> None:
    chance = random.Random(seed)
    settings = keeping(
        keep, **{**SURE, "segment_documents": chance.choice((20, 60, 1000, 10**6))}, **UNIQUE, window=window,
        on_conflict="update" if updates else "reject", memtable_documents=chance.choice((16, 16, 65536)),
    )  # fmt: skip
    with temporary_folder() as folder:
        agreed(ranked(documents, chance), settings, folder, chance, erasing=erasing)


CASES = [*product(range(40), KEEP, (None, "8m"))]


@pytest.mark.parametrize(("seed", "keep", "window"), [(0, "longest", None), *rotating(CASES[1:], 4)])
def test_a_feed_of_updates_and_deletions(tmp_path: Path, seed: int, keep: str, window: str | None) -> None:
    settings = keeping(keep, **SURE, **UNIQUE, window=window, on_conflict="update", memtable_documents=16)
    chance = random.Random(seed)
    documents = ranked(drifting_and_changing(seed, 3000 if LONG or seed else 1000), chance)
    found = agreed(documents, settings, tmp_path, chance, erasing=seed % 2 == 0)
    assert sum(verdict.supersedes is not None for verdict in found) > 5
    assert sum(verdict.new_representative is not None for verdict in found) > 5
    facts: Any = information(tmp_path, check=True)
    assert facts["health"]["problems"] == []


@pytest.mark.parametrize(("seed", "keep"), [(1, "newest"), *rotating(product(range(60), KEEP), 6)])
def test_families_whose_ids_go_and_come_again(tmp_path: Path, seed: int, keep: str) -> None:
    chance = random.Random(seed)
    settings = keeping(
        keep, **{
            **SURE, "threshold": chance.choice((0.45, 0.6, 0.75)),
            "segment_documents": chance.choice((100, 200, 1000, 10**6)),
        }, **UNIQUE, on_conflict="update", window=chance.choice((None, None, "1m", "4m", "15m")),
        memtable_documents=chance.choice((16, 16, 16, 64)),
    )  # fmt: skip
    agreed(ranked(families(seed, 700 if LONG else 450), chance), settings, tmp_path, chance, erasing=True)
