"""The truth about sets with weights: every pair whose weights allow it is compared, by the very function that the
engine has."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stream_lsh.evaluation.exact import ExactPairs
from stream_lsh.evaluation.items import ItemBackground
from stream_lsh.evaluation.timing import seconds_of
from stream_lsh.families.distances import weighted_jaccard
from stream_lsh.hashing.kernels import njit

_BLOCK = 256  # sets that are compared with all others between two words on progress
_BINS = 1000  # of a background
_ROUNDING = 1e-9  # of sums of weights


@dataclass(frozen=True)
class WeightedSets:
    """Sets by position. words: uint64, as `WeightsSigner.shingle` makes them; set i has
    words[offsets[i]:offsets[i + 1]]. salts: uint64[n], equal where two may match."""

    words: NDArray[np.uint64]
    offsets: NDArray[np.int64]
    salts: NDArray[np.uint64]

    def __len__(self) -> int:
        return len(self.salts)

    def similarities(self, first: NDArray[np.int64], second: NDArray[np.int64]) -> NDArray[np.float64]:
        """Similarity of given pairs: float64[len(first)]; 0 where two are not to match."""
        found = np.empty(len(first))
        _compare(self.words, self.offsets, first, second, found)
        return np.where(self.salts[first] == self.salts[second], found, 0.0)

    def background(self) -> ItemBackground:
        """How similar the pairs are, to a thousandth."""
        counts = np.zeros(_BINS, np.int64)
        _count(self.words, self.offsets, counts)
        return ItemBackground((np.arange(_BINS) + 0.5) / _BINS, counts, by_distance=False)


class EverySet:
    """The comparison of all sets with all older ones, as `exact.AllPairs` does it for copies. least: the similarity
    from which a pair counts."""

    def __init__(self, sets: WeightedSets, least: float) -> None:
        self.sets, self.least = sets, least

    def run(self, *, progress: Callable[[int, int], None] | None = None) -> ExactPairs:
        """All pairs at or above the similarity, by newer, then older set. The time grows with the square of the sets,
        memory with the pairs found. `progress` is called with sets done and sets in all."""
        sets = self.sets
        sums = np.concatenate((np.zeros(1), np.cumsum(sets.words[1::2].view(np.float64))))[sets.offsets >> 1]
        totals = np.diff(sums) + _ROUNDING * sums[-1:]
        order = np.argsort(totals, kind="stable")
        parts, values = [np.empty((0, 2), np.int64)], [np.empty(0)]
        for begin in range(0, len(order), _BLOCK):
            pairs, found = _near(sets.words, sets.offsets, sets.salts, totals, order, begin, begin + _BLOCK, self.least)
            parts.append(pairs)
            values.append(found)
            if progress is not None:
                progress(min(begin + _BLOCK, len(order)), len(order))
        pairs, found = np.concatenate(parts), np.concatenate(values)
        chosen = np.lexsort((pairs[:, 0], pairs[:, 1]))
        return ExactPairs(pairs[chosen, 0], pairs[chosen, 1], found[chosen])

    def seconds(self) -> float:
        """How long `run` will take, from timing some."""
        sets = self.sets
        return seconds_of(
            sets.words, sets.offsets, lambda words, offsets, chosen:
            EverySet(WeightedSets(words, offsets, sets.salts[chosen]), self.least).run(),
        )  # fmt: skip


@njit(allocates=True)
def _near(words, offsets, salts, totals, order, begin, end, least):  # type: ignore[no-untyped-def]
    """Of the sets order[begin:end], from light to heavy, the pairs (older, newer) with heavier ones; how similar."""
    found, values, n = np.empty((256, 2), np.int64), np.empty(256), 0
    for i in range(begin, min(end, len(order))):
        one = order[i]
        for j in range(i + 1, len(order)):
            other = order[j]
            if totals[one] < least * totals[other] * (1 - 1e-6):
                break
            if salts[one] != salts[other]:
                continue
            a, b = min(one, other), max(one, other)
            size, length = offsets[b + 1] - offsets[b], offsets[a + 1] - offsets[a]
            value = weighted_jaccard(words, offsets[b], size, words, offsets[a], length)
            if value >= least:
                if n == len(found):
                    found, values = np.concatenate((found, found)), np.concatenate((values, values))
                found[n, 0], found[n, 1], values[n] = a, b, value
                n += 1
    return found[:n].copy(), values[:n].copy()


@njit
def _compare(words, offsets, first, second, out):  # type: ignore[no-untyped-def]
    for k in range(len(first)):
        a, b = offsets[first[k]], offsets[second[k]]
        size, length = offsets[first[k] + 1] - a, offsets[second[k] + 1] - b
        out[k] = weighted_jaccard(words, a, size, words, b, length)


@njit
def _count(words, offsets, counts):  # type: ignore[no-untyped-def]
    bins = len(counts)
    for i in range(len(offsets) - 1):
        for j in range(i):
            a, b = offsets[i], offsets[j]
            value = weighted_jaccard(words, a, offsets[i + 1] - a, words, b, offsets[j + 1] - b)
            counts[min(np.int64(value * bins), bins - 1)] += 1
