"""Distances of vectors and of rows of bits, exactly (MMDS 3.5). Vectors are numbers as the bits of float64.

Sums are made in four strands, always the same way: the same two vectors are as near on every machine, and whoever is
compared with himself has a cosine of 1.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from stream_lsh.families.likeness import LIKENESSES
from stream_lsh.hashing.bits import float_of, popcount
from stream_lsh.hashing.kernels import njit

COPIES, COSINE, EUCLIDEAN, HAMMING = (np.int64(number) for number in range(len(LIKENESSES)))


@njit
def similarity_of(likeness, one, at, other, start, size, dimensions):  # type: ignore[no-untyped-def]
    """Similarity of the items one[at:at + size] and other[start:start + size], as verdicts have it."""
    if likeness == COSINE:
        return cosine(one, at, other, start, size)
    if likeness == EUCLIDEAN:
        return 1.0 / (1.0 + euclidean(one, at, other, start, size))
    return 1.0 - hamming(one, at, other, start, size) / dimensions


def similarity(likeness: str, one: NDArray[np.uint64], other: NDArray[np.uint64], dimensions: int) -> float:
    """Similarity of two items, given as the words that `ItemSigner.shingle` makes of them."""
    if len(one) != len(other) or not len(one):
        return 0.0
    number = np.int64(LIKENESSES.index(likeness))
    return float(similarity_of(number, one, 0, other, 0, len(one), dimensions))


@njit
def cosine(one, at, other, start, size):  # type: ignore[no-untyped-def]
    """Cosine of one[at:at + size] and other[start:start + size], neither of them zero (MMDS 3.5.4)."""
    squares = _product(one, at, one, at, size) * _product(other, start, other, start, size)
    return min(1.0, _product(one, at, other, start, size) / math.sqrt(squares))


@njit
def _product(one, at, other, start, size):  # type: ignore[no-untyped-def]
    a = b = c = d = 0.0
    whole = size - size % 4
    for k in range(0, whole, 4):
        a += float_of(one[at + k]) * float_of(other[start + k])
        b += float_of(one[at + k + 1]) * float_of(other[start + k + 1])
        c += float_of(one[at + k + 2]) * float_of(other[start + k + 2])
        d += float_of(one[at + k + 3]) * float_of(other[start + k + 3])
    for k in range(whole, size):
        a += float_of(one[at + k]) * float_of(other[start + k])
    return (a + b) + (c + d)


@njit
def euclidean(one, at, other, start, size):  # type: ignore[no-untyped-def]
    """Euclidean distance of one[at:at + size] and other[start:start + size] (MMDS 3.5.2)."""
    a = b = 0.0
    whole = size - size % 2
    for k in range(0, whole, 2):
        x = float_of(one[at + k]) - float_of(other[start + k])
        y = float_of(one[at + k + 1]) - float_of(other[start + k + 1])
        a += x * x
        b += y * y
    if whole < size:
        x = float_of(one[at + whole]) - float_of(other[start + whole])
        a += x * x
    return math.sqrt(a + b)


@njit
def hamming(one, at, other, start, size):  # type: ignore[no-untyped-def]
    """Bits in which the words one[at:at + size] and other[start:start + size] differ (MMDS 3.5.6)."""
    different = np.uint64(0)
    for k in range(size):
        different += popcount(one[at + k] ^ other[start + k])
    return np.int64(different)
