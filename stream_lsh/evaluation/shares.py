"""Shares, odds and small numbers as a person reads them."""

from __future__ import annotations


def percent(share: float) -> str:
    """`12 %`, `0.52 %`, `99.92 %`: two digits of what is there, or of what is missing."""
    value = 100 * share
    if value == 0 or value == 100:
        return f"{value:.0f} %"
    if min(value, 100 - value) < 0.001:
        return "< 0.001 %" if value < 50 else "> 99.999 %"
    if 10 <= value <= 90:
        return f"{value:.0f} %"
    digits = 1
    while digits < 3 and min(value, 100 - value) < 10 ** (1 - digits):
        digits += 1
    return f"{value:.{digits}f} %"


def few(count: float) -> str:
    """`1,234`, `3.2`, `0.012`: a number of false candidates, two digits where it is small."""
    if count == 0:
        return "0"
    if count < 0.001:
        return "< 0.001"
    return f"{count:,.0f}" if count >= 100 else f"{count:.2g}"


def odds(part: int, whole: int) -> str:
    """`1 in 1,234`, `12 %`, `none`."""
    if part == 0 or whole == 0:
        return "none"
    return percent(part / whole) if part * 100 >= whole else f"1 in {whole / part:,.0f}"
