"""How well groups agree with labels: B-cubed, the adjusted Rand index, and the pairs that are together in both."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stream_lsh.evaluation.metrics import Quality


@dataclass(frozen=True)
class Agreement:
    """Groups against labels; without a document all ratios are None.

    precision, recall: B-cubed (Bagga and Baldwin 1998): for each document, how much of its group has its label, and how
    much of its label is in its group, averaged over the documents. adjusted_rand: the Rand index, corrected for chance
    (Hubert and Arabie 1985): 1 for the same clusters, about 0 for random ones. pairs: those that are in one group,
    against those that have one label.
    """

    documents: int
    groups: int
    labels: int
    precision: float | None
    recall: float | None
    adjusted_rand: float | None
    pairs: Quality

    @property
    def f1(self) -> float | None:
        """Harmonic mean of precision and recall."""
        if self.precision is None or self.recall is None:
            return None
        return 2 * self.precision * self.recall / (self.precision + self.recall)


def agreement(groups: NDArray[np.int64], labels: NDArray[np.int64]) -> Agreement:
    """Compare two clusterings of n documents, given as the number of each document's cluster."""
    n = len(groups)
    _, group, of_group = np.unique(groups, return_inverse=True, return_counts=True)
    _, label, of_label = np.unique(labels, return_inverse=True, return_counts=True)
    cells, both = np.unique(np.stack((group, label)), axis=1, return_counts=True)
    pairs = Quality(truth=_pairs(of_label), found=_pairs(of_group), correct=_pairs(both))
    if not n:
        return Agreement(0, 0, 0, None, None, None, pairs)
    squared = both.astype(np.float64) ** 2
    return Agreement(
        documents=n,
        groups=len(of_group),
        labels=len(of_label),
        precision=float((squared / of_group[cells[0]]).sum() / n),
        recall=float((squared / of_label[cells[1]]).sum() / n),
        adjusted_rand=_adjusted_rand(pairs, n * (n - 1) // 2),
        pairs=pairs,
    )


def _pairs(counts: NDArray[np.int64]) -> int:
    """Pairs within clusters of these sizes."""
    return int((counts * (counts - 1) // 2).sum())


def _adjusted_rand(pairs: Quality, every: int) -> float:
    """Of the pairs together in both, and of all. Where chance has no choice (each alone, or all together, in both), the
    clusterings are the same: 1."""
    expected = pairs.found * pairs.truth / every if every else 0.0
    most = (pairs.found + pairs.truth) / 2
    return (pairs.correct - expected) / (most - expected) if most != expected else 1.0
