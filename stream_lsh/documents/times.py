"""Event times: numbers and ISO 8601 strings to milliseconds since 1970."""

from __future__ import annotations

import math
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

NO_TIME = int(np.iinfo(np.int64).min)
"""Stands in a column of times for a document without one."""

MILLISECONDS_FROM = 100_000_000_000
"""Numbers from here on are milliseconds, smaller ones seconds (as seconds it would be the year 5138)."""

LAST_TIME = 7_258_118_400_000
"""2200-01-01: from here on, as before 1970, a time is taken for a mistake."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_KINDS: dict[type, str] = {type(None): "null", bool: "a boolean", list: "a list", dict: "an object"}


def milliseconds(value: object) -> int:
    """Milliseconds since 1970 of a number (seconds, or milliseconds from 1e11 on) or an ISO 8601 string.

    A string without a zone is UTC. Raises ValueError, with the sentence for the dead letter, if it is neither, or
    outside the years 1970 to 2199.
    """
    if isinstance(value, str):
        time = _from_iso(value)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"the time {value} is not finite")
        time = math.floor(value) if value >= MILLISECONDS_FROM else math.floor(value * 1000)
    else:
        kind = _KINDS.get(type(value), type(value).__name__)
        raise ValueError(f"the time is neither a number nor an ISO 8601 string but {kind}")
    if not 0 <= time < LAST_TIME:
        shown = repr(value)
        raise ValueError(f"the time {shown[:40]} is not in the years 1970 to 2199")
    return time


def _from_iso(text: str) -> int:
    # fromisoformat takes any character between date and time, so a long number could pass for a date.
    if text.isdigit() and len(text) != 8:
        raise ValueError(f"the time {text[:40]!r} is not ISO 8601 (a number would have to stand without quotes)")
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"the time {text[:40]!r} is not ISO 8601") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    since = moment - _EPOCH
    return since.days * 86_400_000 + since.seconds * 1000 + since.microseconds // 1000


def whole_milliseconds(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """`milliseconds` of many integers at once; NO_TIME where it would raise."""
    times = np.where(values >= MILLISECONDS_FROM, values, values * 1000)
    in_range = (values >= 0) & (values < LAST_TIME) & (times < LAST_TIME)
    return np.where(in_range, times, NO_TIME)
