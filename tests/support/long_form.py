"""What runs when: quick tests with the README's command, long ones in the gate (.ci/run), all forms in `make nightly`.

A property has many cases: seeds, combinations, schedules. The gate runs a share of them, another one for each commit
(STREAM_LSH_ROTATION, which .ci/run takes from the commit). STREAM_LSH_LONG=1 runs all, with more documents.
STREAM_LSH_FIRST_SEED is the first seed of the simulations; the others follow it (default: 0).
"""

import os
from collections.abc import Collection, Iterable, Sequence
from itertools import product
from typing import Any

import pytest

LONG = bool(os.environ.get("STREAM_LSH_LONG"))
ROTATION = int(os.environ.get("STREAM_LSH_ROTATION") or 0)
FIRST_SEED = int(os.environ.get("STREAM_LSH_FIRST_SEED") or 0)
only_long = pytest.mark.skipif(not LONG, reason="STREAM_LSH_LONG is not set")


def rotating(cases: Iterable[Any], share: int) -> list[Any]:
    """Cases for parametrize (also tuples, `pytest.param`), as long tests: the gate runs `share`, others each commit."""
    given = [case if isinstance(case, type(pytest.param())) else _param(case) for case in cases]
    chosen = {(ROTATION * share + number) % len(given) for number in range(min(share, len(given)))}
    return [
        pytest.param(
            *case.values, id=case.id, marks=[*case.marks, pytest.mark.long, *([] if place in chosen else [only_long])]
        )
        for place, case in enumerate(given)
    ]


def seeds(quick: int, long: int, most: int) -> list[Any]:
    """Seeds from 0 on: the first `quick` for the README's command; of all others to `most` the gate runs as many as
    make `long` in all."""
    return [*range(quick), *rotating(range(quick, most), long - quick)]


def pairwise(*varied: Collection[object]) -> list[Any]:
    """All combinations; the gate runs every other one of them, the odd or the even ones. Any two values meet in each
    half, as long as three or more things are varied."""
    return [
        pytest.param(
            *(value for _, value in case),
            marks=[pytest.mark.long, *([only_long] if (sum(place for place, _ in case) + ROTATION) % 2 else [])],
        )
        for case in product(*map(enumerate, varied))
    ]


def _param(case: Any) -> Any:
    return pytest.param(*case) if isinstance(case, Sequence) and not isinstance(case, str) else pytest.param(case)
