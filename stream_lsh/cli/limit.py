"""What reports on documents say alike: the threshold or distance that was asked for, and what was left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from stream_lsh.settings.model import Settings


def limit_of(settings: Settings) -> str:
    """`threshold 0.8`, `distance 3`."""
    curve = settings.curve
    return f"{'distance' if curve.by_distance else 'threshold'} {curve.asked:g}"


def asked_of(settings: Settings) -> dict[str, Any]:
    """The same for machines; with the measure, unless it is `jaccard`."""
    curve = settings.curve
    asked = {"max_distance" if curve.by_distance else "threshold": curve.asked}
    if settings.measure == "containment":
        return {"measure": settings.measure, "sampling": settings.sampled, **asked}
    if settings.measure == "jaccard":
        return asked
    dimensions = {"dimensions": settings.dimensions} if settings.dimensions is not None else {}
    return {"measure": settings.measure, **dimensions, **asked}


def excluded(rejected: Counter[str], repeated: int = 0) -> Iterator[str]:
    """Lines on the documents that are not in a report. rejected: by reason; repeated: their id was there before."""
    if rejected:
        yield f"rejected: {', '.join(f'{number:,} {reason}' for reason, number in rejected.most_common())}"
    if repeated:
        yield f"left out because an earlier document has their id: {repeated:,}"
