"""The newsroom of the demo: vocabulary and sentence templates of each desk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from stream_lsh.demo.story import Desk, Topic
from stream_lsh.demo.texts import read

POOLS: Mapping[str, Sequence[str]] = read("names")
"""People, places and days of the English desks, all made up; where one exists, it is by chance."""
TOWNS = POOLS["town"]


def _desk(file: str) -> Desk:
    found: dict[str, Any] = {"pools": POOLS, **read(file)}
    return Desk(**{**found, "topics": tuple(Topic(**topic) for topic in found["topics"])})


ENGLISH = tuple(map(_desk, ("politics", "business", "sport", "science", "weather", "local", "culture")))
OTHERS = tuple(map(_desk, ("de", "fr", "es", "zh", "ja", "ar", "hi")))
NOTICES = _desk("notices")
"""A few words of their own inside a form that is always the same."""
