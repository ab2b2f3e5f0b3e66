"""The figures of an evaluation."""

import numpy as np
import pytest

from stream_lsh.evaluation.exact import Ranked
from stream_lsh.evaluation.metrics import Quality
from stream_lsh.evaluation.report import Pairs, report
from stream_lsh.families.tuning import Banding

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
