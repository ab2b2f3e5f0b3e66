"""The truth of quotations by exhaustion: every pair of documents of which one has a share of the other's shingles."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stream_lsh.evaluation.exact import ExactPairs, Ranked
from stream_lsh.hashing.kernels import njit

_STEP = 256  # documents that are compared with all before them at a time


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


class EveryShare:
    """All pairs of which the larger share is at the threshold or above. Every shingle of a document is looked up among
    all documents before it: nothing is sampled, nothing is left out."""

    def __init__(self, contained: Contained, threshold: float) -> None:
        self._ranked = contained.ranked
        self._threshold = threshold
        ranks, offsets = self._ranked.ranks, self._ranked.offsets
        order = np.argsort(ranks, kind="stable")
        self._documents = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))[order].astype(np.int32)
        self._starts = np.searchsorted(ranks[order], np.arange(self._ranked.distinct + 1))

    def seconds(self) -> float:
        """About how long it will take: by what some of the documents took."""
        n = len(self._ranked.offsets) - 1
        if n < 8 * _STEP:
            return 0.0
        self._some(0, 1)
        began = time.perf_counter()
        self._some(n // 2, n // 2 + _STEP)
        return (time.perf_counter() - began) * n / _STEP

    def run(self, progress: Callable[[int, int], None] | None = None) -> ExactPairs:
        """The pairs, by newer, then older document."""
        n, found = len(self._ranked.offsets) - 1, [np.empty((0, 2), np.int64)]
        shares = [np.empty(0)]
        for first in range(0, n, _STEP):
            pairs, share = self._some(first, min(first + _STEP, n))
            found.append(pairs)
            shares.append(share)
            if progress is not None:
                progress(min(first + _STEP, n), n)
        older, newer = np.concatenate(found).T.copy()
        return ExactPairs(older, newer, np.concatenate(shares))

    def _some(self, first: int, last: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        pairs: NDArray[np.int64]
        share: NDArray[np.float64]
        pairs, share = _compare(
            self._ranked.ranks, self._ranked.offsets, self._documents, self._starts, first, last, self._threshold
        )
        return pairs, share


@njit(allocates=True)
def _compare(ranks, offsets, documents, starts, first, last, threshold):  # type: ignore[no-untyped-def]
    """Pairs int64[m, 2], older and newer, of the documents [first, last) with those before them, and their shares."""
    shared, met = np.zeros(len(offsets), np.int32), np.empty(len(offsets), np.int64)
    out, shares, n = np.empty((64, 2), np.int64), np.empty(64), 0
    for i in range(first, last):
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
        met[:count].sort()
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
    return out[:n].copy(), shares[:n].copy()
