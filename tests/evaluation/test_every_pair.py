"""Exhaustive comparison of vectors, bit vectors, short texts and sets with weights: against the definitions."""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from support.models.distances import cosine_distance, euclidean_distance, levenshtein_distance, weighted_jaccard

from stream_lsh.documents.weights import weights_text
from stream_lsh.evaluation.items import EveryPair, Items, background
from stream_lsh.evaluation.lists import EveryList, Lists
from stream_lsh.evaluation.report import edges_of_distance
from stream_lsh.families.distances import similarity
from stream_lsh.families.family import signer_of
from stream_lsh.settings.model import Settings

SETTINGS: dict[str, dict[str, Any]] = {
    "cosine": {"dimensions": 24, "threshold": 0.8},
    "euclidean": {"dimensions": 24, "max_distance": 3.0},
    "hamming": {"dimensions": 72, "max_distance": 6},
}
SCOPES = np.array([i % 3 == 0 for i in range(120)], np.uint64)
"""Two documents match only if they have the same one."""


def settings_of(measure: str) -> Settings:
    return Settings(measure=measure, **SETTINGS[measure])  # type: ignore[arg-type]


def items_of(measure: str, count: int = 150, far: float = 0.0) -> Items:
    """Random items, half of them near to another; some of them equal."""
    chance = np.random.default_rng(7)
    scopes = chance.integers(0, 2, count).astype(np.uint64)
    dimensions = SETTINGS[measure]["dimensions"]
    if measure == "hamming":
        bits = chance.integers(0, 2, (count, 128)).astype(np.uint8)
        bits[:, 72:] = 0
        flips = chance.random((count, 72)) < chance.uniform(0, 0.15, (count, 1))
        for i in range(count // 2, count):
            bits[i, :72] = bits[chance.integers(0, i), :72] ^ flips[i]
        words = np.packbits(bits, axis=1, bitorder="little").view("<u8").astype(np.uint64)
        return Items("hamming", 72, words, scopes)
    vectors = chance.standard_normal((count, dimensions))
    for i in range(count // 2, count):
        vectors[i] = vectors[chance.integers(0, i)] + chance.uniform(0, 0.9) * chance.standard_normal(dimensions)
    vectors[-3:] = vectors[0]
    vectors = (vectors + far).astype(np.float32).astype(np.float64)
    return Items(measure, dimensions, np.ascontiguousarray(vectors).view(np.uint64), scopes)  # type: ignore[arg-type]


def short_texts() -> tuple[list[str], Lists]:
    chance = random.Random(3)
    texts = ["".join(chance.choices("abcé漢 ", k=chance.randrange(9))) for _ in SCOPES]
    points = np.array([ord(x) for text in texts for x in text], np.uint64)
    return texts, Lists(True, points, np.cumsum([0, *map(len, texts)]), SCOPES)


def weighted_sets() -> tuple[list[dict[str, float]], Lists]:
    chance = np.random.default_rng(3)
    sets = [{f"e{x}": float(chance.integers(1, 8)) / 4 for x in chance.choice(12, 5)} for _ in SCOPES]
    sets[7] = sets[3]
    texts = [weights_text(one, "", b"").encode() for one in sets]
    signer = signer_of(Settings(measure="weighted-jaccard").signing)
    words, offsets = signer.shingle(b"".join(texts), np.cumsum(list(map(len, texts))))
    return sets, Lists(False, words, offsets, SCOPES)


Alike = Callable[[int, int], float]


def by_definition(alike: Alike, scopes: NDArray[np.uint64], least: float) -> list[tuple[int, int, float]]:
    """Older and newer document, and how alike they are."""
    places = (
        (older, newer) for newer in range(len(scopes)) for older in range(newer) if scopes[older] == scopes[newer]
    )
    return [(*pair, value) for pair in places if (value := alike(*pair)) >= least]


def of_items(items: Items) -> Alike:
    return lambda i, j: similarity(items.measure, items.words[i], items.words[j], items.dimensions)


def of_texts(texts: list[str]) -> Alike:
    """Empty ones are like nothing."""

    def alike(i: int, j: int) -> float:
        return 1 / (1 + levenshtein_distance(texts[i], texts[j])) if texts[i] and texts[j] else 0.0

    return alike


def every(what: str, least: float) -> tuple[EveryPair | EveryList, list[tuple[int, int, float]]]:
    """The exhaustive comparison, and what it is to find."""
    if what == "levenshtein":
        texts, short = short_texts()
        return EveryList(short, least), by_definition(of_texts(texts), SCOPES, least)
    if what == "weighted-jaccard":
        sets, all_sets = weighted_sets()
        expected = by_definition(lambda i, j: weighted_jaccard(sets[i], sets[j]), SCOPES, least)
        return EveryList(all_sets, least), expected
    items = items_of(what)
    return EveryPair(items, least), by_definition(of_items(items), items.scopes, least)


def listed(pairs: Any) -> list[tuple[int, int, float]]:
    return list(zip(pairs.first.tolist(), pairs.second.tolist(), pairs.similarity.tolist(), strict=True))


@pytest.mark.parametrize("block", [7, 256])
@pytest.mark.parametrize(
    ("what", "least"),
    [*((measure, settings_of(measure).least) for measure in SETTINGS), ("levenshtein", 1.0), ("levenshtein", 0.5),
    ("levenshtein", 0.25),
     ("weighted-jaccard", 0.1), ("weighted-jaccard", 0.4), ("weighted-jaccard", 1.0)],
)  # fmt: skip
def test_every_pair_of_the_definition_and_no_other(
    what: str, least: float, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(EveryPair, "CHUNK", block)
    monkeypatch.setattr(EveryList, "CHUNK", block)
    comparison, expected = every(what, least)
    reported: list[tuple[int, int]] = []
    found = listed(comparison.run(progress=lambda *done: reported.append(done)))
    assert [pair[:2] for pair in found] == [pair[:2] for pair in expected]
    assert [pair[2] for pair in found] == pytest.approx([pair[2] for pair in expected])
    assert len(expected) > 10 or least == 1.0
    assert reported[-1][0] == reported[-1][1] and len(reported) >= 120 // block
    assert comparison.seconds() > 0


@pytest.mark.parametrize("measure", ["cosine", "euclidean"])
def test_a_pair_at_the_very_limit_is_in_and_one_beyond_it_is_not(measure: str) -> None:
    items = items_of(measure, far=1000.0 if measure == "euclidean" else 0.0)
    alike = sorted(
        pair[2] for pair in by_definition(of_items(items), items.scopes, 0.5 if measure == "cosine" else 0.1)
    )
    for limit in alike[:: max(1, len(alike) // 8)]:
        assert listed(EveryPair(items, limit).run()) == by_definition(of_items(items), items.scopes, limit)


def test_similarities_are_those_of_the_book() -> None:
    for measure in ("cosine", "euclidean"):
        items = items_of(measure, 20)
        numbers = items.words.view(np.float64).tolist()
        first, second = np.arange(19), np.arange(1, 20)
        free = Items(items.measure, items.dimensions, items.words, np.zeros(20, np.uint64))
        for i, found in enumerate(free.similarities(first, second).tolist()):
            one, other = numbers[i], numbers[i + 1]
            angle = np.cos(np.radians(cosine_distance(one, other)))
            expected = angle if measure == "cosine" else 1 / (1 + euclidean_distance(one, other))
            assert found == pytest.approx(expected, abs=1e-9)
        assert (items.similarities(first, second)[items.scopes[first] != items.scopes[second]] == 0).all()


def test_similarities_of_texts_and_sets() -> None:
    texts, short = short_texts()
    first, second = np.array([0, 3, 1, 0]), np.array([3, 6, 2, 1])
    expected = [of_texts(texts)(i, j) for i, j in zip(first[:3], second[:3], strict=True)]
    assert short.similarities(first, second).tolist() == [*expected, 0.0]  # the last are not to match
    sets, all_sets = weighted_sets()
    found = all_sets.similarities(np.array([0, 0]), np.array([3, 1]))
    assert found.tolist() == pytest.approx([weighted_jaccard(sets[0], sets[3]), 0.0])


def test_nothing_and_one() -> None:
    for measure in SETTINGS:
        none = items_of(measure, 4)
        for count in (0, 1):
            few = Items(none.measure, none.dimensions, none.words[:count], none.scopes[:count])
            assert len(EveryPair(few, 0.9).run()) == 0
            assert (EveryPair(few, 0.9).seconds() > 0) == (count > 0)
            assert background(few, settings_of(measure).curve).pairs == 0


def test_backgrounds_of_texts_and_sets() -> None:
    texts, short = short_texts()
    apart = np.array([levenshtein_distance(texts[i], texts[j]) for i in range(120) for j in range(i)])
    found = short.background(4)
    assert found.counts.tolist() == [*((apart == k).sum() for k in range(5)), (apart > 4).sum()]
    assert found.alike(2) == (apart <= 2).sum()
    assert found.quantile(1.0) == np.inf
    sets, all_sets = weighted_sets()
    values = [weighted_jaccard(sets[i], sets[j]) for i in range(120) for j in range(i)]
    assert all_sets.background(0).pairs == len(values)
    assert abs(all_sets.background(0).alike(0.5) - sum(value >= 0.5 for value in values)) < 20


@pytest.mark.parametrize("measure", SETTINGS)
def test_a_background_is_all_pairs(measure: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EveryPair, "CHUNK", 64)
    items, curve = items_of(measure), settings_of(measure).curve
    found = background(items, curve)
    places: NDArray[np.int64] = np.array([(i, j) for i in range(150) for j in range(i)])
    free = Items(items.measure, items.dimensions, items.words, np.zeros(150, np.uint64))
    true = np.array([curve.value_of(s) for s in free.similarities(places[:, 0], places[:, 1]).tolist()])
    assert found.pairs == len(true)
    within = true <= curve.asked if curve.by_distance else true >= curve.asked
    assert found.alike(curve.asked) == pytest.approx(within.sum(), abs=3)
    assert found.quantile(0.5) == pytest.approx(np.quantile(true, 0.5), abs=0.05 * true.max())
    cost = 1000 * np.mean([curve.at(value) for value in true[~within].tolist()]) * (~within).mean()
    assert curve.false_candidates(1000, found.histogram()) == pytest.approx(cost, rel=0.05)
    assert found.binned(float(true.max()) + 1)[0].sum() <= found.pairs


def test_buckets_of_distances_are_even() -> None:
    bits = settings_of("hamming").curve
    assert [round((1 - edge) * 72, 6) for edge in edges_of_distance(bits)] == [5.5, 4.5, 3.5, 2.5, 1.5, 0.5]
    many = Settings(measure="hamming", dimensions=256, max_distance=31).curve
    assert [round((1 - edge) * 256, 6) for edge in edges_of_distance(many)] == [27.5, 23.5, 19.5, 15.5, 11.5, 7.5, 3.5]
    far = edges_of_distance(settings_of("euclidean").curve)
    assert [1 / edge - 1 for edge in far] == pytest.approx([3 * step / 8 for step in range(7, 0, -1)])
    assert far == sorted(far)
