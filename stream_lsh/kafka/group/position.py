"""Where partitions begin and end, for who has read them up to some position."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

LOOKS, PAUSE = 5, 0.5  # how often it is looked for an end, and the seconds in between

Place = TypeVar("Place")
Bounds = tuple[int, int]
"""Offset of the first record that is there, and behind the last."""


async def bounds(
    ask: Callable[[], Awaitable[Mapping[Place, Bounds]]], positions: Mapping[Place, int]
) -> Mapping[Place, Bounds]:
    """What `ask` gives, once it is not before one of the positions any more: a broker that has just taken over may not
    know its end yet. What stays behind them for two seconds is what there is.

    positions: those that are known, by place.
    """
    found = await ask()
    for _ in range(1, LOOKS):
        if all(positions.get(place, 0) <= end for place, (_, end) in found.items()):
            break
        await asyncio.sleep(PAUSE)
        found = await ask()
    return found
