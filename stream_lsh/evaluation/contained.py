"""The truth of quotations by exhaustion: every pair of documents of which one has a share of the other's shingles."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stream_lsh.evaluation.exact import Exhaustive, Pairs, Ranked
from stream_lsh.hashing.kernels import njit


@dataclass(frozen=True)
class Contained:
    """Documents, compared by the larger share of what two have in common: |A & B| / min(|A|, |B|)."""

    ranked: Ranked

    def similarities(self, first: NDArray[np.int64], second: NDArray[np.int64]) -> NDArray[np.float64]:
        """That share of given pairs, float64[len(first)]; of two documents without shingles 0."""
        sizes = np.diff(self.ranked.offsets)
        jaccard, sums = self.ranked.similarities(first, second), sizes[first] + sizes[second]
        shared = np.rint(jaccard / (1 + jaccard) * sums)
        return np.asarray(shared / np.maximum(1, np.minimum(sizes[first], sizes[second])))


class EveryShare(Exhaustive):
    """All pairs of which the larger share is at the threshold or above. Every shingle of a document is looked up among
    all documents before it: nothing is sampled, nothing is left out."""

    CHUNK = 256

    def __init__(self, contained: Contained, threshold: float) -> None:
        super().__init__(len(contained.ranked.offsets) - 1)
        self._ranked = contained.ranked
        self._threshold = threshold
        ranks, offsets = self._ranked.ranks, self._ranked.offsets
        order = np.argsort(ranks, kind="stable")
        self._documents = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))[order].astype(np.int32)
        self._starts = np.searchsorted(ranks[order], np.arange(self._ranked.distinct + 1))

    def _compare(self, numbers: NDArray[np.int64]) -> Pairs:
        ranked = self._ranked
        return Pairs(*_compare(ranked.ranks, ranked.offsets, self._documents, self._starts, numbers, self._threshold))


@njit(allocates=True)
def _compare(ranks, offsets, documents, starts, numbers, threshold):  # type: ignore[no-untyped-def]
    """Older and newer document of the pairs of some documents with those before them, and their shares."""
    shared, met = np.zeros(len(offsets), np.int32), np.empty(len(offsets), np.int64)
    out, shares, n = np.empty((64, 2), np.int64), np.empty(64), 0
    for i in numbers:
        count, size = 0, offsets[i + 1] - offsets[i]
        for k in range(offsets[i], offsets[i + 1]):
            for at in range(starts[ranks[k]], starts[ranks[k] + 1]):
                other = documents[at]
                if other >= i:
                    break
                if shared[other] == 0:
                    met[count] = other
                    count += 1
                shared[other] += 1
        for m in range(count):
            other = met[m]
            share = shared[other] / min(size, offsets[other + 1] - offsets[other])
            shared[other] = 0
            if share >= threshold:
                if n == len(out):
                    larger, longer = np.empty((2 * n, 2), np.int64), np.empty(2 * n)
                    larger[:n], longer[:n] = out, shares
                    out, shares = larger, longer
                out[n, 0], out[n, 1], shares[n] = other, i, share
                n += 1
    return out[:n, 0].copy(), out[:n, 1].copy(), shares[:n].copy()
