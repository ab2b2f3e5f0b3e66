"""Recall and precision of reported pairs against the exact truth."""

from __future__ import annotations

import lzma
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

Pair = tuple[str, str]


@dataclass(frozen=True)
class Score:
    """Pairs in the truth, pairs reported, and how many are in both."""

    true: int
    reported: int
    right: int

    @property
    def recall(self) -> float:
        """Share of the true pairs that were reported; 1 if there are none."""
        return self.right / self.true if self.true else 1.0

    @property
    def precision(self) -> float:
        """Share of the reported pairs that are true; 1 if nothing was reported."""
        return self.right / self.reported if self.reported else 1.0


def ordered(one: str, other: str) -> Pair:
    """A pair in the one order of its ids in which pairs are compared here."""
    return (one, other) if one <= other else (other, one)


def read_truth(path: Path) -> dict[Pair, float]:
    """Jaccard of each pair of a truth file: lines of id, id, Jaccard, separated by tabs; .xz is unpacked."""
    data = path.read_bytes()
    text = (lzma.decompress(data) if path.suffix == ".xz" else data).decode()
    truth: dict[Pair, float] = {}
    for line in text.splitlines():
        one, other, similarity = line.split("\t")
        truth[ordered(one, other)] = float(similarity)
    return truth


def score(reported: Iterable[Pair], truth: dict[Pair, float], threshold: float, known: Collection[str]) -> Score:
    """Compare pairs with the truth, among the ids in `known` (all others are ignored on both sides).

    A pair reported twice, or once in either order, counts once.
    """
    true = {pair for pair, similarity in truth.items() if similarity >= threshold and _inside(pair, known)}
    found = {pair for pair in (ordered(*pair) for pair in reported) if _inside(pair, known)}
    return Score(len(true), len(found), len(true & found))


def _inside(pair: Pair, known: Collection[str]) -> bool:
    return pair[0] in known and pair[1] in known
