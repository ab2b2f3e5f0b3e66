"""Intervals for shares that were found in samples.

Wilson's interval of a share, and the interval of a weighted sum of independent shares from theirs (Zou and Donner,
Statistics in Medicine 27, 2008: the method of variance estimates recovery).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import NamedTuple

CONFIDENCE = 0.95
_Z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)


class Estimate(NamedTuple):
    """A share, and its interval with CONFIDENCE. share: None if it is not known."""

    share: float | None
    low: float
    high: float


def wilson(hits: int, n: int) -> Estimate:
    """The share of which n random cases had so many hits."""
    if not n:
        return Estimate(None, 0.0, 1.0)
    share = hits / n
    middle, scale = share + _Z * _Z / (2 * n), 1 + _Z * _Z / n
    half = _Z * math.sqrt(share * (1 - share) / n + _Z * _Z / (4 * n * n))
    low = 0.0 if hits == 0 else (middle - half) / scale
    high = 1.0 if hits == n else (middle + half) / scale
    return Estimate(share, low, high)


def stratified(sizes: Sequence[int], parts: Sequence[Estimate]) -> Estimate:
    """The share in a whole of strata with so many documents. A stratum with documents, of which nothing is known, can
    have any share: then only the interval is known."""
    whole = sum(sizes)
    if not whole:
        return Estimate(None, 0.0, 1.0)
    known = [(size / whole, part) for size, part in zip(sizes, parts, strict=True) if part.share is not None]
    unknown = 1 - sum(weight for weight, _ in known)
    unknown = 0.0 if all(part.share is not None for size, part in zip(sizes, parts, strict=True) if size) else unknown
    share = sum(weight * (part.share or 0.0) for weight, part in known)
    below = math.sqrt(sum((weight * ((part.share or 0.0) - part.low)) ** 2 for weight, part in known))
    above = math.sqrt(sum((weight * (part.high - (part.share or 0.0))) ** 2 for weight, part in known))
    low, high = max(0.0, share - below), min(1.0, share + above + unknown)
    return Estimate(None if unknown else share, low, high)
