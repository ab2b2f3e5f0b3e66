"""The distances of MMDS 3.5, plainly written."""

import math
from collections.abc import Mapping, Sequence
from typing import Any


def weighted_jaccard(first: Mapping[str, float], second: Mapping[str, float]) -> float:
    """Sum of the smaller weights by that of the larger ones, of sets whose elements have weights."""
    every = {*first, *second}
    return math.fsum(min(first.get(x, 0), second.get(x, 0)) for x in every) / math.fsum(
        max(first.get(x, 0), second.get(x, 0)) for x in every
    )


def euclidean_distance(first: Sequence[float], second: Sequence[float]) -> float:
    """The length of the difference of two vectors (MMDS 3.5.2). ValueError unless they have as many components."""
    return math.sqrt(math.fsum((x - y) ** 2 for x, y in zip(first, second, strict=True)))


def cosine_distance(first: Sequence[float], second: Sequence[float]) -> float:
    """The angle between two vectors in degrees, 0..180 (MMDS 3.5.4); ValueError if one has the length 0."""
    product = math.fsum(x * y for x, y in zip(first, second, strict=True))
    lengths = math.hypot(*first) * math.hypot(*second)
    if lengths == 0:
        raise ValueError("a vector of length 0 has no angle with any other")
    return math.degrees(math.acos(min(1.0, max(-1.0, product / lengths))))


def longest_common_subsequence(first: Sequence[Any], second: Sequence[Any]) -> int:
    """Its length, by dynamic programming in O(|x| |y|) time and O(|y|) memory."""
    above = [0] * (len(second) + 1)
    for x in first:
        row = [0]
        for place, y in enumerate(second):
            row.append(above[place] + 1 if x == y else max(above[place + 1], row[place]))
        above = row
    return above[-1]


def edit_distance(first: Sequence[Any], second: Sequence[Any]) -> int:
    """Insertions and deletions that turn one string into the other: |x| + |y| - 2 LCS(x, y) (MMDS 3.5.5)."""
    return len(first) + len(second) - 2 * longest_common_subsequence(first, second)


def levenshtein_distance(first: Sequence[Any], second: Sequence[Any]) -> int:
    """The same where replacing one for another is one step, too."""
    above = list(range(len(second) + 1))
    for i, x in enumerate(first, 1):
        row = [i]
        for j, y in enumerate(second, 1):
            row.append(min(above[j] + 1, row[j - 1] + 1, above[j - 1] + (x != y)))
        above = row
    return above[-1]


def hamming_distance(first: Sequence[Any], second: Sequence[Any]) -> int:
    """The number of places in which two vectors differ (MMDS 3.5.6). ValueError unless they have as many."""
    return sum(x != y for x, y in zip(first, second, strict=True))
