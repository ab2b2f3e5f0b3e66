"""The rank of a document by one of its fields, for `keep = "best"`."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from decimal import Decimal

from stream_lsh.documents.python_values import unboxed

LOWEST = -math.inf
"""The rank of a document whose field is missing, or has no rank."""


def rank_of(value: object, order: Sequence[str]) -> float:
    """The rank of a value.

    Args:
        order: the values that have a rank, the best first, an integer as its digits; empty: the value is a number, and
            the higher one is better.
    """
    value = unboxed(value)
    if isinstance(value, bool):
        return LOWEST
    if order:
        text = str(value) if isinstance(value, (str, int)) else None
        return -float(order.index(text)) if text in order else LOWEST
    if isinstance(value, str):  # a cell of a table
        return rank_of_json(value.encode("utf-8", "surrogatepass"), order) if not value.startswith('"') else LOWEST
    if not isinstance(value, (int, float, Decimal)):
        return LOWEST
    try:
        return LOWEST if math.isnan(value) else float(value)
    except OverflowError:  # an integer of more than 300 digits
        return math.inf if value > 0 else LOWEST


def rank_of_json(text: bytes, order: Sequence[str]) -> float:
    """The rank of a value that is written as JSON, b"" = it is missing."""
    try:
        return rank_of(json.loads(text), order)
    except (ValueError, RecursionError):
        return LOWEST
