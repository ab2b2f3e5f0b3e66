"""Acknowledgements in order, for every order in which the sends are confirmed."""

from __future__ import annotations

import asyncio
from itertools import permutations

import pytest

from stream_lsh.kafka.match.acknowledger import Acknowledger


@pytest.mark.parametrize("order", list(permutations(range(5))))
def test_every_order_of_confirmation_acknowledges_in_order(order: tuple[int, ...]) -> None:
    given: list[int] = []
    acknowledger = Acknowledger(given.append)
    tickets = [acknowledger.begin(i) for i in range(5)]
    for step, i in enumerate(order):
        acknowledger.done(tickets[i])
        confirmed = set(order[: step + 1])
        assert given == [j for j in range(5) if set(range(j + 1)) <= confirmed]
        assert len(acknowledger) == 5 - len(given)


def test_begun_while_others_are_in_flight() -> None:
    given: list[str] = []
    acknowledger = Acknowledger(given.append)
    first = acknowledger.begin("first")
    second = acknowledger.begin("second")
    acknowledger.done(second)
    third = acknowledger.begin("third")
    acknowledger.done(first)
    assert given == ["first", "second"]
    acknowledger.done(third)
    assert given == ["first", "second", "third"]


def test_nothing_is_acknowledged_after_close() -> None:
    given: list[int] = []
    acknowledger = Acknowledger(given.append)
    tickets = [acknowledger.begin(i) for i in range(3)]
    acknowledger.done(tickets[0])
    acknowledger.close()
    acknowledger.done(tickets[1])
    late = acknowledger.begin(7)
    acknowledger.done(late)
    assert given == [0]
    assert len(acknowledger) == 0


def test_an_acknowledgement_that_closes_is_the_last() -> None:
    given: list[int] = []

    def acknowledge(item: int) -> None:
        given.append(item)
        acknowledger.close()

    acknowledger = Acknowledger(acknowledge)
    first, second = acknowledger.begin(1), acknowledger.begin(2)
    acknowledger.done(second)
    acknowledger.done(first)
    assert given == [1]


def test_drained_waits_for_the_last() -> None:
    async def scenario() -> None:
        acknowledger: Acknowledger[int] = Acknowledger(lambda _: None)
        await acknowledger.drained()
        tickets = [acknowledger.begin(i) for i in range(2)]
        waiting = asyncio.create_task(acknowledger.drained())
        acknowledger.done(tickets[1])
        await asyncio.sleep(0)
        assert not waiting.done()
        acknowledger.done(tickets[0])
        await waiting

    asyncio.run(scenario())
