"""How good a set of pairs is against the truth: recall, precision, F1, over all and by similarity."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Quality:
    """Counts of pairs, and what follows from them. A ratio without pairs to take it of is None, never 0 or 1."""

    truth: int  # pairs there are
    found: int  # pairs reported
    correct: int  # pairs reported that there are

    @property
    def missed(self) -> int:
        return self.truth - self.correct

    @property
    def false(self) -> int:
        return self.found - self.correct

    @property
    def recall(self) -> float | None:
        return self.correct / self.truth if self.truth else None

    @property
    def precision(self) -> float | None:
        return self.correct / self.found if self.found else None

    @property
    def f1(self) -> float | None:
        """Harmonic mean of precision and recall: 2 correct / (truth + found)."""
        return 2 * self.correct / (self.truth + self.found) if self.truth + self.found else None


@dataclass(frozen=True)
class Bucket:
    """The pairs whose true similarity is in [low, high), the last bucket [low, 1]."""

    low: float
    high: float
    quality: Quality


@dataclass(frozen=True)
class Comparison:
    """Found pairs against true ones. `missed` and `false` are positions in the arrays given, in their order."""

    quality: Quality
    missed: NDArray[np.int64]  # positions among the true pairs
    false: NDArray[np.int64]  # positions among the found pairs


def pair_keys(first: NDArray[np.int64], second: NDArray[np.int64]) -> NDArray[np.uint64]:
    """One number for each pair of document positions (below 2^32), the same for (a, b) and (b, a)."""
    low = np.minimum(first, second).astype(np.uint64)
    high = np.maximum(first, second).astype(np.uint64)
    return (high << np.uint64(32)) | low


def compare(found: NDArray[np.uint64], truth: NDArray[np.uint64]) -> Comparison:
    """Compare two sets of pairs, given as `pair_keys`. A pair given twice counts once, by its first place."""
    found_keys, found_at = np.unique(found, return_index=True)
    truth_keys, truth_at = np.unique(truth, return_index=True)
    missed = np.sort(truth_at[~np.isin(truth_keys, found_keys, assume_unique=True)]).astype(np.int64)
    false = np.sort(found_at[~np.isin(found_keys, truth_keys, assume_unique=True)]).astype(np.int64)
    quality = Quality(truth=len(truth_keys), found=len(found_keys), correct=len(truth_keys) - len(missed))
    return Comparison(quality, missed, false)


def by_similarity(
    found: NDArray[np.uint64],
    found_similarity: NDArray[np.float64],
    truth: NDArray[np.uint64],
    truth_similarity: NDArray[np.float64],
    edges: list[float],
) -> list[Bucket]:
    """Quality by the true similarity of the pairs (of found and of true ones), in the buckets that `edges` bound.

    `edges` ascend; pairs outside them are in no bucket.
    """
    buckets = []
    for number, (low, high) in enumerate(itertools.pairwise(edges)):
        last = number == len(edges) - 2
        in_found = (found_similarity >= low) & ((found_similarity <= high) if last else (found_similarity < high))
        in_truth = (truth_similarity >= low) & ((truth_similarity <= high) if last else (truth_similarity < high))
        buckets.append(Bucket(low, high, compare(found[in_found], truth[in_truth]).quality))
    return buckets


def edges_from(low: float, step: float = 0.05) -> list[float]:
    """Bucket edges from `low` to 1 at whole multiples of `step`; the first bucket may be narrower."""
    inner = [round(step * i, 10) for i in range(1, round(1 / step)) if step * i > low + 1e-9]
    return [low, *inner, 1.0]
