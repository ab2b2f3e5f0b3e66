"""The coordinator of transactions of a simulated Kafka: producer ids, epochs that fence, two phases, timeouts.

After Kafka's TransactionCoordinator (KIP-98). A transaction that ends is first decided (PREPARE), then its markers are
written to its partitions one by one, each a packet away, and then it is complete; readers of committed records see a
partition of it with its marker.
"""

from __future__ import annotations

from asyncio import TimerHandle
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from support.simulation.errors import Error
from support.simulation.groups import Offsets, Place
from support.simulation.log import Log
from support.simulation.world import Loop, World

LAST_EPOCH = 2**15 - 2


class State(Enum):
    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE = "Prepare"


class Logs(Protocol):
    """Where the markers go."""

    def log(self, place: Place) -> Log | None: ...

    def offsets(self, group: str) -> Offsets: ...


@dataclass(slots=True)
class Transaction:
    """What the coordinator knows of a transactional id. timeout in seconds; ended: how its last transaction did."""

    name: str
    producer: int
    timeout: float
    epoch: int = -1
    state: State = State.EMPTY
    ended: bool | None = None
    places: set[Place] = field(default_factory=set)
    groups: set[str] = field(default_factory=set)
    timer: TimerHandle | None = None


class Transactions:
    """All transactional ids, and the next producer id."""

    def __init__(self, world: World, loop: Loop, logs: Logs) -> None:
        self._world, self._loop, self._logs = world, loop, logs
        self._known: dict[str, Transaction] = {}
        self._next = 0

    def _new_id(self) -> int:
        self._next += 1
        return self._next

    def begin_producer(self, name: str | None, timeout: float) -> tuple[Error, int, int]:
        """InitProducerId. Returns error, producer id and epoch. A transaction of the producer before is aborted."""
        if name is None:
            return Error.NONE, self._new_id(), 0
        one = self._known.setdefault(name, Transaction(name, self._new_id(), timeout))
        if one.state is State.PREPARE:
            return Error.CONCURRENT_TRANSACTIONS, -1, -1
        if one.epoch >= LAST_EPOCH:
            one.producer, one.epoch = self._new_id(), -1
        one.epoch += 1
        one.timeout, one.ended = timeout, None
        if one.state is State.ONGOING:
            self._end(one, commit=False)
            return Error.CONCURRENT_TRANSACTIONS, -1, -1
        return Error.NONE, one.producer, one.epoch

    def checked(self, name: str, producer: int, epoch: int) -> tuple[Transaction | None, Error]:
        """The transaction of a producer, if it may go on."""
        one = self._known.get(name)
        if one is None or one.producer != producer:
            return None, Error.INVALID_PRODUCER_ID_MAPPING
        if one.epoch != epoch:
            return None, Error.INVALID_PRODUCER_EPOCH
        return one, Error.NONE

    def add(self, name: str, producer: int, epoch: int, places: set[Place], group: str | None = None) -> Error:
        """AddPartitionsToTxn, AddOffsetsToTxn."""
        one, error = self.checked(name, producer, epoch)
        if one is None:
            return error
        if one.state is State.PREPARE:
            return Error.CONCURRENT_TRANSACTIONS
        one.places |= places
        if group is not None:
            one.groups.add(group)
        if one.state is State.EMPTY:
            one.state, one.ended = State.ONGOING, None
            one.timer = self._loop.call_later(one.timeout, self._expired, one, one.epoch)
        return Error.NONE

    def holds(self, name: str, place: Place) -> bool:
        """Whether a partition belongs to the open transaction of an id."""
        one = self._known.get(name)
        return one is not None and one.state is State.ONGOING and place in one.places

    def end(self, name: str, producer: int, epoch: int, commit: bool, done: Callable[[Error], None]) -> None:
        """EndTxn. `done` is called when it is decided; the markers follow."""
        one, error = self.checked(name, producer, epoch)
        if one is None:
            return done(error)
        if one.state is State.PREPARE:
            return done(Error.CONCURRENT_TRANSACTIONS)
        if one.state is State.EMPTY:  # asked again: the answer was lost
            return done(Error.NONE if one.ended is commit else Error.INVALID_TXN_STATE)
        self._end(one, commit)
        return done(Error.NONE)

    def expire(self, name: str) -> None:
        """Let the open transaction of an id reach its timeout."""
        if name in self._known:
            self._expired(self._known[name], self._known[name].epoch)

    def _expired(self, one: Transaction, epoch: int) -> None:
        if one.state is State.ONGOING and one.epoch == epoch:
            self._world.note("transaction", one.name, "timed out")
            one.epoch += 1
            self._end(one, commit=False)

    def _end(self, one: Transaction, commit: bool) -> None:
        if one.timer:
            one.timer.cancel()
        one.state = State.PREPARE
        work: list[Callable[[], None]] = [self._marking(one, place, commit) for place in sorted(one.places)]
        work += [self._offering(one, group, commit) for group in sorted(one.groups)]
        self._world.chance.shuffle(work)

        def step() -> None:
            if work:
                work.pop()()
                self._loop.call_later(self._world.latency(), step)
                return
            one.places, one.groups, one.state, one.ended = set(), set(), State.EMPTY, commit

        self._loop.call_later(self._world.latency(), step)

    def _marking(self, one: Transaction, place: Place, commit: bool) -> Callable[[], None]:
        def mark() -> None:
            log = self._logs.log(place)
            if log is not None:
                log.mark(one.producer, one.epoch, commit, self._world.now_ms)

        return mark

    def _offering(self, one: Transaction, group: str, commit: bool) -> Callable[[], None]:
        return lambda: self._logs.offsets(group).end(one.producer, commit)
