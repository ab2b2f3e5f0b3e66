"""A worker: its roles in one process, or in several under a supervisor that starts, restarts and stops them."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal

import orjson
from aiokafka import errors

from stream_lsh.embedded.signals import Signals
from stream_lsh.errors import BrokerError, StreamLshError
from stream_lsh.kafka.client.clients import Stopped, unless, waited
from stream_lsh.kafka.client.connection import FINAL, explain
from stream_lsh.kafka.run import logs
from stream_lsh.kafka.run.children import ChildEnded
from stream_lsh.kafka.run.process import DRAIN, STAGES, Job, command, dump, outlast, run
from stream_lsh.kafka.run.restarts import may_pass
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.kafka.topics import check

log = logging.getLogger("stream_lsh.kafka.worker")

Processes = Literal["one", "groups", "roles"]
Check = Callable[[KafkaSettings, Sequence[str]], Coroutine[Any, Any, None]]
Beside = Callable[[asyncio.Event], Coroutine[None, None, None]]
GROUPS = (("sign",), ("match",), ("sequence", "judge", "forward", "group"))
"""Roles that share a process by default: sign and match each keep a core busy, the others together less."""
SHORTEST, LONGEST = 0.5, 10.0  # seconds until a process that ended is started again
LIVED = 20.0  # seconds of uptime after which a process counts as working
CRASHES = 5  # limit of unexpected errors in a row, each before a process was up for that long
ASK = 1.0  # seconds between two attempts to reach Kafka at start
SAY = 30.0  # seconds between two log lines about it
BESIDE = 10.0  # seconds that `beside` may take to end


def plan(
    roles: Sequence[str], processes: Processes, port: int | None, log_level: str = "info",
    stages: Mapping[str, str] = STAGES, *, together: bool = False,
) -> list[Job]:  # fmt: skip
    """The jobs of a worker's processes, each with its port, from `port` on. together: see `Job`."""
    if processes == "one":
        groups = [tuple(roles)]
    elif processes == "roles":
        groups = [(role,) for role in roles]
    else:
        groups = [found for group in GROUPS if (found := tuple(role for role in group if role in roles))]
    ports = () if port is None else tuple(range(port, port + len(groups)))
    return [
        Job(group, ports[number] if ports else None, ports, log_level, stages, together)
        for number, group in enumerate(groups)
    ]


def work(
    jobs: Sequence[Job], settings: KafkaSettings, *, check: Check = check, beside: Beside | None = None
) -> tuple[int, ...]:
    """Run a worker until SIGTERM or SIGINT, then let it finish what is in flight.

    Args:
        jobs: see `plan`. A single job runs in this process, unless there is something `beside`.
        check: raises if the topics of some roles are missing or misconfigured.
        beside: runs beside the processes until the event that requests a stop is set. When it returns, the worker
            stops.

    Returns:
        The signals that ended the worker: none if `beside` did; one; or two, where the second ends the waiting. From
        then on signals are ignored: the process has nothing left to do. (A second signal ends a single job itself.)

    Raises:
        BrokerError: Kafka cannot be reached for `give_up_seconds` or refuses, or its topics are misconfigured.
        StreamLshError: a role has given up, and the others have too or were stopped.
        KeyboardInterrupt: a signal arrived before the start.
    """
    roles = [role for job in jobs for role in job.roles]

    async def ready(stop: asyncio.Event) -> None:
        await wait_for_kafka(settings, roles, stop, check)

    if len(jobs) > 1 or beside is not None:
        logs.set_up(jobs[0].log_level, "worker")
        with Signals() as signals:
            supervisor = _Supervisor(jobs, settings)
            signals.run(lambda stop, kill: supervisor.run(stop, kill, ready, beside))
            return tuple(signals.came[: 2 if supervisor.killed else 1])
    logs.set_up(jobs[0].log_level, jobs[0].name)
    with Signals(lambda number: os._exit(0 if signals.done else 128 + number)) as signals:
        run(jobs[0], settings, signals, ready)
        return tuple(signals.came[:1])


async def wait_for_kafka(
    settings: KafkaSettings, roles: Sequence[str], stop: asyncio.Event, check: Check = check
) -> None:
    """Return when Kafka has the topics of these roles, or when `stop` is set.

    Raises:
        BrokerError: Kafka refuses, its topics are misconfigured, or it did not answer for `give_up_seconds`.
    """
    logs.hush(asyncio.get_running_loop(), may_pass)
    began = time.monotonic()
    said: float | None = None
    while not stop.is_set():
        try:
            await unless(check(settings, roles), stop)
        except Stopped:
            return
        except (errors.KafkaError, OSError, TimeoutError) as error:
            now = time.monotonic()
            if isinstance(error, FINAL) or now - began >= settings.give_up_seconds:
                text = str(explain(error, settings))
                after = "" if isinstance(error, FINAL) else f" Given up after {now - began:.0f} s (give_up_seconds)."
                raise BrokerError(text + after) from error
            if said is None or now - said >= SAY:
                log.warning("waiting for Kafka at %s (%s)", settings.bootstrap_servers, " ".join(str(error).split()))
                said = now
        else:
            if said is not None:
                seconds = time.monotonic() - began
                log.info("Kafka at %s answers after %.0f s", settings.bootstrap_servers, seconds)
            return
        await waited(stop, ASK)


class _Supervisor:
    """Keeps the processes of a worker running. killed: whether a second signal ended it."""

    def __init__(self, jobs: Sequence[Job], settings: KafkaSettings) -> None:
        self._jobs = jobs
        self._settings = settings
        self._stop: asyncio.Event
        self._running: dict[str, Process] = {}
        self.killed = False

    async def run(
        self, stop: asyncio.Event, kill: asyncio.Event, ready: Callable[[asyncio.Event], Awaitable[None]],
        beside: Beside | None = None,
    ) -> None:  # fmt: skip
        """Keep the processes running until `stop` is set or `beside` returns, then end them; at once if `kill` is set.
        `Job.together` says what the end of one means for the others."""
        self._stop = stop
        await ready(stop)
        if stop.is_set():
            log.info("stopped before anything had begun")
            return
        tasks = [asyncio.create_task(self._keep(job), name=job.name) for job in self._jobs]
        asked = asyncio.create_task(self._stop.wait())
        others = [] if beside is None else [asyncio.create_task(beside(self._stop))]

        def stopped(task: asyncio.Task[None], error: StreamLshError) -> None:
            log.error("the process of %s has stopped: %s", task.get_name(), error)

        ended = await outlast(tasks, self._jobs[0], [*others, asked], stopped)
        first = [task for task in others if task.done()] + ended
        if asked.done():
            log.info("stopping; a second signal does not wait")
        stop.set()
        killing = asyncio.create_task(kill.wait())
        await self._end(tasks, killing)
        for task in others:
            await asyncio.wait([task, killing], timeout=BESIDE, return_when=asyncio.FIRST_COMPLETED)
            self.killed |= not task.done() and kill.is_set()
            task.cancel()  # not awaited: the processes have ended
        asked.cancel()
        killing.cancel()
        for task in [*first, *tasks, *others]:
            if task.done():
                task.result()
        if not self.killed:
            log.info("stopped")

    async def _end(self, tasks: list[asyncio.Task[None]], killing: asyncio.Task[Any]) -> None:
        """Let the processes drain. Kill those that exceed the time limit, or all at a second signal."""
        for process in self._running.values():
            with suppress(ProcessLookupError):
                process.terminate()
        everything = asyncio.ensure_future(asyncio.wait(tasks))
        await asyncio.wait([everything, killing], timeout=DRAIN + 10, return_when=asyncio.FIRST_COMPLETED)
        self.killed = not everything.done() and killing.done()
        for name, process in self._running.items():
            log.warning("the process of %s did not end and is killed", name)
            with suppress(ProcessLookupError):
                process.kill()
        await everything

    async def _keep(self, job: Job) -> None:
        """Run a process for a job, again and again until the worker stops.

        Raises:
            ChildEnded: the process has reported why it cannot work, or fails repeatedly.
        """
        restarts = crashes = 0
        while not self._stop.is_set():
            began = time.monotonic()
            code, message = await self._once(job)
            if message:
                raise ChildEnded(message, code)
            if self._stop.is_set():
                break
            if time.monotonic() - began >= LIVED:
                restarts = crashes = 0
            crashes += code > 0  # 0: that process got a SIGTERM from outside
            if crashes >= CRASHES:
                raise ChildEnded(f"the process of {job.name} failed {crashes} times in a row; see its errors above", 1)
            delay = min(LONGEST, SHORTEST * 2**restarts)
            restarts = min(restarts + 1, 10)
            log.warning("the process of %s %s; starting it again in %.1f s", job.name, _ended(code), delay)
            await waited(self._stop, delay)

    async def _once(self, job: Job) -> tuple[int, str]:
        """One process from start to end: its exit code (negative for a signal) and its error message."""
        process = await asyncio.create_subprocess_exec(*command(job), stdin=PIPE, stdout=PIPE)
        assert process.stdin is not None and process.stdout is not None
        self._running[job.name] = process
        try:
            if self._stop.is_set():
                process.terminate()
            with suppress(ConnectionError):  # it has ended already
                process.stdin.write(dump(job, self._settings))
                await process.stdin.drain()
            report = await process.stdout.read()
            code = await process.wait()
        finally:
            del self._running[job.name]
            process.stdin.close()
        return code, orjson.loads(report)["message"] if report else ""


def _ended(code: int) -> str:
    if code >= 0:
        return f"ended with code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"was killed by {name}" + (" (perhaps the system was out of memory)" if name == "SIGKILL" else "")
