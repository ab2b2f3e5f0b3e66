"""Recall, precision, F1."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_lsh.evaluation.metrics import Quality, by_similarity, compare, edges_from, pair_keys


def keys(pairs: list[tuple[int, int]]) -> np.ndarray:
    first, second = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    return pair_keys(first, second)


def test_a_pair_has_no_direction() -> None:
    assert keys([(3, 7)]) == keys([(7, 3)])
    assert keys([(3, 7)]) != keys([(3, 8)])
    assert keys([(2**32 - 1, 2**32 - 2)])[0] == ((2**32 - 1) << 32) + 2**32 - 2


PAIRS = st.lists(st.tuples(st.integers(0, 9), st.integers(10, 19)), max_size=40)


@given(found=PAIRS, truth=PAIRS)
def test_compare_is_set_algebra(found: list[tuple[int, int]], truth: list[tuple[int, int]]) -> None:
    result = compare(keys(found), keys(truth))
    assert result.quality == Quality(len(set(truth)), len(set(found)), len(set(truth) & set(found)))
    assert {truth[i] for i in result.missed} == set(truth) - set(found)
    assert {found[i] for i in result.false} == set(found) - set(truth)
    assert len(result.missed) == result.quality.missed
    assert len(result.false) == result.quality.false


def test_ratios() -> None:
    quality = Quality(truth=10, found=8, correct=6)
    assert (quality.recall, quality.precision) == (0.6, 0.75)
    assert quality.f1 == pytest.approx(2 / (1 / 0.6 + 1 / 0.75))
    assert Quality(0, 0, 0).recall is None
    assert Quality(0, 0, 0).precision is None
    assert Quality(0, 0, 0).f1 is None
    assert Quality(5, 0, 0).precision is None
    assert Quality(5, 0, 0).f1 == 0.0


def test_buckets() -> None:
    truth = keys([(0, 1), (0, 2), (0, 3), (0, 4)])
    found = keys([(0, 1), (0, 3), (0, 4)])
    buckets = by_similarity(
        found, np.array([0.8, 0.9, 1.0]), truth, np.array([0.8, 0.85, 0.9, 1.0]), [0.8, 0.85, 0.9, 1.0]
    )
    assert [(b.low, b.high) for b in buckets] == [(0.8, 0.85), (0.85, 0.9), (0.9, 1.0)]
    assert [b.quality for b in buckets] == [Quality(1, 1, 1), Quality(1, 0, 0), Quality(2, 2, 2)]


def test_edges() -> None:
    assert edges_from(0.8) == [0.8, 0.85, 0.9, 0.95, 1.0]
    assert edges_from(0.83) == [0.83, 0.85, 0.9, 0.95, 1.0]
    assert edges_from(0.0, 0.25) == [0.0, 0.25, 0.5, 0.75, 1.0]
    assert edges_from(1.0) == [1.0, 1.0]
