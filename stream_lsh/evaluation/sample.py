"""A deterministic sample of documents, and how similar random pairs of them are: the background of a collection."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stream_lsh.evaluation.exact import Ranked
from stream_lsh.hashing.kernels import njit

BINS = 1000


@dataclass(frozen=True)
class Sample:
    """Some documents of a collection, in their order."""

    texts: bytes  # UTF-8, one after the other
    ends: NDArray[np.int64]  # [n] end of each in `texts`
    seen: int  # documents it was drawn from

    def __len__(self) -> int:
        return len(self.ends)

    def first(self, documents: int) -> Sample:
        """A smaller sample: evenly spaced documents of this one."""
        if documents >= len(self):
            return self
        return _joined([self.text(i * len(self) // documents) for i in range(documents)], self.seen)

    def text(self, number: int) -> bytes:
        return self.texts[int(self.ends[number - 1]) if number else 0 : int(self.ends[number])]


def draw(texts: Iterable[bytes], documents: int, most_bytes: int) -> Sample:
    """A uniform sample of up to `documents` texts and `most_bytes` bytes; the same texts give the same sample.

    Each place in the stream has a pseudorandom priority and the smallest are kept, so one pass is
    enough for any stream. Documents are dropped by priority only: long ones are as likely as short ones.
    """
    kept: list[tuple[int, int, bytes]] = []  # (-priority, place, text): a heap with the largest priority on top
    cut = 1 << 64  # priorities from here on were dropped once and stay out
    size = 0
    seen = 0
    for place, text in enumerate(texts):
        seen += 1
        priority = _priority(place)
        if priority >= cut:
            continue
        heapq.heappush(kept, (-priority, place, text))
        size += len(text)
        while len(kept) > documents or (size > most_bytes and len(kept) > 2):
            negative, _, dropped = heapq.heappop(kept)
            cut = -negative
            size -= len(dropped)
    return _joined([text for _, _, text in sorted(kept, key=lambda item: item[1])], seen)


@dataclass(frozen=True)
class Background:
    """How similar the pairs of a sample are: a histogram of Jaccard, bin i from i / 1000, the last one s = 1."""

    counts: NDArray[np.int64]  # [1001] pairs
    similarity: NDArray[np.float64]  # [1001] sum of their Jaccard similarities
    containment: NDArray[np.float64]  # [1001] sum of the shares of one's shingles that the other has, mean of both ways

    @property
    def pairs(self) -> int:
        return int(self.counts.sum())

    def histogram(self) -> Iterator[tuple[float, float]]:
        """(mean similarity of a bin, pairs in it), bins without pairs left out."""
        for number in np.flatnonzero(self.counts):
            yield float(self.similarity[number] / self.counts[number]), float(self.counts[number])

    def binned(self, reach: float = 1.0) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Pairs in 50 even bins from 0 to 1, and the middles of those."""
        counts = self.counts[:1000].reshape(50, 20).sum(axis=1)
        counts[-1] += self.counts[1000]
        return counts, (np.arange(50) + 0.5) / 50 * reach

    def mean(self, below: float) -> float:
        """Mean similarity of the pairs below a similarity: near-duplicates are not the background."""
        pairs = self.counts[: _bin(below)].sum()
        return float(self.similarity[: _bin(below)].sum() / pairs) if pairs else 0.0

    def typical_chance(self, share: float = 0.9) -> float:
        """P(a random shingle of a random document is in another one), what k must make small (MMDS 3.2.2), over the
        least similar pairs alone, this share of all: versions of one page say nothing about k."""
        if self.pairs == 0:
            return 0.0
        last = int(np.searchsorted(np.cumsum(self.counts), share * self.pairs)) + 1
        return float(self.containment[:last].sum() / self.counts[:last].sum())

    def quantile(self, share: float, below: float = 1.0) -> float:
        """The similarity that this share of the pairs (those below `below`) does not exceed, to a bin's width."""
        counts = self.counts[: _bin(below)]
        if counts.sum() == 0:
            return 0.0
        number = int(np.searchsorted(np.cumsum(counts), share * counts.sum()))
        return float(self.similarity[number] / self.counts[number]) if self.counts[number] else 0.0

    def alike(self, similarity: float) -> int:
        """Pairs of at least this similarity (a whole multiple of 1/1000)."""
        return int(self.counts[_bin(similarity) :].sum())


def background(documents: Ranked) -> Background:
    """Compare all pairs of the documents, exactly; documents without a shingle are left out."""
    frequencies = np.bincount(documents.ranks, minlength=documents.distinct)
    frequencies[frequencies == 1] = 0  # a shingle of one document is shared by none
    starts = np.concatenate(([0], np.cumsum(frequencies)))
    return Background(*_all_pairs(documents.ranks, documents.offsets, starts))


def _bin(similarity: float) -> int:
    return min(BINS + 1, int(np.ceil(similarity * BINS - 1e-9)))


def _joined(texts: list[bytes], seen: int) -> Sample:
    return Sample(b"".join(texts), np.cumsum([len(text) for text in texts], dtype=np.int64), seen)


def _priority(place: int) -> int:
    """A permutation of the 64-bit numbers (splitmix64, Steele, Lea, Flood, OOPSLA 2014), so that no two are equal."""
    value = (place * 0x9E3779B97F4A7C15 + 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
    return value ^ (value >> 31)


@njit(allocates=True)
def _all_pairs(ranks, offsets, starts):  # type: ignore[no-untyped-def]
    """Histogram of all pairs by counting, shingle for shingle, how often older documents are met. starts: where the
    documents of each shingle begin in a list of all."""
    documents = len(offsets) - 1
    ends = starts[:-1].copy()
    postings = np.empty(starts[-1], dtype=np.int32)
    shared = np.zeros(documents, dtype=np.int32)
    counts = np.zeros(BINS + 1, dtype=np.int64)
    similarity = np.zeros(BINS + 1, dtype=np.float64)
    containment = np.zeros(BINS + 1, dtype=np.float64)
    older = 0  # documents before this one that have a shingle
    for i in range(documents):
        size = offsets[i + 1] - offsets[i]
        if size == 0:
            continue
        for p in range(offsets[i], offsets[i + 1]):
            rank = ranks[p]
            if starts[rank] < starts[rank + 1]:
                for q in range(starts[rank], ends[rank]):
                    shared[postings[q]] += 1
                postings[ends[rank]] = i
                ends[rank] += 1
        met = 0
        for j in range(i):
            common = shared[j]
            if common > 0:
                shared[j] = 0
                met += 1
                other = offsets[j + 1] - offsets[j]
                jaccard = common / (size + other - common)
                number = int(jaccard * BINS)
                counts[number] += 1
                similarity[number] += jaccard
                containment[number] += 0.5 * (common / size + common / other)
        counts[0] += older - met
        older += 1
    return counts, similarity, containment
