"""What makes two documents alike, in the words of the settings: a threshold or a distance."""

from __future__ import annotations

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
