"""The long form of the tests, with STREAM_LSH_LONG=1: all documents, all combinations of what is varied."""

from __future__ import annotations

import os
from collections.abc import Collection
from itertools import product
from typing import Any

import pytest

LONG = bool(os.environ.get("STREAM_LSH_LONG"))
only_long = pytest.mark.skipif(not LONG, reason="STREAM_LSH_LONG is not set")


def pairwise(*varied: Collection[object]) -> list[Any]:
    """All combinations, as long tests; the short form takes every other one of them. Any two values meet in it, too,
    as long as there are three or more things that are varied."""
    return [
        pytest.param(
            *(value for _, value in case),
            marks=[pytest.mark.long, *([only_long] if sum(place for place, _ in case) % 2 else [])],
        )
        for case in product(*map(enumerate, varied))
    ]


def seeds(quick: int, long: int, most: int) -> list[Any]:
    """Seeds from 0 on: the first for the README's command, those before `long` for the long tests, all in the long
    form."""
    return [
        pytest.param(
            seed, marks=[] if seed < quick else [pytest.mark.long] if seed < long else [pytest.mark.long, only_long]
        )
        for seed in range(most)
    ]
