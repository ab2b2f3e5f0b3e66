"""The truth by exhaustion: every pair of documents with a Jaccard similarity at the threshold or above, none missed.

All pairs are covered without looking at each (AllPairs: Bayardo, Ma, Srikant, WWW 2007; the orderings of PPJoin: Xiao,
Wang, Lin, Yu, WWW 2008; MMDS 3.9.4-3.9.5). With J(x, y) >= t the overlap is at least t |x| and at least t |y|. So with
the shingles of all documents in one order, rarest first, the first |x| - ceil(t |x|) + 1 of x and the first
|y| - ceil(t |y|) + 1 of y have one in common: an index of these prefixes alone meets every such pair. Each pair met is
then counted in full; nothing is estimated.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stream_lsh.hashing.kernels import njit

_BEFORE_ROUNDING = 1e-9  # keeps ceil(t * n) from counting one too many where t * n is whole but for rounding


@dataclass(frozen=True)
class Pairs:
    """Pairs of documents, as positions, with a similarity each. Those of an exhaustive comparison are ordered by the
    newer document (`second`), then by the older one (`first`)."""

    first: NDArray[np.int64]
    second: NDArray[np.int64]
    similarity: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.first)

    def take(self, places: NDArray[np.int64]) -> Pairs:
        return Pairs(self.first[places], self.second[places], self.similarity[places])


@dataclass(frozen=True)
class Ranked:
    """Documents as sorted shingle ranks: rank 0 is the rarest shingle of all, equally rare ones in any fixed order."""

    ranks: NDArray[np.int32]  # [total], ascending within a document
    offsets: NDArray[np.int64]  # [n + 1]
    distinct: int  # number of different shingles

    def similarities(self, first: NDArray[np.int64], second: NDArray[np.int64]) -> NDArray[np.float64]:
        """Jaccard of given pairs of documents, float64 [len(first)]; of two documents without shingles 0."""
        return np.asarray(_compare(self.ranks, self.offsets, first, second))

    @classmethod
    def of(cls, shingles: NDArray[np.uint64], offsets: NDArray[np.int64]) -> Ranked:
        """Rank the distinct 64-bit shingle hashes `shingles[offsets[i]:offsets[i+1]]` of each document i.

        Takes some 40 bytes a shingle while it works and 4 afterwards.
        """
        _, numbers, frequencies = np.unique(shingles, return_inverse=True, return_counts=True)
        rank_of = np.empty(len(frequencies), dtype=np.int32)
        rank_of[np.argsort(frequencies, kind="stable")] = np.arange(len(frequencies), dtype=np.int32)
        offsets = np.ascontiguousarray(offsets, dtype=np.int64)
        ranks = rank_of[numbers]
        for document in range(len(offsets) - 1):
            ranks[offsets[document] : offsets[document + 1]].sort()
        return cls(ranks, offsets, len(frequencies))


class Exhaustive(ABC):
    """The comparison of all documents with all older ones.

    Args:
        total: number of documents.
        workers: threads among which `run` shares the documents, which are independent of each other.
    """

    CHUNK = 1024  # documents compared between two reports of progress
    SHARE = 1.0  # time that a document takes in `run`, as a share of its time in a sample

    def __init__(self, total: int, workers: int = 1) -> None:
        self._total = total
        self._workers = max(1, workers)

    def run(self, progress: Callable[[int, int], None] | None = None) -> Pairs:
        """All pairs. `progress` is called with documents done and documents in all."""
        numbers = np.arange(self._total)
        chunks = [numbers[start : start + self.CHUNK] for start in range(0, self._total, self.CHUNK)]
        parts = [Pairs(numbers[:0], numbers[:0], np.empty(0))]
        with ThreadPoolExecutor(self._workers) as pool:
            found = (pool.map if self._workers > 1 else map)(self._compare, chunks)
            for chunk, part in zip(chunks, found, strict=True):
                parts.append(part)
                if progress is not None:
                    progress(int(chunk[-1]) + 1, self._total)
        first, second = (np.concatenate([getattr(part, name) for part in parts]) for name in ("first", "second"))
        pairs = Pairs(first, second, np.concatenate([part.similarity for part in parts]))
        return pairs.take(np.lexsort((first, second)))

    def seconds(self) -> float:
        """How long `run` will take, from timing about 256 documents."""
        some = np.arange(0, self._total, max(1, self._total // 256))
        if len(some) == 0:
            return 0.0
        self._compare(some[:1])  # compiling is not what is timed
        began = time.perf_counter()
        self._compare(some)
        return self.SHARE * (time.perf_counter() - began) * self._total / len(some) / self._workers

    @abstractmethod
    def _compare(self, numbers: NDArray[np.int64]) -> Pairs:
        """The pairs of some documents, in any order."""


class AllPairs(Exhaustive):
    """All pairs with at least this Jaccard similarity, by an index of prefixes. None has a document without a shingle.

    The work grows with the pairs that share a rare shingle: quadratically, but with a small constant. Memory is some 30
    bytes a shingle and 24 a pair found.

    Raises:
        ValueError: the threshold is not above 0, or above 1.
    """

    def __init__(self, documents: Ranked, threshold: float, workers: int = 1) -> None:
        if not 0.0 < threshold <= 1.0:
            raise ValueError(f"threshold is {threshold:g}: set it above 0 and at most 1")
        super().__init__(len(documents.offsets) - 1, workers)
        self.documents = documents
        self.threshold = float(threshold)
        self._prefixes = _prefixes(documents, self.threshold)
        self._starts, self._postings = _index(documents, self._prefixes)

    def _compare(self, numbers: NDArray[np.int64]) -> Pairs:
        ranked, sizes = self.documents, np.diff(self.documents.offsets)
        *columns, found = _join(
            ranked.ranks, ranked.offsets, ranked.distinct, self._starts, self._postings, self._prefixes, self.threshold,
            numbers,
        )  # fmt: skip
        older, newer, overlaps = (column[:found] for column in columns)
        return Pairs(older, newer, overlaps / (sizes[older] + sizes[newer] - overlaps))


def _prefixes(documents: Ranked, threshold: float) -> NDArray[np.int64]:
    """How many of the rarest shingles of each document have one in common with those of every document in a pair."""
    sizes = np.diff(documents.offsets)
    least = np.ceil((threshold - _BEFORE_ROUNDING) * sizes).astype(np.int64)
    return np.asarray(np.minimum(sizes, sizes - least + 1))


def _index(documents: Ranked, prefixes: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """For each shingle the documents with it in their prefix, ascending: int64 [distinct + 1], int32 [postings]."""
    ends = np.cumsum(prefixes)
    numbers = np.repeat(np.arange(len(prefixes), dtype=np.int32), prefixes)
    places = np.arange(len(numbers)) + np.repeat(documents.offsets[:-1] - ends + prefixes, prefixes)
    ranks = documents.ranks[places]
    frequencies = np.bincount(ranks, minlength=documents.distinct)
    frequencies[frequencies == 1] = 0  # a shingle in one prefix only makes no candidate
    shared = frequencies[ranks] > 0
    order = np.argsort(ranks[shared], kind="stable")
    return np.concatenate(([0], np.cumsum(frequencies))), numbers[shared][order]


# These kernels do not call what numpy has for filling and copying: that takes longer to compile than they do.


@njit
def _at_least(threshold, size):  # type: ignore[no-untyped-def]
    """The smallest whole number that is at least threshold * size."""
    return np.int64(np.ceil((threshold - _BEFORE_ROUNDING) * size))


@njit(allocates=True)
def _join(ranks, offsets, distinct, starts, postings, prefixes, threshold, numbers):  # type: ignore[no-untyped-def]
    """Compare the documents `numbers` with all older ones: (older, newer, overlap) of the pairs, int64 each, and how
    many of them there are. The older ones of a document are in any order."""
    met = np.empty(len(offsets) - 1, dtype=np.int32)  # the document that met this one last
    for i in range(len(met)):
        met[i] = -1
    marks = np.zeros(distinct, dtype=np.uint8)
    candidates = np.empty(len(offsets) - 1, dtype=np.int32)
    capacity = 1024
    older = np.empty(capacity, dtype=np.int64)
    newer = np.empty(capacity, dtype=np.int64)
    overlaps = np.empty(capacity, dtype=np.int64)
    found = 0
    for i in numbers:
        start, stop = offsets[i], offsets[i + 1]
        size = stop - start
        count = 0
        for p in range(start, start + prefixes[i]):
            for q in range(starts[ranks[p]], starts[ranks[p] + 1]):
                j = postings[q]
                if j >= i:
                    break
                if met[j] != i:
                    met[j] = i
                    other = offsets[j + 1] - offsets[j]
                    if min(size, other) >= _at_least(threshold, max(size, other)):
                        candidates[count] = j
                        count += 1
        if count == 0:
            continue
        if found + count > capacity:
            capacity = max(2 * capacity, found + count)
            older = _grown(older, capacity)
            newer = _grown(newer, capacity)
            overlaps = _grown(overlaps, capacity)
        for p in range(start, stop):
            marks[ranks[p]] = 1
        for c in range(count):
            j = candidates[c]
            shared = 0
            for q in range(offsets[j], offsets[j + 1]):
                shared += marks[ranks[q]]
            # The very division the result holds, so that a pair is in if and only if its similarity says so.
            if shared / (size + offsets[j + 1] - offsets[j] - shared) >= threshold:
                older[found] = j
                newer[found] = i
                overlaps[found] = shared
                found += 1
        for p in range(start, stop):
            marks[ranks[p]] = 0
    return older, newer, overlaps, found


@njit(allocates=True)
def _grown(array, capacity):  # type: ignore[no-untyped-def]
    result = np.empty(capacity, dtype=array.dtype)
    for i in range(len(array)):
        result[i] = array[i]
    return result


@njit(allocates=True)
def _compare(ranks, offsets, first, second):  # type: ignore[no-untyped-def]
    result = np.zeros(len(first), dtype=np.float64)
    for c in range(len(first)):
        i, j = offsets[first[c]], offsets[second[c]]
        i_end, j_end = offsets[first[c] + 1], offsets[second[c] + 1]
        union = i_end - i + j_end - j
        shared = 0
        while i < i_end and j < j_end:
            a, b = ranks[i], ranks[j]
            shared += a == b
            i += a <= b
            j += b <= a
        if union > 0:
            result[c] = shared / (union - shared)
    return result
