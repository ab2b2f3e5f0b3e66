"""The truth about short texts and sets with weights: every pair whose sizes allow it is compared, by the very functions
that the engine has."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stream_lsh.evaluation.exact import Exhaustive, Pairs
from stream_lsh.evaluation.items import ItemBackground
from stream_lsh.families.distances import MOST_COUNTED, edits, weighted_jaccard
from stream_lsh.hashing.kernels import njit

_BINS = 1000  # of a background of sets
_ROUNDING = 1e-9  # of sums of weights
_NEAR = 1 - 1e-6  # of a bound on the similarity, which is rounded, too


@dataclass(frozen=True)
class Lists:
    """Short texts (`levenshtein`) or sets with weights, by position. words: uint64, as their signer's `shingle` makes
    them; document i has words[offsets[i]:offsets[i + 1]]. scopes: uint64[n], equal where two may match."""

    levenshtein: bool
    words: NDArray[np.uint64]
    offsets: NDArray[np.int64]
    scopes: NDArray[np.uint64]

    def __len__(self) -> int:
        return len(self.scopes)

    def similarities(self, first: NDArray[np.int64], second: NDArray[np.int64]) -> NDArray[np.float64]:
        """Similarity of given pairs, as verdicts have it: float64[len(first)]; 0 where two are not to match, or have
        more than MOST_COUNTED edits between them."""
        found = self._compared(first, second, MOST_COUNTED)
        return np.where(self.scopes[first] == self.scopes[second], found, 0.0)

    def _compared(self, first: NDArray[np.int64], second: NDArray[np.int64], most: int) -> NDArray[np.float64]:
        found = np.empty(len(first))
        _compare(self.levenshtein, self.words, self.offsets, first, second, most, found)
        return found

    def background(self, most: int) -> ItemBackground:
        """How many edits the pairs of texts are apart, infinitely many where they are more than `most`; how similar
        sets are, to a thousandth."""
        counts = np.zeros(most + 2 if self.levenshtein else _BINS, np.int64)
        for newer in range(len(self)):
            found = self._compared(np.full(newer, newer), np.arange(newer), most)
            if self.levenshtein:
                bins = np.where(found > 0, np.rint(1 / np.maximum(found, 1e-9) - 1), most + 1)
            else:
                bins = np.minimum(found * _BINS, _BINS - 1)
            counts += np.bincount(bins.astype(np.int64), minlength=len(counts))
        if self.levenshtein:
            return ItemBackground(np.append(np.arange(most + 1, dtype=np.float64), np.inf), counts, by_distance=True)
        return ItemBackground((np.arange(_BINS) + 0.5) / _BINS, counts, by_distance=False)


class EveryList(Exhaustive):
    """The comparison of all lists, from small to large, with all larger ones. The time grows with the square of the
    documents, memory with the pairs found. least: the similarity from which a pair counts."""

    CHUNK = 256

    def __init__(self, lists: Lists, least: float) -> None:
        super().__init__(len(lists))
        self._lists, self._least = lists, least
        if lists.levenshtein:
            self._sizes = np.diff(lists.offsets).astype(np.float64)
        else:
            sums = np.concatenate((np.zeros(1), np.cumsum(lists.words[1::2].view(np.float64))))[lists.offsets >> 1]
            self._sizes = np.diff(sums) + _ROUNDING * sums[-1:]
        self._order = np.argsort(self._sizes, kind="stable")

    def _compare(self, numbers: NDArray[np.int64]) -> Pairs:
        lists = self._lists
        return Pairs(*_near(
            lists.levenshtein, lists.words, lists.offsets, lists.scopes, self._sizes, self._order, numbers, self._least
        ))  # fmt: skip


@njit
def _similarity(levenshtein, words, offsets, one, other, most, scratch):  # type: ignore[no-untyped-def]
    """Of texts 0 where more than `most` edits are between them. scratch: as for `edits`."""
    a, b = offsets[one], offsets[other]
    size, length = offsets[one + 1] - a, offsets[other + 1] - b
    if not levenshtein:
        return weighted_jaccard(words, a, size, words, b, length)
    apart = edits(words, a, size, words, b, length, most, scratch)
    return 1.0 / (1.0 + apart) if apart <= most else 0.0


@njit(allocates=True)
def _near(levenshtein, words, offsets, scopes, sizes, order, numbers, least):  # type: ignore[no-untyped-def]
    """Older and newer document of the pairs of the documents order[numbers] with those behind them in this order, from
    small to large; and how similar they are. An empty text is similar to nothing."""
    pairs, values, n = np.empty((256, 2), np.int64), np.empty(256), 0
    most = np.int64(1.0 / least - 1.0 + 1e-9)
    scratch = np.empty((2 * most + 3, 2), np.uint64)
    for i in numbers:
        one = order[i]
        if sizes[one] == 0:
            continue
        for j in range(i + 1, len(order)):
            other = order[j]
            bound = 1.0 / (1.0 + sizes[other] - sizes[one]) if levenshtein else sizes[one] / sizes[other]
            if bound < least * _NEAR:
                break
            if scopes[one] != scopes[other]:
                continue
            older, newer = min(one, other), max(one, other)
            value = _similarity(levenshtein, words, offsets, newer, older, most, scratch)
            if value >= least:
                if n == len(pairs):
                    pairs, values = np.concatenate((pairs, pairs)), np.concatenate((values, values))
                pairs[n, 0], pairs[n, 1], values[n] = older, newer, value
                n += 1
    return pairs[:n, 0].copy(), pairs[:n, 1].copy(), values[:n].copy()


@njit(allocates=True)
def _compare(levenshtein, words, offsets, first, second, most, out):  # type: ignore[no-untyped-def]
    scratch = np.empty((2 * most + 3, 2), np.uint64)
    for k in range(len(first)):
        out[k] = _similarity(levenshtein, words, offsets, first[k], second[k], most, scratch)
