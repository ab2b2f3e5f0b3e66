"""Shingles and minhash as the book tells them (MMDS 3.2, 3.3): the readable reference, and the tests' oracle.

Nothing here is fast. The engine signs with `signer`; this says what that must agree with.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any


def character_shingles(text: str, k: int) -> list[str]:
    """Every k consecutive characters, in order and with repetitions (MMDS 3.2.1); the whole text if it has fewer."""
    return [text[i : i + k] for i in range(len(text) - k + 1)] or [text]


def word_shingles(tokens: Sequence[str], k: int) -> list[tuple[str, ...]]:
    """Every k consecutive tokens, in order and with repetitions (MMDS 3.2.4); all of them if they are fewer."""
    return [tuple(tokens[i : i + k]) for i in range(len(tokens) - k + 1)] or [tuple(tokens)]


def jaccard(first: AbstractSet[Any], second: AbstractSet[Any]) -> float:
    """|A & B| / |A | B| (MMDS 3.1.1); two empty sets have nothing in common: 0."""
    union = len(first | second)
    return len(first & second) / union if union else 0.0


def as_bag(shingles: Iterable[Hashable]) -> set[tuple[Hashable, int]]:
    """A bag as a set: each shingle with the number of its occurrence.

    The Jaccard of these sets is sum of minima / sum of maxima of the counts. (MMDS 3.1.3 divides by the sum of the
    sizes instead, so that a bag has 1/2 with itself.)
    """
    seen: Counter[Hashable] = Counter()
    bag = set()
    for shingle in shingles:
        bag.add((shingle, seen[shingle]))
        seen[shingle] += 1
    return bag


def minhash_by_permutation(columns: Sequence[AbstractSet[int]], permutation: Sequence[int]) -> list[int]:
    """A row of the signature matrix (MMDS 3.3.2): for each column (a set of rows, from 0) the smallest permuted number.

    permutation: the number of each row.
    """
    return [min(permutation[row] for row in column) for column in columns]


@dataclass(frozen=True)
class UniversalHash:
    """h(x) = ((a x + b) mod p) mod N (Carter and Wegman 1979; MMDS 3.3.5 uses it with p = N)."""

    a: int
    b: int
    p: int
    n: int

    def __call__(self, x: int) -> int:
        return (self.a * x + self.b) % self.p % self.n


def minhash_one_pass(matrix: Sequence[Sequence[int]], hashes: Sequence[UniversalHash]) -> Iterator[list[list[float]]]:
    """The signature matrix after each row of the characteristic matrix (MMDS 3.3.5).

    Args:
        matrix: rows of 0 and 1, a column for each set.
        hashes: hash functions of the row's number, from 0.
    Yields:
        a list for each hash function with a value for each set, infinity where no element was met yet.
    """
    signature = [[float("inf")] * len(matrix[0]) for _ in hashes]
    for number, row in enumerate(matrix):
        values = [h(number) for h in hashes]
        for component, value in zip(signature, values, strict=True):
            for column, present in enumerate(row):
                if present:
                    component[column] = min(component[column], value)
        yield [list(component) for component in signature]


def agreement(first: Sequence[float], second: Sequence[float]) -> float:
    """The share of components in which two signatures agree: estimates the Jaccard similarity (MMDS 3.3.3)."""
    return sum(x == y for x, y in zip(first, second, strict=True)) / len(first)
