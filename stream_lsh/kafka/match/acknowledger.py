"""In which order frames are acknowledged: the order in which they were begun, whenever their sends are confirmed."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

Item = TypeVar("Item")


@dataclass(slots=True, eq=False)
class Ticket(Generic[Item]):
    """The place of an item in the order."""

    item: Item
    done: bool = False


class Acknowledger(Generic[Item]):
    """Hands on what is done, strictly in order: an item waits until all that were begun before it are done.

    Faust commits past a head that was never acknowledged, as long as what follows it was (measured: committed 34,
    acknowledged 35, it commits 36). So nothing may be acknowledged out of order.

    Not for several threads: one event loop uses it.
    """

    def __init__(self, acknowledge: Callable[[Item], None]) -> None:
        """Args:
        acknowledge: called with each item, in order, out of `done`.
        """
        self._acknowledge = acknowledge
        self._tickets: deque[Ticket[Item]] = deque()
        self._closed = False
        self._empty = asyncio.Event()
        self._empty.set()

    def __len__(self) -> int:
        """Items begun and not acknowledged yet."""
        return len(self._tickets)

    @property
    def first(self) -> Item | None:
        """The oldest of them."""
        return self._tickets[0].item if self._tickets else None

    def begin(self, item: Item) -> Ticket[Item]:
        """Give an item its place in the order. Of no effect after `close`."""
        ticket = Ticket(item)
        if not self._closed:
            self._tickets.append(ticket)
            self._empty.clear()
        return ticket

    def done(self, ticket: Ticket[Item]) -> None:
        """An item is done: acknowledge it and what waited for it, or let it wait for what is before it."""
        ticket.done = True
        tickets = self._tickets
        while tickets and tickets[0].done:
            self._acknowledge(tickets.popleft().item)
        if not tickets:
            self._empty.set()

    def close(self) -> None:
        """Acknowledge nothing any more: what is in flight belongs to the past of a partition that may be another's."""
        self._closed = True
        self._tickets.clear()
        self._empty.set()

    async def drained(self) -> None:
        """Wait until nothing is in flight."""
        await self._empty.wait()
