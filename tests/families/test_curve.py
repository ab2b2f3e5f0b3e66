"""The curves of vectors and bit vectors: against the textbook, against simulation, against all there is."""

import itertools
import math
from typing import Any

import numpy as np
import pytest

from stream_lsh.families.components import masks_of
from stream_lsh.families.curve import Curve, clean_blocks
from stream_lsh.families.tuning import Banding
from stream_lsh.settings.model import Settings

COSINE = Settings(measure="cosine", dimensions=384, threshold=0.9).curve
EUCLIDEAN = Settings(measure="euclidean", dimensions=384, max_distance=5).curve
HAMMING = Settings(measure="hamming", dimensions=64, max_distance=3).curve


def test_hyperplanes_are_sensitive_as_the_book_says() -> None:
    """(d1, d2, (180 - d1) / 180, (180 - d2) / 180)-sensitive (MMDS 3.7.2), amplified by AND and OR (3.6.3)."""
    for angle in (0, 26, 60, 90, 180):
        assert COSINE.component(math.cos(math.radians(angle))) == pytest.approx((180 - angle) / 180)
    four = Curve("cosine", Banding(128, 4, 4), 0.5)
    assert four.band(0.5) == pytest.approx((2 / 3) ** 4)
    assert four.at(0.5) == pytest.approx(1 - (1 - (2 / 3) ** 4) ** 4)


@pytest.mark.parametrize("curve", [COSINE, EUCLIDEAN, HAMMING])
def test_what_is_asked_for_is_found_and_what_is_farther_less(curve: Curve) -> None:
    assert curve.at(curve.asked) >= 0.999
    steps = range(64) if curve.measure == "hamming" else [0.05 * step * curve.asked for step in range(1, 20)]
    found = [curve.at(step) for step in steps]
    assert found == sorted(found, reverse=curve.by_distance)
    assert curve.probability(curve.similarity_of(curve.asked)) == pytest.approx(curve.at(curve.asked))


def test_no_place_of_few_bits_leaves_too_few_blocks() -> None:
    for distance, dimensions in itertools.product(range(8), (16, 64, 200)):
        curve = Settings(measure="hamming", dimensions=dimensions, max_distance=distance).curve
        assert [curve.at(bits) for bits in range(distance + 1)] == [1.0] * (distance + 1)
        assert curve.at(dimensions) == 0


@pytest.mark.parametrize("flipped", [2, 3, 4, 6])
def test_clean_blocks_are_counted_in_all_choices_of_bits(flipped: int) -> None:
    choices = list(itertools.combinations(range(12), flipped))
    clean = [4 - len({bit // 3 for bit in chosen}) for chosen in choices]
    for least in range(1, 5):
        share = sum(number >= least for number in clean) / len(choices)
        assert clean_blocks(12, 4, least, flipped) == pytest.approx(share)


def test_strangers_of_bits_are_all_rows_of_bits() -> None:
    settings = Settings(measure="hamming", dimensions=16, max_distance=3)
    masks = masks_of(settings.signing)[:, 0]
    every = np.arange(2**16, dtype=np.uint64)
    met = ((every[:, None] & masks[None]) == 0).any(axis=1).mean()
    assert settings.curve.by_chance() == pytest.approx(met)


def test_unrelated_vectors_of_few_dimensions_are_less_often_orthogonal() -> None:
    curves = [Settings(measure="cosine", dimensions=n, threshold=0.9).curve for n in (1, 2, 3, 30, 3000)]
    found = [curve.by_chance() for curve in curves]
    assert found == sorted(found, reverse=True)
    assert found[0] == pytest.approx(0.5)
    assert found[-1] == pytest.approx(curves[-1].at(0.0), rel=0.05)
    evenly = np.mean([curves[1].at(math.cos(angle)) for angle in np.linspace(0, math.pi, 20001)])
    assert found[1] == pytest.approx(evenly, rel=1e-3)
    with pytest.raises(ValueError, match="measure a sample"):
        EUCLIDEAN.by_chance()


def test_false_candidates_are_those_beyond_what_is_asked_for() -> None:
    pairs = [(0.95, 10.0), (0.8, 30.0), (0.0, 60.0)]
    expected = 1000 * (30 * COSINE.at(0.8) + 60 * COSINE.at(0.0)) / 100
    assert COSINE.false_candidates(1000, pairs) == pytest.approx(expected)
    assert HAMMING.false_candidates(10, [(3.0, 5.0), (4.0, 5.0)]) == pytest.approx(5 * HAMMING.at(4))
    assert HAMMING.false_candidates(10, []) == 0


@pytest.mark.parametrize(
    "given", [{"measure": "cosine", "threshold": 0.9}, {"measure": "euclidean", "max_distance": 5}]
)
def test_a_longer_signature_is_for_more_rows(given: dict[str, Any]) -> None:
    usual, longer, shorter = (
        Settings(dimensions=384, **given, **more).banding
        for more in ({}, {"signature_size": 2048}, {"signature_size": 256})
    )
    assert shorter.rows < usual.rows < longer.rows
    assert usual.signature_size <= 1024
    assert (longer.signature_size, shorter.signature_size) == (2048, 256)
    assert Curve(given["measure"], shorter, given.get("threshold", 5)).at(given.get("threshold", 5)) >= 0.999
