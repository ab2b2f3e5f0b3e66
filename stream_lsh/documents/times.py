"""Event times, from numbers and ISO 8601 strings to milliseconds since 1970; and durations."""

from __future__ import annotations

import math
import re
from datetime import UTC, date, datetime, timedelta

from stream_lsh.documents.python_values import unboxed

NO_TIME = -(2**63)
"""In a column of times (int64): the document has none."""

MILLISECONDS_FROM = 100_000_000_000
"""Numbers from here on are milliseconds, smaller ones seconds (as seconds it would be the year 5138)."""

LAST_TIME = 7_258_118_400_000
"""2200-01-01: a time from here on, or before 1970, is rejected as a mistake."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

UNITS = {"w": 604_800, "d": 86_400, "h": 3600, "m": 60, "s": 1}
"""Units of durations, in seconds."""
_ISO_DURATION = re.compile(r"P(?:(\d+)W)?(?:(\d+)D)?(?:T(?=\d)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)S)?)?", re.ASCII)

_KINDS: dict[type, str] = {type(None): "null", bool: "a boolean", list: "a list", dict: "an object"}


class NoTime(ValueError):
    """A value has a type that cannot be a time."""


def milliseconds(value: object) -> int:
    """Milliseconds since 1970 of a number (seconds, or milliseconds from 1e11 on), an ISO 8601 string, a `date`, a
    `datetime` or a `datetime64`. Without a zone it is UTC. A date is its first moment.

    Raises:
        ValueError: it is none of these (`NoTime`), or outside the years 1970 to 2199. The message is the detail of the
            dead letter.
    """
    value = unboxed(value)
    if isinstance(value, str):
        time = _since(_from_iso(value))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"the time {float(value)} is not finite")
        time = math.floor(value) if value >= MILLISECONDS_FROM else math.floor(value * 1000)
    elif isinstance(value, datetime):
        time = _since(value)
    elif isinstance(value, date):
        time = _since(datetime(value.year, value.month, value.day))
    elif type(value).__name__ == "datetime64":
        found = value.astype("datetime64[ms]").astype("int64").item()  # type: ignore[attr-defined]
        time = int(found)
        if time == NO_TIME:
            raise ValueError("the time is NaT, which is none")
    else:
        kind = _KINDS.get(type(value), type(value).__name__)
        raise NoTime(f"the time is neither a number nor an ISO 8601 string but {kind}")
    if not 0 <= time < LAST_TIME:
        shown = str(value) if not isinstance(value, str) else repr(value)
        raise ValueError(f"the time {shown[:40]} is not in the years 1970 to 2199")
    return time


def time_of(text: str) -> int:
    """Milliseconds since 1970 of a text: as `milliseconds`, where a number has no quotes, either.

    Raises:
        ValueError: as `milliseconds`.
    """
    number = text.isascii() and text.isdecimal() and len(text) != 8  # eight digits are a date
    return milliseconds(int(text[:20]) if number else text)


def _since(moment: datetime) -> int:
    """Milliseconds since 1970; a time without a zone is UTC."""
    since = (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)) - _EPOCH
    return since.days * 86_400_000 + since.seconds * 1000 + since.microseconds // 1000


def _from_iso(text: str) -> datetime:
    # fromisoformat allows any character between date and time: a long number would be taken for a date.
    if text.isdigit() and len(text) != 8:
        raise ValueError(f"the time {text[:40]!r} is not ISO 8601 (write a number without quotes)")
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"the time {text[:40]!r} is not ISO 8601") from None


def seconds_of(text: str) -> int:
    """Seconds of a duration: `90s`, `15m`, `12h`, `7d`, `2w`, or ISO 8601 without months and years (`P7D`, `PT12H`).

    Raises:
        ValueError: it is no duration, or shorter than a second.
    """
    number, unit = text[:-1], text[-1:]
    found = _ISO_DURATION.fullmatch(text)
    if unit in UNITS and number.isascii() and number.isdecimal():
        seconds = int(number) * UNITS[unit]
    elif found is not None:
        seconds = sum(int(part or 0) * size for part, size in zip(found.groups(), UNITS.values(), strict=True))
    else:
        raise ValueError(f"{text!r} is no duration: a number with s, m, h, d or w (7d), or ISO 8601 (P7D)")
    if not 0 < 1000 * seconds < LAST_TIME:
        raise ValueError(f"{text!r} is not between a second and 200 years")
    return seconds


def duration_of(seconds: int) -> str:
    """A duration in its largest unit up to a day, as `seconds_of` reads it."""
    unit = next(unit for unit, size in UNITS.items() if unit != "w" and seconds % size == 0)
    return f"{seconds // UNITS[unit]}{unit}"


def moment(time: int) -> str:
    """Milliseconds since 1970 as ISO 8601, to the second."""
    return (_EPOCH + timedelta(milliseconds=time)).strftime("%Y-%m-%dT%H:%M:%SZ")
