"""Exact distances of vectors, bit vectors and texts (MMDS 3.5). Vectors are given as the bits of float64, texts as code
points.

Sums are computed in four strands, always in the same order. The result is then equal on all machines, and the cosine of
a vector with itself is 1.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from stream_lsh.families.measure import MEASURES
from stream_lsh.hashing.bits import float_of, popcount
from stream_lsh.hashing.kernels import njit

JACCARD, COSINE, EUCLIDEAN, HAMMING, LEVENSHTEIN, CONTAINMENT, TF_IDF, WEIGHTED_JACCARD = map(
    np.int64, range(len(MEASURES))
)

MOST_COUNTED = 256
"""Most edits between two texts that are counted; the time is quadratic in them."""


@njit
def similarity_of(measure, one, at, other, start, size, dimensions):  # type: ignore[no-untyped-def]
    """Similarity, as in verdicts, of the items one[at:at + size] and other[start:start + size]."""
    if measure == COSINE:
        return cosine(one, at, other, start, size)
    if measure == EUCLIDEAN:
        return 1.0 / (1.0 + euclidean(one, at, other, start, size))
    return 1.0 - hamming(one, at, other, start, size) / dimensions


def similarity(measure: str, one: NDArray[np.uint64], other: NDArray[np.uint64], dimensions: int) -> float:
    """Similarity of two items or short texts, given as words of their signer's `shingle`. Texts with more than
    MOST_COUNTED edits between them have similarity 0."""
    if measure == "levenshtein":
        scratch = np.empty((2 * MOST_COUNTED + 3, 2), np.uint64)
        found = edits(one, 0, len(one), other, 0, len(other), MOST_COUNTED, scratch)
        return 1 / (1 + int(found)) if found <= MOST_COUNTED else 0.0
    if measure == "weighted-jaccard":
        return float(weighted_jaccard(one, 0, len(one), other, 0, len(other)))
    if len(one) != len(other) or not len(one):
        return 0.0
    number = np.int64(MEASURES.index(measure))
    return float(similarity_of(number, one, 0, other, 0, len(one), dimensions))


@njit
def cosine(one, at, other, start, size):  # type: ignore[no-untyped-def]
    """Cosine of one[at:at + size] and other[start:start + size], neither of which is zero (MMDS 3.5.4)."""
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
def edits(one, at, size, other, start, length, most, scratch):  # type: ignore[no-untyped-def]
    """Levenshtein distance of the texts one[at:at + size] and other[start:start + length], in inserted, deleted or
    replaced characters (MMDS 3.5.5, with replacing); most + 1 if it is more than `most`.

    The furthest place on each diagonal that 0, 1, 2, ... edits reach (Ukkonen 1985; Landau, Vishkin 1989): size steps
    and most^2. scratch: uint64[2 * most + 3 or more, 2].
    """
    goal, middle = length - size, most + 1
    if abs(goal) > most:
        return most + 1
    for k in range(2 * most + 3):
        scratch[k, 0] = scratch[k, 1] = 0  # places are counted from 1 on: none reached
    for spent in range(most + 1):
        now, before = spent & 1, 1 - (spent & 1)
        for diagonal in range(-spent, spent + 1):
            k, place = middle + diagonal, np.int64(1)
            if spent > 0:
                place = max(np.int64(scratch[k, before]), np.int64(scratch[k + 1, before])) + 1
                place = max(place, np.int64(scratch[k - 1, before]))
            place = min(place - 1, size, length - diagonal)
            if place < 0 or place + diagonal < 0:
                scratch[k, now] = 0
                continue
            while place < size and place + diagonal < length and one[at + place] == other[start + place + diagonal]:
                place += 1
            if diagonal == goal and place == size:
                return spent
            scratch[k, now] = place + 1
    return most + 1


@njit
def weighted_jaccard(one, at, size, other, start, length):  # type: ignore[no-untyped-def]
    """Weighted Jaccard similarity of the sets one[at:at + size] and other[start:start + length]: sum of the smaller
    weights by the sum of the larger ones; 0 if both are empty. A set is pairs of an element's hash, ascending, and its
    weight as the bits of a float64."""
    smaller = larger = 0.0
    i, j, end, stop = at, start, at + size, start + length
    while i < end or j < stop:
        if j >= stop or (i < end and one[i] < other[j]):
            larger += float_of(one[i + 1])
            i += 2
        elif i >= end or other[j] < one[i]:
            larger += float_of(other[j + 1])
            j += 2
        else:
            mine, theirs = float_of(one[i + 1]), float_of(other[j + 1])
            smaller += min(mine, theirs)
            larger += max(mine, theirs)
            i += 2
            j += 2
    return smaller / larger if larger > 0 else 0.0


@njit
def hamming(one, at, other, start, size):  # type: ignore[no-untyped-def]
    """Number of bits in which the words one[at:at + size] and other[start:start + size] differ (MMDS 3.5.6)."""
    different = np.uint64(0)
    for k in range(size):
        different += popcount(one[at + k] ^ other[start + k])
    return np.int64(different)
