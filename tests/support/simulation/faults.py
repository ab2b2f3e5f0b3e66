"""What can happen to the workers of a pipeline and to its Kafka, by the seed, each fault at a state of a role.

A fault is a function of what it meets (`Hit`); it returns what becomes of the request that the role sends (`Outcome`).
`Faults` waits until a role comes into the state that an aim names, and lets the fault happen there.
"""

from __future__ import annotations

import asyncio
import inspect
import random
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from stream_lsh.errors import StreamLshError
from support.simulation import coverage, wire
from support.simulation.coverage import Triple
from support.simulation.network import GOOD, Fault, Outcome
from support.simulation.pipeline import ROLES, Pipeline, Worker
from support.simulation.world import Process

LONGEST = 20.0  # seconds that a fault lasts
JUMP = 600.0  # seconds by which a clock may jump
SLOW = 0.02, 0.0005  # seconds that a slow process stands, and runs


@dataclass(slots=True)
class Aim:
    """A fault that waits for a state of a role, from a time on (virtual seconds)."""

    fault: str
    role: str
    state: str
    since: float


@dataclass(frozen=True, slots=True)
class Hit:
    """Where a fault strikes: a request of a role."""

    faults: Faults
    worker: Worker
    role: str
    head: wire.Head
    ask: dict[str, Any]

    @property
    def process(self) -> Process:
        return self.worker.process

    @property
    def node(self) -> int:
        """The node that coordinates the role's group."""
        cluster = self.faults.pipeline.cluster
        found = cluster.coordinator(self.faults.pipeline.topics.group(self.role))
        return found.number if found else 0


@dataclass(slots=True)
class _Seen:
    """What a process has told: its member id in each group, its transactional ids."""

    members: dict[str, str] = field(default_factory=dict)
    transactions: dict[str, None] = field(default_factory=dict)


class Faults:
    """Aims at the workers of a pipeline.

    Attributes:
        workers: as they are now; one that was killed has a successor in its place.
        met: what has happened, where.
        left: workers that were asked to stop. Faults meet them until they have ended.
    """

    def __init__(self, pipeline: Pipeline, workers: list[Worker], aims: list[Aim]) -> None:
        self.pipeline, self.workers, self.aims = pipeline, workers, aims
        self.world = pipeline.world
        self.chance = random.Random(self.world.chance.random())
        self.met: list[Triple] = []
        self.slowed: dict[Process, float] = {}  # until when
        self.left: list[Worker] = []
        self._filled: list[Worker] = []  # whose disk was full
        self._seen: dict[Process, _Seen] = {}
        self._open = 0
        self._tasks: list[asyncio.Task[None]] = []
        pipeline.cluster.network.fault = self._decide
        for role, since in [(aim.role, aim.since) for aim in aims if aim.state == "leaving"]:
            self.later(since + self.chance.uniform(0, LONGEST / 2), partial(self._let_leave, role))

    @property
    def over(self) -> bool:
        """Whether everything that was stopped goes on again."""
        return not self._open

    def end(self) -> None:
        """Nothing more happens."""
        self.aims.clear()

    async def ended(self) -> None:
        """Wait until all workers have ended that were asked to.

        Raises:
            StreamLshError: one could not go on, for another reason than its full disk.
        """
        for worker in [*self.left, *self.workers]:
            if not worker.process.killed:
                try:
                    await worker.ended
                except StreamLshError as error:
                    if worker not in self._filled or "make room on the disk" not in str(error):
                        raise

    def leave(self, worker: Worker) -> None:
        """Ask a worker to stop."""
        self.left.append(worker)
        worker.stop()

    def succeed(self, worker: Worker, folder: Path | None) -> None:
        """Start another worker in the place of this one."""
        self.workers[self.workers.index(worker)] = self.pipeline.start(*worker.roles, folder=folder)

    def _let_leave(self, role: str) -> None:
        worker = min((one for one in self.workers if role in one.roles), key=lambda one: len(one.roles))
        if not worker.process.killed:
            self.leave(worker)
            self.succeed(worker, None)

    def fill(self, worker: Worker) -> None:
        """Let the disk of a worker be full."""
        self._filled.append(worker)
        self.pipeline.full.add(worker.folder)

    def seen(self, process: Process) -> _Seen:
        return self._seen.setdefault(process, _Seen())

    def later(self, seconds: float, call: Callable[[], object]) -> None:
        """Do it so much later; until it is done the faults are not over."""
        self._open += 1

        async def wait() -> None:
            await asyncio.sleep(seconds)
            if inspect.isawaitable(found := call()):
                await found
            self._open -= 1

        self._tasks.append(self.world.main.loop.create_task(wait()))

    def replace(self, worker: Worker, folder: Path | None) -> None:
        """Kill a worker, and start it again a while later with this folder, unless another has taken its place."""
        if worker.process.killed or worker.ended.done():
            return
        worker.process.kill()
        if worker in self.workers:
            self.later(self.chance.uniform(0, 8), partial(self.succeed, worker, folder))

    def _decide(self, process: Process, head: wire.Head, ask: dict[str, Any]) -> Outcome:
        worker = next((one for one in [*self.workers, *self.left] if one.process is process), None)
        if worker is None or process.killed:
            return GOOD
        self._learn(self.seen(process), ask)
        role = worker.roles[0] if len(worker.roles) == 1 else head.client.rpartition(".")[2]
        state = coverage.state_of(head.name, ask)
        for aim in self.aims:
            if (aim.role, aim.state) == (role, state) and self.world.seconds >= aim.since:
                self.aims.remove(aim)
                self.met.append((aim.fault, role, state))
                self.world.note("fault", aim.fault, "meets", role, head.name, "of", process)
                return FAULTS[aim.fault](Hit(self, worker, role, head, ask))
        if self.world.seconds < self.slowed.get(process, 0.0):
            return Outcome(late=self.chance.expovariate(1))
        return GOOD

    @staticmethod
    def _learn(seen: _Seen, ask: Mapping[str, Any]) -> None:
        group, member = ask.get("group", ask.get("consumer_group")), ask.get("member_id", ask.get("consumer_id"))
        if group and member:
            seen.members[group] = member
        if name := ask.get("transactional_id"):
            seen.transactions[name] = None


def aims(chance: random.Random, seed: int, number: int, seconds: float) -> list[Aim]:
    """So many aims: one seed after the other, everything meets everything."""
    every = coverage.triples(FAULTS)
    random.Random(0).shuffle(every)
    chosen = (every[(seed * number + place) % len(every)] for place in range(number))
    return [Aim(*one, since=chance.choice([0.0, chance.uniform(0, seconds)])) for one in chosen]


# Processes and their disks


def killed(hit: Hit) -> Outcome:
    hit.faults.replace(hit.worker, hit.worker.folder)
    return GOOD


def disk_lost(hit: Hit) -> Outcome:
    hit.faults.replace(hit.worker, None)
    return GOOD


def disk_older(hit: Hit) -> Outcome:
    """Killed a while later, it begins with the disk of now."""
    faults, worker = hit.faults, hit.worker
    older = worker.folder.with_name(worker.folder.name + "-older")
    if worker.folder.exists():
        shutil.copytree(worker.folder, older, dirs_exist_ok=True)
    faults.later(faults.chance.uniform(0.5, LONGEST), lambda: faults.replace(worker, older))
    return GOOD


def disk_full(hit: Hit) -> Outcome:
    """For a while; then there is room, and the worker is started again with its disk."""
    faults, worker = hit.faults, hit.worker
    faults.fill(worker)

    async def again() -> None:
        faults.pipeline.full.discard(worker.folder)
        faults.leave(worker)
        while not worker.ended.done() and not worker.process.killed:
            await asyncio.sleep(0.1)
        if worker in faults.workers and not worker.process.killed:  # no other fault has started it again
            faults.succeed(worker, worker.folder)

    faults.later(faults.chance.uniform(0.5, LONGEST), again)
    return GOOD


def drained(hit: Hit) -> Outcome:
    """Asked to stop, and started again."""
    if hit.worker in hit.faults.workers:
        hit.faults.leave(hit.worker)
        hit.faults.succeed(hit.worker, None)
    return GOOD


def joined(hit: Hit) -> Outcome:
    """Another worker comes and goes: all groups rebalance at once, twice."""
    faults = hit.faults

    def begin() -> None:
        other = faults.pipeline.start(*ROLES)
        faults.later(faults.chance.uniform(0.5, LONGEST), lambda: faults.leave(other))

    faults.later(0.0, begin)
    return GOOD


def frozen(hit: Hit) -> Outcome:
    hit.process.freeze()
    hit.faults.later(hit.faults.chance.choice([hit.faults.chance.uniform(0, 5), LONGEST]), hit.process.thaw)
    return GOOD


def slow(hit: Hit) -> Outcome:
    """For a while it has a fortieth of its processor."""
    world, process, end = hit.faults.world, hit.process, hit.faults.world.seconds + LONGEST

    def toggle() -> None:
        process.frozen = not process.frozen and world.seconds < end
        if world.seconds < end and not process.killed:
            hit.faults.later(SLOW[not process.frozen], toggle)

    toggle()
    return GOOD


def clock_jumped(hit: Hit) -> Outcome:
    """Forward or back; from then on it differs from the others' clocks."""
    hit.process.skew += hit.faults.chance.uniform(-JUMP, JUMP)
    return GOOD


# Requests


def lost(hit: Hit) -> Outcome:
    return Outcome(Fault.LOST)


def answer_lost(hit: Hit) -> Outcome:
    return Outcome(Fault.ANSWER_LOST)


def late(hit: Hit) -> Outcome:
    return Outcome(late=hit.faults.chance.choice([1.0, LONGEST, 2 * LONGEST]))


def served_late(hit: Hit) -> Outcome:
    """The connection ends, and the broker serves the request after the client has asked again."""
    return Outcome(Fault.SERVED_LATE, late=hit.faults.chance.choice([0.2, 2.0, LONGEST]))


def throttled(hit: Hit) -> Outcome:
    """For a while, all answers to the process are late."""
    hit.faults.slowed[hit.process] = hit.faults.world.seconds + LONGEST
    return GOOD


# Kafka


def moved(hit: Hit) -> Outcome:
    """Coordinators and leaders move to other nodes."""
    hit.faults.pipeline.cluster.move(hit.node)
    return GOOD


def node_gone(hit: Hit) -> Outcome:
    cluster, node = hit.faults.pipeline.cluster, hit.node
    if sum(one.up for one in cluster.nodes) > 1:
        cluster.stop(node)
        hit.faults.later(hit.faults.chance.uniform(0, LONGEST), lambda: cluster.start(node))
    return GOOD


def session_ended(hit: Hit) -> Outcome:
    """Its members are out of their groups: several rebalances at once."""
    for group, member in hit.faults.seen(hit.process).members.items():
        hit.faults.pipeline.cluster.group(group).expire(member)
    return GOOD


def aborted(hit: Hit) -> Outcome:
    """Its open transactions are at their timeout."""
    for name in hit.faults.seen(hit.process).transactions:
        hit.faults.pipeline.cluster.transactions.expire(name)
    return GOOD


def fenced(hit: Hit) -> Outcome:
    """Another producer began with each of its transactional ids."""
    for name in hit.faults.seen(hit.process).transactions:
        hit.faults.pipeline.cluster.transactions.begin_producer(name, 60.0)
    return GOOD


def compacted(hit: Hit) -> Outcome:
    """Retention and compaction run over all that has been written."""
    hit.faults.pipeline.cluster.clean(active=True)
    return GOOD


FAULTS: Mapping[str, Callable[[Hit], Outcome]] = {
    one.__name__: one
    for one in (
        killed, disk_lost, disk_older, disk_full, drained, joined, frozen, slow, clock_jumped, lost, answer_lost, late,
        served_late, throttled, moved, node_gone, session_ended, aborted, fenced, compacted,
    )
}  # fmt: skip
