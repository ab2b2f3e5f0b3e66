"""The truth about short texts: every pair whose lengths allow it is compared, by the very function that the engine
has."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stream_lsh.evaluation.exact import ExactPairs
from stream_lsh.evaluation.items import ItemBackground
from stream_lsh.evaluation.timing import seconds_of
from stream_lsh.families.distances import MOST_COUNTED, edits
from stream_lsh.hashing.kernels import njit

_BLOCK = 256  # texts that are compared with all others between two words on progress


@dataclass(frozen=True)
class ShortTexts:
    """Texts by position. points: uint64, their code points, as `EditSigner.shingle` makes them; text i has
    points[offsets[i]:offsets[i + 1]]. salts: uint64[n], equal where two may match."""

    points: NDArray[np.uint64]
    offsets: NDArray[np.int64]
    salts: NDArray[np.uint64]

    def __len__(self) -> int:
        return len(self.salts)

    def similarities(self, first: NDArray[np.int64], second: NDArray[np.int64]) -> NDArray[np.float64]:
        """Similarity of given pairs, as verdicts have it: float64[len(first)]; 0 where two are not to match, or have
        more than MOST_COUNTED edits between them."""
        found = np.empty(len(first), np.int64)
        _compare(self.points, self.offsets, first, second, MOST_COUNTED, found)
        return np.where((found <= MOST_COUNTED) & (self.salts[first] == self.salts[second]), 1.0 / (1.0 + found), 0.0)

    def background(self, most: int) -> ItemBackground:
        """How many edits the pairs are apart; infinitely many where they are more than `most`."""
        counts = np.zeros(most + 2, np.int64)
        _count(self.points, self.offsets, most, counts)
        return ItemBackground(np.append(np.arange(most + 1, dtype=np.float64), np.inf), counts, by_distance=True)


class EveryText:
    """The comparison of all texts with all older ones, as `exact.AllPairs` does it for copies. most: edits up to which
    a pair counts."""

    def __init__(self, texts: ShortTexts, most: int) -> None:
        self.texts, self.most = texts, most

    def run(self, *, progress: Callable[[int, int], None] | None = None) -> ExactPairs:
        """All pairs within so many edits, by newer, then older text. The time grows with the square of the texts,
        memory with the pairs found. `progress` is called with texts done and texts in all."""
        texts, sizes = self.texts, np.diff(self.texts.offsets)
        order = np.argsort(sizes, kind="stable")
        parts = []
        for begin in range(0, len(order), _BLOCK):
            parts.append(_near(texts.points, texts.offsets, texts.salts, order, begin, begin + _BLOCK, self.most))
            if progress is not None:
                progress(min(begin + _BLOCK, len(order)), len(order))
        found = np.concatenate([np.empty((0, 3), np.int64), *parts])
        found = found[np.lexsort((found[:, 0], found[:, 1]))]
        return ExactPairs(found[:, 0].copy(), found[:, 1].copy(), 1.0 / (1.0 + found[:, 2]))

    def seconds(self) -> float:
        """How long `run` will take, from timing some."""
        texts = self.texts
        return seconds_of(
            texts.points, texts.offsets, lambda points, offsets, chosen:
            EveryText(ShortTexts(points, offsets, texts.salts[chosen]), self.most).run(),
        )  # fmt: skip


@njit(allocates=True)
def _near(points, offsets, salts, order, begin, end, most):  # type: ignore[no-untyped-def]
    """Of the texts order[begin:end], from short to long, the pairs with longer ones: (older, newer, edits)."""
    found, n = np.empty((256, 3), np.int64), 0
    scratch = np.empty((2 * most + 3, 2), np.uint64)
    for i in range(begin, min(end, len(order))):
        one = order[i]
        size = offsets[one + 1] - offsets[one]
        for j in range(i + 1, len(order)):
            other = order[j]
            length = offsets[other + 1] - offsets[other]
            if length - size > most:
                break
            if salts[one] != salts[other] or size == 0:
                continue
            apart = edits(points, offsets[one], size, points, offsets[other], length, most, scratch)
            if apart <= most:
                if n == len(found):
                    found = np.concatenate((found, np.empty_like(found)))
                found[n, 0], found[n, 1], found[n, 2] = min(one, other), max(one, other), apart
                n += 1
    return found[:n].copy()


@njit(allocates=True)
def _compare(points, offsets, first, second, most, out):  # type: ignore[no-untyped-def]
    scratch = np.empty((2 * most + 3, 2), np.uint64)
    for k in range(len(first)):
        a, b = offsets[first[k]], offsets[second[k]]
        size, length = offsets[first[k] + 1] - a, offsets[second[k] + 1] - b
        out[k] = edits(points, a, size, points, b, length, most, scratch)


@njit(allocates=True)
def _count(points, offsets, most, counts):  # type: ignore[no-untyped-def]
    scratch = np.empty((2 * most + 3, 2), np.uint64)
    for i in range(len(offsets) - 1):
        for j in range(i):
            a, b = offsets[i], offsets[j]
            counts[edits(points, a, offsets[i + 1] - a, points, b, offsets[j + 1] - b, most, scratch)] += 1
