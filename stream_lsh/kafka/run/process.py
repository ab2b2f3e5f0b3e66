"""One process of a worker: its roles on one event loop, with a port for health and metrics.

As a program it is a child of the supervisor, which writes the job (settings, secrets among them) to its standard input
and keeps that open. If the supervisor is killed, Linux kills the child, too (`children.bound`), so that its data folder
is free at once.
"""

from __future__ import annotations

import asyncio
import errno
import gc
import logging
import os
import pkgutil
import signal
import socket
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from types import FrameType
from typing import Any, NoReturn

import orjson
import uvloop
from pydantic import SecretStr

from stream_lsh import tracing
from stream_lsh.embedded.signals import Signals, ignore
from stream_lsh.errors import OutputError, StoreError, StreamLshError, UsageError
from stream_lsh.hashing import notice
from stream_lsh.index.store.errors import refusal
from stream_lsh.index.store.files import raise_limit
from stream_lsh.kafka.run import logs
from stream_lsh.kafka.run.children import bound
from stream_lsh.kafka.run.health import Health
from stream_lsh.kafka.run.metrics import Probe, Registry, served
from stream_lsh.kafka.run.restarts import Stage, keep_running
from stream_lsh.kafka.settings import KafkaSettings

log = logging.getLogger("stream_lsh.kafka.worker")

STAGES = {
    "sign": "stream_lsh.kafka.sign.stage:SignStage",
    "sequence": "stream_lsh.kafka.sequence.stage:SequenceStage",
    "match": "stream_lsh.kafka.match.stage:MatchStage",
    "judge": "stream_lsh.kafka.judge.stage:JudgeStage",
    "forward": "stream_lsh.kafka.forward.stage:ForwardStage",
    "group": "stream_lsh.kafka.groups.stage:GroupStage",
}
"""The class of each role, imported only where the role runs."""
COMPILED = ("sign", "match")  # the roles that need kernels
OBJECTS = 100_000  # new objects that trigger a garbage collection, as in the command line
DRAIN = 30.0  # seconds that a stop may take; other members repeat what is not committed by then
KILLED = 143
OWN = (StoreError.exit_code, OutputError.exit_code)
"""Exit codes of errors that concern one role: its topics, its disk. Errors of settings and of Kafka concern all."""
_CHILD = "-m", "stream_lsh.kafka.run.process"


@dataclass(frozen=True, slots=True)
class Job:
    """The work of one process.

    Attributes:
        port: of /health and /metrics.
        ports: of all processes of the worker.
        together: whether all roles end when the first one gives up, because no role is of use without the others.
    """

    roles: tuple[str, ...]
    port: int | None = None
    ports: tuple[int, ...] = ()
    log_level: str = "info"
    stages: Mapping[str, str] = field(default_factory=lambda: STAGES)
    together: bool = False

    def continues(self, error: StreamLshError) -> bool:
        """Whether the other roles continue after one has given up with this error."""
        return not self.together and error.exit_code in OWN

    @property
    def name(self) -> str:
        """The roles, separated by commas."""
        return ",".join(self.roles)


def dump(job: Job, settings: KafkaSettings) -> bytes:
    """Job and settings as a line of JSON. It contains secrets: only for the child's input."""

    def plain(value: Any) -> Any:
        return value.get_secret_value() if isinstance(value, SecretStr) else value

    # What was not given stays so: the record of the pipeline's settings has only what was.
    values = {name: plain(getattr(settings, name)) for name in settings.model_fields_set}
    return orjson.dumps({"job": job, "settings": values}, default=str) + b"\n"


def load(line: bytes) -> tuple[Job, KafkaSettings]:
    """Parse the line of `dump`."""
    found = orjson.loads(line)
    job = found["job"]
    job |= {name: tuple(job[name]) for name in ("roles", "ports")}
    return Job(**job), KafkaSettings.model_validate(found["settings"])


def command(job: Job) -> list[str]:
    """The command line of the child for a job. The roles are in it only to be seen in `ps`."""
    return bound([sys.executable, *_CHILD, job.name])


def run(
    job: Job, settings: KafkaSettings, signals: Signals, ready: Callable[[asyncio.Event], Awaitable[None]] | None = None
) -> None:
    """Do a job until a signal arrives, then drain.

    Args:
        signals: entered already.
        ready: awaited before the work begins, with the event that requests a stop.

    Raises:
        StreamLshError: a role has given up; the others are stopped.
    """
    raise_limit()  # forward has a producer, with two or more sockets, for each partition
    try:
        if ready is not None:
            signals.run(lambda stop, _: ready(stop))
        if not signals.came:
            classes = {role: pkgutil.resolve_name(job.stages[role]) for role in job.roles}
            if not set(job.roles).isdisjoint(COMPILED):
                from stream_lsh.embedded.warming import warm_up  # only here: it imports the whole engine

                notice.say = log.info
                warm_up(settings, lambda: bool(signals.came))
        if signals.came:  # there is nothing to drain yet
            log.info("stopped %s before it had started", job.name)
            return
        signals.run(lambda stop, _: run_roles(job, settings, classes, stop))
    except Exception as error:
        known = explained(error)
        if known is None or known is error:
            raise
        raise known from error
    finally:
        tracing.close()


async def run_roles(
    job: Job, settings: KafkaSettings, classes: Mapping[str, Callable[[KafkaSettings, Probe], Stage]],
    stop: asyncio.Event,
) -> None:  # fmt: skip
    """Run the roles of a job until `stop` is set or none is left. If an error concerns only its role, that role stops
    alone. After any other error all roles drain.

    Raises:
        UsageError: the port is taken.
        StreamLshError: of the role that gave up first.
    """
    registry, health = Registry(), Health(ports=job.ports)
    async with AsyncExitStack() as stack:
        if job.port is not None:
            try:
                port = await stack.enter_async_context(served(health, registry, settings.http_host, job.port))
            except OSError as error:
                # asyncio's own text repeats the address. The error numbers of an unknown host name are no errno.
                why = error.strerror if isinstance(error, socket.gaierror) else os.strerror(error.errno or 0)
                raise UsageError(
                    f"http_port {job.port} on http_host {settings.http_host} cannot be used: {why}. "
                    "Each process of a worker takes one, from http_port on."
                ) from None
            log.info("health and metrics of %s at http://%s:%d", job.name, settings.http_host, port)
        tasks: dict[asyncio.Task[None], Probe] = {}
        for role in job.roles:
            probe = Probe(role, registry, health)
            restarting = keep_running(partial(classes[role], settings, probe), stop, settings, probe)
            tasks[asyncio.create_task(restarting, name=role)] = probe
        log.info("started %s", job.name)
        asked = asyncio.create_task(stop.wait())

        def stopped(task: asyncio.Task[None], error: StreamLshError) -> None:
            tasks[task].stopped(str(error))
            log.error("%s has stopped: %s; fix this and start the worker again", task.get_name(), error)

        ended = await outlast(tasks, job, [asked], stopped)
        asked.cancel()
        stop.set()
        began = time.monotonic()
        _, late = await asyncio.wait(tasks, timeout=DRAIN)
        for task in late:
            log.warning(
                "%s did not finish within %d s; other workers repeat what it has not committed", task.get_name(), DRAIN
            )
            task.cancel()
        if late:
            await asyncio.wait(late, timeout=5)
        _raise_first([*ended, *tasks])
    log.info("stopped %s in %.1f s", job.name, time.monotonic() - began)


async def outlast(
    tasks: Iterable[asyncio.Task[None]], job: Job, ends: Sequence[asyncio.Task[Any]],
    stopped: Callable[[asyncio.Task[None], StreamLshError], object],
) -> list[asyncio.Task[None]]:  # fmt: skip
    """Wait until all tasks have ended, one of `ends` is done, or a task has ended the job with its error.

    Returns:
        The tasks that have ended, in that order. `stopped` is called for each task that ends while others continue.
    """
    running, ended = set(tasks), list[asyncio.Task[None]]()
    while running and not any(end.done() for end in ends):
        await asyncio.wait([*running, *ends], return_when=asyncio.FIRST_COMPLETED)
        done = {task for task in running if task.done()}
        running -= done
        ended += done
        for task in done:
            error = None if task.cancelled() else explained(task.exception())
            if error is None or not job.continues(error):
                return ended
            if running:
                stopped(task, error)
    return ended


def _raise_first(tasks: Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        if task.done() and not task.cancelled():
            error = task.exception()
            if error is not None:
                raise error


def explained(error: BaseException | None) -> StreamLshError | None:
    """The error in a form that an operator understands; None for an unexpected one."""
    if isinstance(error, StreamLshError):
        return error
    number = refusal(error) if isinstance(error, Exception) else None
    if number in (errno.EMFILE, errno.ENFILE):
        return StreamLshError(
            "too many open files: raise the limit (ulimit -n), or start more workers for forward, which needs some for "
            "each of its partitions"
        )
    if number in (errno.ENOSPC, errno.EDQUOT):
        where = f" while writing {error.filename}" if isinstance(error, OSError) and error.filename else ""
        return OutputError(f"no space left on the disk{where}; make room and start the worker again")
    return None


def main() -> NoReturn:
    """The child: a job from standard input, an error message to standard output, 0 after a clean stop."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; the supervisor decides
    signal.signal(signal.SIGTERM, _interrupt)
    report = os.dup(1)
    os.dup2(2, 1)  # keeps the prints of libraries out of the report
    code = 0
    try:
        line = sys.stdin.buffer.readline()
        if line:
            threading.Thread(target=_watch_supervisor, daemon=True).start()
            job, settings = load(line)
            gc.set_threshold(OBJECTS)  # imported objects stay for good
            asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())  # a tenth cheaper than asyncio's own loop
            logs.set_up(job.log_level, job.name)
            # A second signal has no effect here: the supervisor kills a child that it does not want to wait for.
            with Signals() as signals:
                run(job, settings, signals)
    except BaseException as error:
        ignore()
        code = _reported(error, report)
    with suppress(OSError, ValueError):
        sys.stderr.flush()
    os._exit(code)  # at once: threads of libraries may be slow to end


def _reported(error: BaseException, report: int) -> int:
    """Report why this process ends: an expected error to the supervisor, any other to the log. Returns the exit
    code."""
    if isinstance(error, KeyboardInterrupt):  # before `run` has begun
        return 0
    if isinstance(error, StreamLshError):
        with suppress(OSError):
            os.write(report, orjson.dumps({"message": str(error)}))
        return error.exit_code
    log.error("unexpected error; please report it", exc_info=error)
    return StreamLshError.exit_code


def _interrupt(_: int, __: FrameType | None) -> None:
    raise KeyboardInterrupt


def _watch_supervisor() -> None:
    """Stop when the supervisor has ended. On Linux `children.bound` kills this process before."""
    while sys.stdin.buffer.read(1):
        pass
    log.warning("the supervisor has ended; stopping")
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(DRAIN + 10)
    os._exit(KILLED)


if __name__ == "__main__":
    main()
