"""Buckets with dead rows: whoever went is met by nobody, and counts in no limit, however many there are."""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import test_window
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from support.feeds import WORDS, asked, changing, fed
from support.models.matching import unique_verdicts
from test_unique import any_settings, same

from stream_lsh.documents.columns import Document
from stream_lsh.index.index import Index
from stream_lsh.index.stretches import BITS, Stretches, pass_over, remember
from stream_lsh.settings import Settings

SEEDS = [*range(6), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(6, 26))]


def in_pieces(documents: list[Document], settings: Settings, folder: Path, chance: random.Random) -> list[Any]:
    """The verdicts, through batches, commits and restarts of any size."""
    return test_window.in_pieces(documents, settings, folder, chance, fed=partial(fed, batch=150))


@pytest.mark.parametrize("seed", SEEDS)
def test_answers_are_those_of_the_model(tmp_path: Path, seed: int) -> None:
    """With all limits met, by who lives."""
    settings = any_settings(seed, on_same_id="update")
    documents = changing(seed, 400, words=random.Random(seed).choice((WORDS, WORDS[:5], WORDS[:40])))
    same(in_pieces(documents, settings, tmp_path, random.Random(seed)), unique_verdicts(documents, settings))


crowds = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 4), st.sampled_from(("", "", "deleted"))), max_size=200)


@hypothesis_settings(max_examples=40, deadline=None)
@given(crowds, st.integers(2, 5), st.integers(0))
def test_a_bucket_of_which_most_are_dead(
    tmp_path_factory: pytest.TempPathFactory, crowd: Any, bucket: int, seed: int
) -> None:
    """One text in some variations, first two hundred that go again: stretches of dead rows of any length."""
    settings = Settings(
        shingles="words:1", threshold=0.9, bands=4, rows=1, signature_size=64, bucket_size=bucket, candidates=5,
        memory_documents=16, on_same_id="update",
    )  # fmt: skip
    chance, base = random.Random(seed), WORDS[:20]
    texts = [" ".join([*base, *chance.sample(WORDS[20:], 4)]) for _ in range(205)]
    documents = [Document(f"old {i}", texts[i]) for i in range(200)]
    documents += [Document(f"old {i}", deleted=True) for i in chance.sample(range(200), chance.choice((150, 197)))]
    for id, text, what in crowd:
        name = f"old {id}" if what else str(id)
        documents.append(Document(name, deleted=True) if what else Document(name, texts[200 + text]))
    folder = tmp_path_factory.mktemp("index")
    same(in_pieces(documents, settings, folder, chance), unique_verdicts(documents, settings))


def test_the_dead_are_passed_over_and_not_read_again(tmp_path: Path) -> None:
    """Three thousand in every bucket, in memory and in files: a newcomer meets the one that lives behind them."""
    settings = Settings(
        shingles="words:1", threshold=0.9, bands=4, rows=1, signature_size=64, bucket_size=2, on_same_id="update",
        memory_documents=1000, candidates=5,
    )  # fmt: skip
    chance, base = random.Random(3), WORDS[:20]
    documents = [Document(i, " ".join([*base, *chance.sample(WORDS[20:], 4)])) for i in range(3000)]
    index = Index(settings, tmp_path, durable=False)
    try:
        fed(index, documents, 0, 500)
        fed(index, [Document(i, deleted=True) for i in range(1, 3000)], 3000, 500)
        stretches = index.shards[0].rows.dead.stretches
        for _ in range(3):
            (answer,) = asked(index, [Document("new", documents[0].text)])
            assert (answer["of"], answer.get("incomplete")) == (0, None)
            (near,) = asked(index, [Document("new", f"{documents[0].text} more")])
            assert (near["of"], near.get("incomplete")) == (0, None)
            known = stretches.slots[stretches.slots[:, 0] != 0]
            assert np.all(known[:, 1] > known[:, 2]) and len(known) >= 4
            index.shards[0].flush()
        assert int((known[:, 1] - known[:, 2]).max()) > 2900
    finally:
        index.close()


def test_a_stretch_is_found_by_its_key_and_newest_row_only() -> None:
    """One whose place is taken by another is not found, and no other is found in its place."""
    stretches, known = Stretches.of(), dict[tuple[int, int], int]()
    chance = random.Random(1)
    for _ in range(1 << BITS):
        key, newest = chance.randrange(1, 50) << 16, chance.randrange(20, 1 << 40)
        known[key, newest] = chance.randrange(newest)
        remember(stretches, np.uint64(key), np.int64(newest), np.int64(known[key, newest]))
        assert pass_over(stretches, np.uint64(key), np.int64(newest)) == known[key, newest]
    found = [pass_over(stretches, np.uint64(key), np.int64(row)) for key, row in known]
    assert all(row in (-1, oldest) for row, oldest in zip(found, known.values(), strict=True))
    assert 0.5 < np.mean(np.array(found) >= 0) < 0.8
    assert pass_over(stretches, np.uint64(1 << 32), np.int64(5)) == -1
