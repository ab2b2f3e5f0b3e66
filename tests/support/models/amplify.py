"""Amplification by AND and OR (MMDS 3.6): banding is one of r rows by AND, then one of b bands by OR."""

import math


def amplify(probability: float, bands: int, rows: int) -> float:
    """1 - (1 - p^r)^b, the curve of banding (MMDS 3.4.2), accurate for the smallest p."""
    one = probability**rows
    return 1.0 if one >= 1.0 else -math.expm1(bands * math.log1p(-one))
