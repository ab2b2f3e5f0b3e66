"""Recall, precision, F1, the figures of an evaluation, and groups against labels."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_lsh.evaluation.clusters import Agreement, agreement
from stream_lsh.evaluation.exact import Ranked
from stream_lsh.evaluation.metrics import Quality, by_similarity, compare, edges_from, pair_keys
from stream_lsh.evaluation.report import Pairs, report
from stream_lsh.families.tuning import Banding


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


BANDING = Banding(128, 18, 5)
# Document i against document 0: similarity 10/10, 9/10, 8/10, 6/10, 0.
SETS = [set(range(10)), set(range(10)), set(range(9)), set(range(8)), set(range(6)), {99}]


def ranked() -> Ranked:
    members = np.array([value for group in SETS for value in group], dtype=np.uint64)
    return Ranked.of(members, np.cumsum([0] + [len(group) for group in SETS], dtype=np.int64))


def pairs(*given: tuple[int, int, float]) -> Pairs:
    first, second, similarity = zip(*given, strict=True) if given else ((), (), ())
    return Pairs(np.array(first, np.int64), np.array(second, np.int64), np.array(similarity, np.float64))


def test_all_found() -> None:
    truth = pairs((0, 1, 1.0), (0, 2, 0.9), (0, 3, 0.8))
    found = report(ranked(), truth, truth, BANDING, 0.8)
    assert found.quality == Quality(3, 3, 3)
    assert (found.mean_error, found.largest_error) == (0, 0)
    assert [(b.low, b.quality.truth) for b in found.buckets] == [(0.8, 1), (0.85, 0), (0.9, 1), (0.95, 1)]
    assert found.expected[0] == pytest.approx(BANDING.probability(0.8))
    assert found.expected[1] is None
    assert found.expected[3] == 1.0
    assert found.expected_recall == pytest.approx(sum(BANDING.probability(s) for s in (1.0, 0.9, 0.8)) / 3)


def test_missed_and_false_ones_worst_first_with_their_true_similarity() -> None:
    truth = pairs((0, 3, 0.8), (0, 2, 0.9), (0, 1, 1.0))
    found = report(ranked(), pairs((1, 0, 0.98), (0, 4, 0.81), (0, 5, 0.82)), truth, BANDING, 0.8)
    assert found.quality == Quality(truth=3, found=3, correct=1)
    assert found.missed.similarity.tolist() == [0.9, 0.8]
    assert found.missed.second.tolist() == [2, 3]
    assert found.false.similarity.tolist() == [0.0, 0.6]
    assert found.largest_error == pytest.approx(0.82)
    assert found.mean_error == pytest.approx((0.02 + 0.21 + 0.82) / 3)
    assert found.buckets[0].low == 0.0


def test_labels_below_the_threshold_cannot_be_found() -> None:
    found = report(ranked(), pairs((0, 1, 1.0)), pairs((0, 1, 1.0), (0, 4, 0.6)), BANDING, 0.8)
    assert found.below_threshold == 1
    assert found.expected_recall == 0.5
    assert [(b.low, b.high) for b in found.buckets][:3] == [(0.6, 0.7), (0.7, 0.8), (0.8, 0.85)]
    assert found.buckets[0].quality == Quality(1, 0, 0)


def scored(groups: list[int], labels: list[int]) -> Agreement:
    return agreement(np.array(groups, np.int64), np.array(labels, np.int64))


def test_the_example_of_amigo_and_others() -> None:
    # By hand: groups {0 0 0 0 1}, {1 1}, labels in them.
    found = scored([0, 0, 0, 0, 0, 1, 1], [5, 5, 5, 5, 6, 6, 6])
    assert found.precision == pytest.approx((4 * 4 / 5 + 1 / 5 + 2 * 2 / 2) / 7)
    assert found.recall == pytest.approx((4 * 4 / 4 + 1 / 3 + 2 * 2 / 3) / 7)
    assert found.f1 == pytest.approx(2 / (1 / found.precision + 1 / found.recall))  # type: ignore[operator]
    assert (found.documents, found.groups, found.labels) == (7, 2, 2)
    assert (found.pairs.truth, found.pairs.found, found.pairs.correct) == (9, 11, 7)


def test_nothing() -> None:
    found = scored([], [])
    assert (found.precision, found.recall, found.f1, found.adjusted_rand) == (None,) * 4


CLUSTERINGS = st.integers(1, 30).flatmap(
    lambda n: st.tuples(*[st.lists(st.integers(0, 6), min_size=n, max_size=n)] * 2)
)


@given(CLUSTERINGS)
def test_as_the_definitions_say(clusterings: tuple[list[int], list[int]]) -> None:
    groups, labels = clusterings
    n = len(groups)
    found = scored(groups, labels)
    precisions, recalls = [], []
    for i in range(n):
        group = {j for j in range(n) if groups[j] == groups[i]}
        label = {j for j in range(n) if labels[j] == labels[i]}
        precisions.append(len(group & label) / len(group))
        recalls.append(len(group & label) / len(label))
    assert found.precision == pytest.approx(sum(precisions) / n)
    assert found.recall == pytest.approx(sum(recalls) / n)
    # The Rand index in the four counts of pairs (Hubert and Arabie 1985, as Steinley 2004 writes it).
    counts = {(a, b): 0 for a in (False, True) for b in (False, True)}
    for i, j in combinations(range(n), 2):
        counts[groups[i] == groups[j], labels[i] == labels[j]] += 1
    a, b, c, d = counts[True, True], counts[True, False], counts[False, True], counts[False, False]
    under = (a + b) * (b + d) + (a + c) * (c + d)
    assert found.adjusted_rand == pytest.approx(2 * (a * d - b * c) / under if under else 1.0)
