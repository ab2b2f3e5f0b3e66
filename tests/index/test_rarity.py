"""How rare terms are: counted, fading, kept in the store and read again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from stream_lsh.errors import DamagedError
from stream_lsh.families.terms import TERM_SHIFT
from stream_lsh.index.rarity import UNIT, Counted, Rarity, count, find_language, most_rare, rarity_of
from stream_lsh.index.store import RARE, Store, rows_key


def fed(counted: Counted, documents: int, seed: int) -> None:
    chance = np.random.default_rng(seed)
    for _ in range(documents):
        terms = chance.integers(1, 1 << 23, 50).astype(np.uint64) << TERM_SHIFT
        count(counted.rarity, terms, 0, len(terms), TERM_SHIFT)


def new(store: Store) -> Counted:
    return Counted(store, 0, Rarity.of(4, 16, 32))


@pytest.mark.parametrize("adds_only", [False, True])
def test_what_is_kept_is_what_was_counted(tmp_path: Path, adds_only: bool) -> None:
    store = Store(tmp_path / "db")
    counted = new(store)
    counted.adds_only = adds_only
    counted.begin(0, fades=True)
    for turn in range(60):
        if turn == 30:
            counted.begin(1, fades=True)
        fed(counted, 10, turn)
        values, ranges = counted.take()
        store.write(values, ranges=ranges)
        if turn % 7 == 0:
            again = new(store)
            assert (again.rarity.counts == counted.rarity.counts).all()
            assert again.rarity.documents == counted.rarity.documents
            counted = again
            counted.adds_only = adds_only
    assert 0 < counted.rarity.documents < 600 * UNIT
    assert len(list(store.rows_of(RARE, 0, 0))) <= 31
    store.close()


def test_an_eighth_fades_and_little_goes_at_last(tmp_path: Path) -> None:
    counted = new(Store(tmp_path / "db"))
    counted.begin(0, fades=True)
    terms = np.array([7 << 9], np.uint64)
    for _ in range(8):
        count(counted.rarity, terms, 0, 1, TERM_SHIFT)
    counted.begin(1, fades=True)
    counted.begin(1, fades=True)  # again after a restart: it has begun
    assert (int(counted.rarity.counts[7]), int(counted.rarity.documents)) == (7 * UNIT, 7 * UNIT)
    for generation in range(2, 60):
        counted.begin(generation, fades=True)
    assert not counted.rarity.counts.any()


def test_rare_terms_say_more(tmp_path: Path) -> None:
    rarity = new(Store(tmp_path / "db")).rarity
    for n in range(100):
        count(rarity, np.array([1 << 9, (2 + n % 50) << 9], np.uint64), 0, 2, TERM_SHIFT)
    find_language(rarity, np.arange(1, 6, dtype=np.uint64) << np.uint64(9), 0, 5, TERM_SHIFT)
    assert rarity.among == 2 + 10  # of terms 1 to 5 the fourth commonest is that of two documents
    find_language(rarity, np.full(4, 1 << 9, np.uint64), 0, 4, TERM_SHIFT)
    assert rarity.among == 100 + 10
    said = [rarity_of(rarity, np.uint64(term), 0.0) for term in (1, 2, 60)]
    assert said == sorted(said) and said[0] < 0.3 and said[2] <= most_rare(rarity) * 1.2


def test_damage_is_told(tmp_path: Path) -> None:
    store = Store(tmp_path / "db")
    counted = new(store)
    counted.begin(0, fades=False)
    fed(counted, 3, 1)
    values, ranges = counted.take()
    store.write({**values, rows_key(RARE, 0, 0, 0): next(iter(values.values()))[:-3]}, ranges=ranges)
    with pytest.raises(DamagedError, match="how rare terms are"):
        new(store)
