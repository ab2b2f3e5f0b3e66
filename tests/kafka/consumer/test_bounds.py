"""A broker that has just taken over may not know its end yet: whoever compares a position with it asks again."""

from collections.abc import Mapping

import pytest

from stream_lsh.kafka.consumer import position
from stream_lsh.kafka.consumer.position import LOOKS, bounds


@pytest.mark.parametrize("late", [0, 1, LOOKS - 1, LOOKS])
async def test_an_end_that_arrives_late(monkeypatch: pytest.MonkeyPatch, late: int) -> None:
    monkeypatch.setattr(position, "PAUSE", 0)
    asked = 0

    async def begins(places: list[str]) -> Mapping[str, int]:
        assert places == ["known", "new"]
        return {"known": 3, "new": 0}

    async def ends(_: list[str]) -> Mapping[str, int]:
        nonlocal asked
        asked += 1
        return {"known": 9 if asked > late else 4, "new": 0}

    found = await bounds(begins, ends, {"known": 7, "new": 0})
    assert found == {"known": (3, 9 if late < LOOKS else 4), "new": (0, 0)}
    assert asked == min(late + 1, LOOKS)
