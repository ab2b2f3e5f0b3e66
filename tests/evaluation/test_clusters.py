"""Groups against labels: the figures of papers, and the definitions word for word."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_lsh.evaluation.clusters import Agreement, agreement


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


@pytest.mark.parametrize(
    ("groups", "labels", "index"),
    [  # the values that scikit-learn documents for adjusted_rand_score, or gives
        ([0, 0, 1, 1], [0, 0, 1, 1], 1.0),
        ([0, 0, 1, 1], [1, 1, 0, 0], 1.0),
        ([0, 0, 1, 2], [0, 0, 1, 1], 0.5714285714285715),
        ([0, 0, 1, 1], [0, 0, 1, 2], 0.5714285714285715),
        ([0, 0, 0, 0], [0, 1, 2, 3], 0.0),
        ([0, 0, 1, 1], [0, 1, 0, 1], -0.5),
        ([0, 1, 2], [4, 5, 6], 1.0),
        ([0, 0, 0], [4, 4, 4], 1.0),
        ([7], [8], 1.0),
    ],
)
def test_the_adjusted_rand_index(groups: list[int], labels: list[int], index: float) -> None:
    assert scored(groups, labels).adjusted_rand == pytest.approx(index)


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
