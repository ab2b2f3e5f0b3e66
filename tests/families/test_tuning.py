"""The choice of K, b and r with the worked examples of MMDS 3.4, and curves against textbook and simulation."""

import itertools
import math
import re
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_lsh.errors import UsageError
from stream_lsh.families.components import masks_of
from stream_lsh.families.curve import Curve, clean_blocks
from stream_lsh.families.tuning import LIMIT, SIGNATURE_ERROR, Banding, alternatives, bands_needed, choose, probability
from stream_lsh.settings.model import Settings


@pytest.mark.parametrize(
    ("similarity", "expected"),
    [(0.2, 0.006), (0.3, 0.047), (0.4, 0.186), (0.5, 0.470), (0.6, 0.802), (0.7, 0.975), (0.8, 0.9996)],
)
def test_curve_of_20_bands_of_5(similarity: float, expected: float) -> None:
    places = len(str(expected)) - 2
    assert round(probability(similarity, 20, 5), places) == expected
    assert (probability(0.0, 20, 5), probability(1.0, 20, 5)) == (0.0, 1.0)
    assert probability(1e-4, 20, 5) == pytest.approx(20e-20)  # 1 - (1 - x) would lose it all


@pytest.mark.parametrize(
    ("threshold", "recall", "expected"),
    [
        (0.8, 0.999, (128, 18, 5)),
        (0.5, 0.999, (156, 52, 3)),
        (0.9, 0.999, (128, 13, 8)),
        (0.3, 0.999, (148, 74, 2)),
        (0.1, 0.999, (128, 66, 1)),
        (1.0, 0.999, (128, 1, 64)),
        (1e-9, 1e-9, (128, 1, 1)),
    ],
)
def test_choices(threshold: float, recall: float, expected: tuple[int, int, int]) -> None:
    assert choose(threshold, recall) == expected


def test_fixed_rows_bands_and_size() -> None:
    assert choose(0.8, 0.999, rows=4) == (128, 14, 4)
    assert choose(0.8, 0.999, rows=8) == (304, 38, 8)
    assert choose(0.8, 0.999, bands=20) == (128, 20, 5)
    assert choose(0.8, 0.999, signature_size=1024) == (1024, 18, 5)
    assert choose(0.8, 0.999, signature_size=256, rows=7) == (256, 30, 7)
    assert choose(0.8, 0.999, signature_size=100) == (100, 18, 5)
    assert choose(0.45, 0.999) == (128, 31, 2)
    assert choose(0.45, 0.999, signature_size=220) == (220, 73, 3)
    assert choose(0.8, 0.999, signature_size=64, bands=20) == (64, 20, 3)
    assert choose(0.8, 0.999, bands=20, rows=5) == (128, 20, 5)
    assert choose(0.8, 0.999, bands=20, rows=7) == (140, 20, 7)
    assert choose(0.8, 0.999, 101, 20, 5) == (101, 20, 5)
    assert choose(0.2, 0.999, bands=1, rows=10) == (128, 1, 10)  # together they are the curve, whatever the recall


def test_a_signature_that_decides_by_itself_is_longer() -> None:
    assert choose(0.8, 0.999, error=SIGNATURE_ERROR) == (1024, 18, 5)
    assert choose(0.5, 0.999, error=SIGNATURE_ERROR) == (1600, 52, 3)
    assert choose(1.0, 0.999, error=SIGNATURE_ERROR) == choose(1.0, 0.999)
    assert choose(0.8, 0.999, 200, error=SIGNATURE_ERROR) == choose(0.8, 0.999, 200)
    assert choose(0.5, 0.999, error=1e-6).signature_size == 4096


SIZES = st.none() | st.integers(1, 4096)


@given(
    threshold=st.floats(0.001, 1.0),
    recall=st.floats(0.01, 0.999999),
    signature_size=SIZES,
    bands=st.none() | st.integers(1, 1024),
    rows=st.none() | st.integers(1, 64),
)
def test_any_choice_keeps_recall_and_what_is_fixed(
    threshold: float, recall: float, signature_size: int | None, bands: int | None, rows: int | None
) -> None:
    try:
        chosen = choose(threshold, recall, signature_size, bands, rows)
    except UsageError as error:
        assert str(error).endswith(".")
        return
    assert chosen.bands * chosen.rows <= chosen.signature_size
    assert signature_size in (None, chosen.signature_size)
    assert bands in (None, chosen.bands)
    assert rows in (None, chosen.rows)
    if signature_size is None:
        assert chosen.signature_size % 4 == 0
        if bands is None and rows is None:
            assert chosen.signature_size <= LIMIT
    if bands is None or rows is None:
        assert chosen.probability(threshold) >= recall - 1e-9


@given(threshold=st.floats(0.05, 1.0), recall=st.floats(0.01, 0.999999), rows=st.integers(1, 8))
def test_bands_needed_is_the_fewest(threshold: float, recall: float, rows: int) -> None:
    if threshold**rows * 1e5 < 1:
        return
    bands = bands_needed(threshold, recall, rows)
    assert probability(threshold, bands, rows) >= recall - 1e-9
    assert bands == 1 or probability(threshold, bands - 1, rows) < recall


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((0.05, 0.9999), r"ask for recall 0\.99972 or less.*set signature_size to 180 or more"),
        ((0.8, 0.999, 64, None, 5), r"recall 0\.99147 or less.*signature_size to 92 or more.*rows to 4 or less"),
        ((0.8, 0.999, None, 2, None), r"recall 0\.96 or less.*bands to 5 or more"),
        ((0.8, 0.999, 64, 200, None), r"signature_size is 64: set it to 200 or more"),
        ((0.8, 0.999, 100, 20, 7), r"signature_size is 100: set it to 140 or more"),
        ((1e-9, 0.5), r"raise the threshold"),
        ((0.8, 0.999, None, 1024, 5), r"5,120 signature components"),
    ],
)
def test_errors_name_the_remedy(arguments: tuple[float, ...], says: str) -> None:
    with pytest.raises(UsageError, match=says) as caught:
        choose(*arguments)  # type: ignore[arg-type]
    assert caught.value.exit_code == 2


def test_the_remedies_work() -> None:
    message = ""
    try:
        choose(0.05, 0.9999)
    except UsageError as error:
        message = str(error)
    recall = float(re.search(r"recall (0\.\d+) or less", message).group(1))  # type: ignore[union-attr]
    size = int(re.search(r"signature_size to (\d+)", message).group(1))  # type: ignore[union-attr]
    assert choose(0.05, recall).rows == 1
    assert choose(0.05, 0.9999, signature_size=size).rows == 1


def test_alternatives_keep_recall_and_fewer_rows_mean_more_false_candidates() -> None:
    chosen = choose(0.8, 0.999)
    others = alternatives(0.8, 0.999, chosen)
    assert [banding.rows for banding in others] == [3, 4, 5, 6, 7]
    assert chosen in others
    assert all(banding.probability(0.8) >= 0.999 for banding in others)
    background = [(0.0, 990.0), (0.1, 9.0), (0.3, 1.0)]
    costs = [Curve("jaccard", banding, 1.0).false_candidates(1e6, background) for banding in others]
    assert all(first > second for first, second in itertools.pairwise(costs))


def test_it_needs_no_heavy_imports() -> None:
    code = "import sys, stream_lsh.families.tuning; print(*(m for m in ('numpy', 'numba') if m in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


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


def test_equal_components_by_chance_of_bit_vectors() -> None:
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
