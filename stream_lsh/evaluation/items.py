"""The truth about vectors and bit vectors: every pair is looked at, and those that could be alike are computed by the
very function that the engine has, so that rounding cannot tell the two apart."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stream_lsh.evaluation.exact import Exhaustive, Pairs
from stream_lsh.families.curve import Curve
from stream_lsh.families.distances import hamming, similarity_of
from stream_lsh.families.measure import MEASURES, Measure
from stream_lsh.hashing.kernels import njit

_NEAR = 1e-9
"""How far below what is asked for a pair may seem to be, and is computed exactly: far more than rounding does."""
_BINS = 4096  # of a background, by cosine or by distance


@dataclass(frozen=True)
class Items:
    """Vectors or bit vectors by position.

    words: uint64[n, size], as `ItemSigner.shingle` makes them: numbers as the bits of float64, or the bits.
    scopes: uint64[n], equal where two may match. dimensions: numbers or bits of each.
    """

    measure: Measure
    dimensions: int
    words: NDArray[np.uint64]
    scopes: NDArray[np.uint64]

    def __len__(self) -> int:
        return len(self.words)

    def similarities(self, first: NDArray[np.int64], second: NDArray[np.int64]) -> NDArray[np.float64]:
        """Similarity of given pairs, as verdicts have it: float64[len(first)]; 0 where two are not to match."""
        found = np.empty(len(first), np.float64)
        number = np.int64(MEASURES.index(self.measure))
        _compare(number, self.dimensions, self.words.shape[1], self.words.reshape(-1), first, second, found)
        return np.where(self.scopes[first] == self.scopes[second], found, 0.0)

    def blocks(
        self, numbers: NDArray[np.float64], newer: NDArray[np.int64], size: int
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float64]]]:
        """Compare some items with all up to the newest of them, a block of these at a time: their numbers, and the
        measures, about: cosines, squares of distances, or bits, float64[newer, older].

        Vectors are multiplied as matrices, whose rounding is what it is. numbers: of `numbers`.
        """
        one = self.words[newer] if self.measure == "hamming" else numbers[newer]
        squares = (one * one).sum(axis=1)[:, None] if self.measure == "euclidean" else one
        for start in range(0, int(newer.max(initial=-1)) + 1, size):
            older, some = np.arange(start, min(start + size, len(self))), slice(start, start + size)
            if self.measure == "hamming":
                found = np.empty((len(newer), len(older)))
                _bits(one, self.words[some], found)
            else:
                found = one @ numbers[some].T
                if self.measure == "euclidean":
                    found = squares + (numbers[some] * numbers[some]).sum(axis=1) - 2 * found
            yield older, found

    def numbers(self) -> NDArray[np.float64]:
        """Vectors to multiply: of a cosine with the length 1, else moved to their middle, where they lose least."""
        if self.measure == "hamming":
            return np.empty((0, 0))
        numbers = self.words.view(np.float64)
        if self.measure == "cosine":
            numbers = numbers / np.abs(numbers).max(axis=1, keepdims=True)
            return np.asarray(numbers / np.sqrt((numbers * numbers).sum(axis=1, keepdims=True)))
        return np.asarray(numbers - numbers.mean(axis=0)) if len(numbers) else numbers


class EveryPair(Exhaustive):
    """The comparison of all items with all older ones. The time grows with the square of the items, memory with the
    pairs found. least: the similarity, as verdicts have it, from which a pair counts."""

    SHARE = 0.5  # a sample is compared with all items, a chunk only with those up to its newest

    def __init__(self, items: Items, least: float) -> None:
        super().__init__(len(items))
        self.items, self.least, self._numbers = items, least, items.numbers()
        if items.measure == "euclidean":
            longest = float((self._numbers * self._numbers).sum(axis=1).max(initial=0.0))
            self._most = (1 / least - 1) ** 2 * (1 + _NEAR) + 4 * longest * _NEAR
        else:
            self._most = (1 - least) * items.dimensions + _NEAR

    def _compare(self, numbers: NDArray[np.int64]) -> Pairs:
        older, newer = [numbers[:0]], [numbers[:0]]
        for others, measures in self.items.blocks(self._numbers, numbers, self.CHUNK):
            cosine = self.items.measure == "cosine"
            rows, columns = np.nonzero(measures >= self.least - _NEAR if cosine else measures <= self._most)
            one, other = others[columns], numbers[rows]
            older.append(one[one < other])
            newer.append(other[one < other])
        one, other = np.concatenate(older), np.concatenate(newer)
        pairs = Pairs(one, other, self.items.similarities(one, other))
        return pairs.take((pairs.similarity >= self.least) & (self.items.scopes[one] == self.items.scopes[other]))


@dataclass(frozen=True)
class ItemBackground:
    """How similar the pairs of a sample are: a histogram of cosines or distances, ascending."""

    measures: NDArray[np.float64]  # the middle of each bin
    counts: NDArray[np.int64]
    by_distance: bool

    @property
    def pairs(self) -> int:
        return int(self.counts.sum())

    def histogram(self) -> Iterator[tuple[float, float]]:
        """(cosine or distance, pairs), bins without pairs left out."""
        for number in np.flatnonzero(self.counts):
            yield float(self.measures[number]), float(self.counts[number])

    def binned(self, reach: float) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Pairs from 0 to `reach` in 50 even bins, and the middles of those."""
        counts, edges = np.histogram(self.measures, 50, (0.0, reach), weights=self.counts)
        return counts.astype(np.int64), (edges[:-1] + edges[1:]) / 2

    def alike(self, asked: float) -> int:
        """Pairs at least as similar, or at most as far from each other, to a bin's width."""
        chosen = self.measures <= asked if self.by_distance else self.measures >= asked
        return int(self.counts[chosen].sum())

    def quantile(self, share: float) -> float:
        """The cosine or distance that this share of the pairs does not exceed; NaN without pairs."""
        if not self.pairs:
            return float("nan")
        return float(self.measures[int(np.searchsorted(np.cumsum(self.counts), share * self.pairs))])


def background(items: Items, curve: Curve) -> ItemBackground:
    """Compare all pairs of a sample: bits to the bit, cosines to a 2,048th, distances to a hundredth of the one that is
    asked for and, from twenty times as much on, to a 4,096th of the largest."""
    numbers = items.numbers()
    if items.measure == "hamming":
        edges = np.arange(items.dimensions + 2) - 0.5
    elif items.measure == "cosine":
        edges = np.linspace(-1, 1, _BINS + 1)
    else:
        longest = 2 * float(np.sqrt((numbers * numbers).sum(axis=1).max(initial=0.0))) + curve.asked
        step = curve.asked / 100
        near = np.arange(0, min(longest, 20 * curve.asked), step)
        begins = float(near[-1]) + step
        edges = np.concatenate((near, np.linspace(begins, max(longest * 1.001, begins + step), _BINS)))
    counts = np.zeros(len(edges) - 1, np.int64)
    for start in range(0, len(items), EveryPair.CHUNK):
        newer = np.arange(start, min(start + EveryPair.CHUNK, len(items)))
        for older, measures in items.blocks(numbers, newer, EveryPair.CHUNK):
            found = measures[older < newer[:, None]]
            if items.measure == "euclidean":
                found = np.sqrt(np.maximum(found, 0.0))
            elif items.measure == "cosine":
                found = np.clip(found, -1.0, 1.0)
            counts += np.histogram(found, edges)[0]
    return ItemBackground((edges[:-1] + edges[1:]) / 2, counts, curve.by_distance)


@njit
def _compare(measure, dimensions, size, words, first, second, out):  # type: ignore[no-untyped-def]
    for c in range(len(first)):
        out[c] = similarity_of(measure, words, first[c] * size, words, second[c] * size, size, dimensions)


@njit
def _bits(one, other, out):  # type: ignore[no-untyped-def]
    size = one.shape[1]
    mine, theirs = one.reshape(-1), other.reshape(-1)
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            out[i, j] = hamming(mine, i * size, theirs, j * size, size)
