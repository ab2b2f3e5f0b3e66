"""Shingles and minhash as the book tells them (MMDS 3.2, 3.3): the readable reference.

Nothing here is fast. The engine signs with `signer`; this says what that must agree with.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from typing import Any


def character_shingles(text: str, k: int) -> list[str]:
    """Every k consecutive characters, in order and with repetitions (MMDS 3.2.1); the whole text if it has fewer."""
    return [text[i : i + k] for i in range(len(text) - k + 1)] or [text]


def word_shingles(tokens: Sequence[str], k: int) -> list[tuple[str, ...]]:
    """Every k consecutive tokens, in order and with repetitions (MMDS 3.2.1); all of them if they are fewer."""
    return [tuple(tokens[i : i + k]) for i in range(len(tokens) - k + 1)] or [tuple(tokens)]


def jaccard(first: AbstractSet[Any], second: AbstractSet[Any]) -> float:
    """|A & B| / |A | B| (MMDS 3.1.1); two empty sets have nothing in common: 0."""
    union = len(first | second)
    return len(first & second) / union if union else 0.0


def as_bag(shingles: Iterable[Hashable]) -> set[tuple[Hashable, int]]:
    """A bag as a set: each shingle with the number of its occurrence (Jaccard: sum of minima / sum of maxima)."""
    seen: Counter[Hashable] = Counter()
    bag = set()
    for shingle in shingles:
        bag.add((shingle, seen[shingle]))
        seen[shingle] += 1
    return bag
