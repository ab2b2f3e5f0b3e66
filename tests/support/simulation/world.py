"""A world of processes: many event loops in one thread, one scheduler that a seed drives, one virtual clock.

Each process has event loops of its own, a loop for each of its threads. Inside a loop the order is asyncio's; which
loop is next, the seed decides. So everything that can be interleaved in a real system is, callback by callback, and the
same seed repeats it (after FoundationDB's simulation).

A process can be frozen (its loops do not run; it sees nothing of it), slowed down, and killed: its loops never run
again, and its connections are reset.
"""

from __future__ import annotations

import asyncio
import hashlib
import heapq
import random
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from support.simulation.clock import EPOCH, START, Clock
from support.simulation.shrinking import Schedule

T = TypeVar("T")

STEP = 2e-6
"""Seconds that each step takes. Without it a client that waits for 1e-14 s would wait for ever."""
WORK = 0.002
"""Mean seconds of one call in an executor."""
LATENCY = 0.001
"""Mean seconds that a packet takes."""
LAST_LINES = 40  # of the trace, in errors


class Stuck(AssertionError):
    """Everything waits, or waits for longer than it may. The message has the end of the trace."""


class _Numbered:
    """Has its number as its hash, so that sets iterate in an order that no address decides."""

    _number: int

    def __hash__(self) -> int:
        return self._number


class _Future(_Numbered, asyncio.Future[Any]):
    pass


class _Task(_Numbered, asyncio.Task[Any]):
    def __init__(self, *args: Any, number: int, **kwargs: Any) -> None:
        self._number = number
        super().__init__(*args, **kwargs)


class Loop(asyncio.BaseEventLoop):
    """The event loop of one thread of a simulated process. The world runs it, a callback at a time."""

    _ready: deque[asyncio.Handle]

    def __init__(self, world: World, process: Process) -> None:
        self.world, self.process, self.ended = world, process, False
        super().__init__()
        self._executors: dict[Any, float] = {}  # when each has done its work; not by its address, which is given again
        process.loops.append(self)

    def time(self) -> float:
        return Clock.now

    get_debug = staticmethod(bool)  # False, and it is asked for each callback

    def is_running(self) -> bool:
        return True

    def create_future(self) -> Any:
        future, world = _Future(loop=self), self.world
        future._number = world.numbers = world.numbers + 1
        return future

    def create_task(self, coro: Any, *, name: str | None = None, context: Any = None) -> Any:
        number = self.world.numbers = self.world.numbers + 1
        return _Task(coro, loop=self, name=name or f"Task-{number}", context=context, number=number)

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        if not self._ready and not self.ended:
            self.world.ready.append(self)
        self._ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon

    def call_later(self, delay: float, callback: Any, *args: Any, context: Any = None) -> asyncio.TimerHandle:
        return self.call_at(Clock.now + delay, callback, *args, context=context)

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> asyncio.TimerHandle:
        timer, world = asyncio.TimerHandle(when, callback, args, self, context), self.world
        world.numbers += 1
        heapq.heappush(world.timers, (when, world.numbers, timer, self))
        return timer

    def run_until_complete(self, future: Any) -> Any:
        raise RuntimeError("the world runs its loops (World.run)")

    def close(self) -> None:
        self.ended = True
        if self in self.world.ready:
            self.world.ready.remove(self)

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> Any:
        """Run it inline, after a delay by the seed; the calls of one executor one after the other."""
        future = self.create_future()
        end = max(Clock.now, self._executors.get(executor, 0.0)) + self.world.chance.expovariate(1 / self.world.work)
        self._executors[executor] = end

        def run() -> None:
            try:
                result = func(*args)
            except BaseException as error:
                if not future.cancelled():
                    future.set_exception(error)
            else:
                if not future.cancelled():
                    future.set_result(result)

        self.call_at(end, run)
        return future

    async def create_connection(self, protocol_factory: Any, host: Any = None, port: Any = None, **_: Any) -> Any:
        """Connect to a node of the simulated Kafka.

        Raises:
            ConnectionRefusedError: the node is down.
        """
        await asyncio.sleep(self.world.latency())
        return self.world.network.connect(self, protocol_factory, host, port)

    async def getaddrinfo(self, host: Any, port: Any, **_: Any) -> Any:
        return [(2, 1, 6, "", (host, port))]

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self.world.note(self.process, "error", context.get("message"), repr(context.get("exception")))


class Process:
    """A simulated operating system process: its loops, and its end."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, name
        self.loops: list[Loop] = []
        self.frozen = self.killed = False
        self.skew = 0.0  # seconds by which its clock differs
        self.loop = Loop(world, self)

    def __repr__(self) -> str:
        return self.name

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Future[T]:
        """Begin a coroutine in the process's main loop. Returns its result for the main process, which never comes if
        this one is killed."""
        task, result = self.loop.create_task(work), self.world.main.loop.create_future()

        def ended(task: asyncio.Task[T]) -> None:
            if result.done():
                return
            if task.cancelled():
                result.cancel()
            elif error := task.exception():
                result.set_exception(error)
            else:
                result.set_result(task.result())

        task.add_done_callback(lambda task: self.world.main.loop.call_soon(ended, task))
        return result

    def freeze(self) -> None:
        """Stop it, as SIGSTOP does: timers fall due meanwhile, connections stay."""
        self.frozen = True
        self.world.note(self, "frozen")

    def thaw(self) -> None:
        self.frozen = False
        self.world.note(self, "thawed")

    def kill(self) -> None:
        """End it, as SIGKILL does. What it was doing stays where it is: not even `finally` runs."""
        self.killed = True
        for loop in self.loops:
            loop.close()
            self.world.graves.append(asyncio.all_tasks(loop))  # a coroutine that is collected would run its `finally`
        self.world.network.reset(self)
        self.world.note(self, "killed")


class World:
    """One simulation. `chance` is the only source of randomness.

    Attributes:
        network: connects processes with nodes of Kafka; `broker.Cluster` sets it.
        ready: the loops that have callbacks to run, also those of frozen processes.
        timers: by when they fall due; those of one time in their order.
        numbers: how many things have a number: what iterates goes by it.
        warnings: of the roles, with the time; not part of the digest, as their texts may have addresses.
        late: why it has to end at once, if it has.
        most_seconds: virtual seconds that a run may take.
        schedule: its seed, and what is left out.
        trace: what happened, a line each, with the time in seconds.
    """

    network: Any

    def __init__(self, schedule: Schedule) -> None:
        Clock.now = START
        self.schedule = schedule
        self.seed, self.chance = schedule.seed, random.Random(schedule.seed)
        random.seed(schedule.seed)
        self.ready: list[Loop] = []
        self.timers: list[tuple[float, int, asyncio.TimerHandle, Loop]] = []
        self.graves: list[Any] = []
        self.trace: list[str] = []
        self.steps = 0
        self.work, self.mean_latency = WORK, LATENCY
        self.late = ""
        self.most_seconds = 3600.0
        self.warnings: list[str] = []
        self.numbers = 0
        self._hash = hashlib.sha256()
        asyncio.set_event_loop_policy(_Policy(self))
        asyncio.run = lambda work, **_: self.run(work)
        self.main = Process(self, "main")
        self._current = self.main

    @property
    def digest(self) -> str:
        """Of the trace and of the time: equal if and only if two runs went the same way."""
        return hashlib.sha256(self._hash.digest() + f"{Clock.now} {self.steps}".encode()).hexdigest()[:16]

    @property
    def seconds(self) -> float:
        """Virtual seconds since the world began."""
        return Clock.now - START

    @property
    def now_ms(self) -> int:
        """Milliseconds since 1970."""
        return int((EPOCH + Clock.now) * 1000)

    def process(self, name: str) -> Process:
        """A new process."""
        return Process(self, name)

    def new_loop(self) -> Loop:
        """A loop of another thread of the process that runs."""
        return Loop(self, self._current)

    def latency(self) -> float:
        """Seconds until a packet arrives."""
        return self.chance.expovariate(1 / self.mean_latency)

    def note(self, *what: object) -> None:
        """Add a line to the trace."""
        line = f"{Clock.now - START:.6f} {' '.join(map(str, what))}"
        self._hash.update(line.encode())
        self.trace.append(line)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run the world until a coroutine in the main process has ended.

        Raises:
            Stuck: nobody can do anything any more, or `most_seconds` have gone by.
        """
        task, began = self.main.loop.create_task(work), Clock.now
        before, running = self._current, events._get_running_loop()
        try:
            while not task.done():
                if Clock.now > began + self.most_seconds:
                    raise Stuck(self._told(f"after {self.most_seconds:g} s it goes on"))
                if self.late:
                    raise Stuck(self._told(self.late))
                if not self._step():
                    raise Stuck(self._told("everything waits, and no timer is set"))
        finally:
            self._current, Clock.skew = before, before.skew
            events._set_running_loop(running)
        return task.result()

    def _told(self, what: str) -> str:
        return "\n".join([f"seed {self.seed}: {what}", *self.trace[-LAST_LINES:]])

    def _step(self) -> bool:
        """Run one callback, or wait for the next timer. Returns whether there was one."""
        timers, ready = self.timers, self.ready
        while timers and timers[0][0] <= Clock.now:
            _, _, timer, loop = heapq.heappop(timers)
            if not timer._cancelled:
                if not loop._ready and not loop.ended:
                    ready.append(loop)
                loop._ready.append(timer)
        if len(ready) > 1 or (ready and ready[0].process.frozen):
            ready = [loop for loop in ready if not loop.process.frozen]
        if not ready:
            while timers and (timers[0][2]._cancelled or timers[0][3].ended):
                heapq.heappop(timers)
            if timers:
                Clock.now = timers[0][0]
            return bool(timers)
        Clock.now += STEP
        loop = ready[int(self.chance.random() * len(ready))] if len(ready) > 1 else ready[0]
        waiting = loop._ready
        handle = waiting.popleft()
        if not waiting:
            self.ready.remove(loop)
        if not handle._cancelled:
            self.steps += 1
            self._current, Clock.skew = loop.process, loop.process.skew
            events._set_running_loop(loop)
            handle._run()
        return True


class _Policy(asyncio.DefaultEventLoopPolicy):
    """Every loop that anybody makes is a loop of the world."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def new_event_loop(self) -> Loop:
        return self._world.new_loop()

    def get_event_loop(self) -> Any:
        return events._get_running_loop() or self._world.main.loop
