"""Locality-sensitive families and their amplification by AND and OR (MMDS 3.6); banding is one of r by AND, b by OR."""

from __future__ import annotations

import math
from dataclasses import dataclass


def amplify_and(probability: float, rows: int) -> float:
    """Collision probability where all of r functions must agree: p^r."""
    return float(probability**rows)


def amplify_or(probability: float, bands: int) -> float:
    """Collision probability where one of b functions is enough: 1 - (1 - p)^b, accurate for the smallest p."""
    return 1.0 if probability >= 1.0 else -math.expm1(bands * math.log1p(-probability))


def amplify(probability: float, bands: int, rows: int) -> float:
    """AND of r, then OR of b: 1 - (1 - p^r)^b, the curve of banding (MMDS 3.4.2)."""
    return amplify_or(amplify_and(probability, rows), bands)


def curve_threshold(bands: int, rows: int) -> float:
    """(1/b)^(1/r): about where the curve of b bands of r rows rises most steeply (MMDS 3.4.2)."""
    return float((1.0 / bands) ** (1.0 / rows))


@dataclass(frozen=True)
class Family:
    """(d1, d2, p1, p2)-sensitive: distance <= d1 collides with probability >= p1, distance >= d2 with <= p2."""

    d1: float
    d2: float
    p1: float
    p2: float

    def __post_init__(self) -> None:
        if not (self.d1 < self.d2 and 0 <= self.p2 <= self.p1 <= 1):
            raise ValueError(f"{self} must have d1 < d2 and 0 <= p2 <= p1 <= 1")

    def amplified(self, bands: int, rows: int) -> Family:
        """The family of b bands of r rows made from this one: the same distances, p -> 1 - (1 - p^r)^b."""
        return Family(self.d1, self.d2, amplify(self.p1, bands, rows), amplify(self.p2, bands, rows))


def minhash_family(d1: float, d2: float) -> Family:
    """Minhash for the Jaccard distance: (d1, d2, 1 - d1, 1 - d2)-sensitive (MMDS 3.6.2)."""
    return Family(d1, d2, 1.0 - d1, 1.0 - d2)


def hyperplane_family(d1: float, d2: float) -> Family:
    """Random hyperplanes for angles in degrees: (d1, d2, 1 - d1/180, 1 - d2/180)-sensitive (MMDS 3.7.2)."""
    return Family(d1, d2, 1.0 - d1 / 180.0, 1.0 - d2 / 180.0)
