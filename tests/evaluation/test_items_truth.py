"""Exhaustive comparison of vectors and rows of bits: against the definition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from support.models.distances import cosine_distance, euclidean_distance

from stream_lsh.evaluation.items import EveryPair, Items, background
from stream_lsh.evaluation.report import edges_of_distance
from stream_lsh.families.distances import similarity
from stream_lsh.settings import Settings

SETTINGS: dict[str, dict[str, Any]] = {
    "cosine": {"dimensions": 24, "threshold": 0.8},
    "euclidean": {"dimensions": 24, "distance": 3.0},
    "hamming": {"dimensions": 72, "distance": 6},
}


def settings_of(likeness: str) -> Settings:
    return Settings(likeness=likeness, **SETTINGS[likeness])  # type: ignore[arg-type]


def items_of(likeness: str, count: int = 150, far: float = 0.0) -> Items:
    """Random items, half of them near to another; some of them equal."""
    chance = np.random.default_rng(7)
    salts = chance.integers(0, 2, count).astype(np.uint64)
    dimensions = SETTINGS[likeness]["dimensions"]
    if likeness == "hamming":
        bits = chance.integers(0, 2, (count, 128)).astype(np.uint8)
        bits[:, 72:] = 0
        flips = chance.random((count, 72)) < chance.uniform(0, 0.15, (count, 1))
        for i in range(count // 2, count):
            bits[i, :72] = bits[chance.integers(0, i), :72] ^ flips[i]
        words = np.packbits(bits, axis=1, bitorder="little").view("<u8").astype(np.uint64)
        return Items("hamming", 72, words, salts)
    vectors = chance.standard_normal((count, dimensions))
    for i in range(count // 2, count):
        vectors[i] = vectors[chance.integers(0, i)] + chance.uniform(0, 0.9) * chance.standard_normal(dimensions)
    vectors[-3:] = vectors[0]
    vectors = (vectors + far).astype(np.float32).astype(np.float64)
    return Items(likeness, dimensions, np.ascontiguousarray(vectors).view(np.uint64), salts)  # type: ignore[arg-type]


def by_definition(items: Items, least: float) -> list[tuple[int, int, float]]:
    found = []
    for newer in range(len(items)):
        for older in range(newer):
            alike = similarity(items.likeness, items.words[older], items.words[newer], items.dimensions)
            if alike >= least and items.salts[older] == items.salts[newer]:
                found.append((older, newer, alike))
    return found


def listed(every: EveryPair) -> list[tuple[int, int, float]]:
    pairs = every.run()
    return list(zip(pairs.older.tolist(), pairs.newer.tolist(), pairs.jaccard.tolist(), strict=True))


@pytest.mark.parametrize("block", [7, 1024])
@pytest.mark.parametrize("likeness", SETTINGS)
def test_every_pair_of_the_definition_and_no_other(likeness: str, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EveryPair, "BLOCK", block)
    items, least = items_of(likeness), settings_of(likeness).least
    expected = by_definition(items, least)
    assert 20 < len(expected) < 2000
    assert listed(EveryPair(items, least)) == expected


@pytest.mark.parametrize("likeness", ["cosine", "euclidean"])
def test_a_pair_at_the_very_limit_is_in_and_one_beyond_it_is_not(likeness: str) -> None:
    items = items_of(likeness, far=1000.0 if likeness == "euclidean" else 0.0)
    alike = sorted(pair[2] for pair in by_definition(items, 0.5 if likeness == "cosine" else 0.1))
    for limit in alike[:: max(1, len(alike) // 20)]:
        assert listed(EveryPair(items, limit)) == by_definition(items, limit)


def test_similarities_are_those_of_the_book() -> None:
    for likeness in ("cosine", "euclidean"):
        items = items_of(likeness, 20)
        numbers = items.words.view(np.float64).tolist()
        first, second = np.arange(19), np.arange(1, 20)
        free = Items(items.likeness, items.dimensions, items.words, np.zeros(20, np.uint64))
        for i, found in enumerate(free.similarities(first, second).tolist()):
            one, other = numbers[i], numbers[i + 1]
            angle = np.cos(np.radians(cosine_distance(one, other)))
            expected = angle if likeness == "cosine" else 1 / (1 + euclidean_distance(one, other))
            assert found == pytest.approx(expected, abs=1e-9)
        assert (items.similarities(first, second)[items.salts[first] != items.salts[second]] == 0).all()


def test_nothing_and_one() -> None:
    for likeness in SETTINGS:
        none = items_of(likeness, 4)
        for count in (0, 1):
            few = Items(none.likeness, none.dimensions, none.words[:count], none.salts[:count])
            assert len(EveryPair(few, 0.9).run()) == 0
            assert (EveryPair(few, 0.9).seconds() > 0) == (count > 0)
            assert background(few, settings_of(likeness).curve).pairs == 0


def test_progress_goes_to_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EveryPair, "BLOCK", 40)
    seen: list[tuple[int, int]] = []
    EveryPair(items_of("cosine"), 0.9).run(progress=lambda done, total: seen.append((done, total)))
    assert seen == [(40, 150), (80, 150), (120, 150), (150, 150)]


@pytest.mark.parametrize("likeness", SETTINGS)
def test_a_background_is_all_pairs(likeness: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EveryPair, "BLOCK", 64)
    items, curve = items_of(likeness), settings_of(likeness).curve
    found = background(items, curve)
    places: NDArray[np.int64] = np.array([(i, j) for i in range(150) for j in range(i)])
    free = Items(items.likeness, items.dimensions, items.words, np.zeros(150, np.uint64))
    true = np.array([curve.measure_of(s) for s in free.similarities(places[:, 0], places[:, 1]).tolist()])
    assert found.pairs == len(true)
    within = true <= curve.asked if curve.by_distance else true >= curve.asked
    assert found.alike(curve.asked) == pytest.approx(within.sum(), abs=3)
    assert found.quantile(0.5) == pytest.approx(np.quantile(true, 0.5), abs=0.05 * true.max())
    cost = 1000 * np.mean([curve.at(measure) for measure in true[~within].tolist()]) * (~within).mean()
    assert curve.false_candidates(1000, found.histogram()) == pytest.approx(cost, rel=0.05)
    assert found.binned(float(true.max()) + 1)[0].sum() <= found.pairs


def test_buckets_of_distances_are_even() -> None:
    bits = settings_of("hamming").curve
    assert [round((1 - edge) * 72, 6) for edge in edges_of_distance(bits)] == [5.5, 4.5, 3.5, 2.5, 1.5, 0.5]
    many = Settings(likeness="hamming", dimensions=256, distance=31).curve
    assert [round((1 - edge) * 256, 6) for edge in edges_of_distance(many)] == [27.5, 23.5, 19.5, 15.5, 11.5, 7.5, 3.5]
    far = edges_of_distance(settings_of("euclidean").curve)
    assert [1 / edge - 1 for edge in far] == pytest.approx([3 * step / 8 for step in range(7, 0, -1)])
    assert far == sorted(far)
