"""The newsroom of the demo: vocabulary and sentence templates of each desk, written for this project."""

from __future__ import annotations

from stream_lsh.demo.desks import business, culture, languages, local, politics, science, sport, weather
from stream_lsh.demo.story import Desk

ENGLISH: tuple[Desk, ...] = (
    politics.DESK, business.DESK, sport.DESK, science.DESK, weather.DESK, local.DESK, culture.DESK,
)  # fmt: skip
OTHERS: tuple[Desk, ...] = languages.DESKS
