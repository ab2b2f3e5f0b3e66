"""One process of a worker: its roles on one event loop, with a port for health and metrics.

Run as a program it is a child of the supervisor in `worker.py`, which writes the job (settings, secrets among them) to
its standard input and keeps that open. If the supervisor is killed, so is the child: its data folder is free at once.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import importlib
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from types import FrameType
from typing import Any, NoReturn

import orjson
from pydantic import SecretStr

from stream_lsh.errors import OutputError, StreamLshError, UsageError
from stream_lsh.kafka import logs
from stream_lsh.kafka.health import Health, served
from stream_lsh.kafka.metrics import Registry, Watch
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.kafka.stage import Stage, keep_running

log = logging.getLogger("stream_lsh.kafka.worker")

STAGES = {
    "sign": "stream_lsh.kafka.sign:SignStage",
    "sequence": "stream_lsh.kafka.sequence:SequenceStage",
    "match": "stream_lsh.kafka.match:MatchStage",
    "judge": "stream_lsh.kafka.judge:JudgeStage",
    "forward": "stream_lsh.kafka.forward:ForwardStage",
}
"""Where the class of each role is; imported only where it runs."""
COMPILED = ("sign", "match")  # the roles that need kernels
DRAIN = 30.0  # seconds that a stop may take; what is not committed by then is done again by others
KILLED = 143
SIGNALS = (signal.SIGTERM, signal.SIGINT)
_CHILD = "-m", "stream_lsh.kafka.member"
_PR_SET_PDEATHSIG = 1  # linux/prctl.h


@dataclass(frozen=True, slots=True)
class Job:
    """What one process does. port: of /health and /metrics; ports: of all processes of the worker."""

    roles: tuple[str, ...]
    port: int | None = None
    ports: tuple[int, ...] = ()
    log_level: str = "info"
    stages: Mapping[str, str] = field(default_factory=lambda: STAGES)

    @property
    def name(self) -> str:
        """The roles, with commas between them."""
        return ",".join(self.roles)


def dump(job: Job, settings: KafkaSettings) -> bytes:
    """Job and settings as a line of JSON. It holds secrets: only for the child's input."""

    def plain(value: Any) -> Any:
        return value.get_secret_value() if isinstance(value, SecretStr) else value

    values = {name: plain(getattr(settings, name)) for name in KafkaSettings.model_fields}
    fields = {name: getattr(job, name) for name in Job.__dataclass_fields__} | {"stages": dict(job.stages)}
    return orjson.dumps({"job": fields, "settings": values}, default=str) + b"\n"


def load(line: bytes) -> tuple[Job, KafkaSettings]:
    """What `dump` has written."""
    found = orjson.loads(line)
    job = found["job"]
    job |= {name: tuple(job[name]) for name in ("roles", "ports")}
    return Job(**job), KafkaSettings.model_validate(found["settings"])


def command(job: Job) -> list[str]:
    """The command line of the child that does a job; the roles in it are only for whoever looks at `ps`."""
    return [sys.executable, *_CHILD, job.name]


def stage_class(path: str) -> type[Stage]:
    """The class at `module:Name`."""
    module, _, name = path.partition(":")
    found: type[Stage] = getattr(importlib.import_module(module), name)
    return found


def run(job: Job, settings: KafkaSettings, ready: Callable[[asyncio.Event], Awaitable[None]] | None = None) -> None:
    """Do a job until SIGTERM or SIGINT, then drain; a second signal ends the process at once.

    Args:
        ready: awaited before the work begins, with the event that asks to stop.

    Raises:
        StreamLshError: a role has given up; the others are stopped.
    """
    if ready is not None and _until_stopped(ready):
        return
    try:
        classes = {role: stage_class(job.stages[role]) for role in job.roles}
        if not set(job.roles).isdisjoint(COMPILED):
            from stream_lsh.kafka.warming import warm_up  # here, because it takes the whole engine with it

            warm_up(settings)
    except KeyboardInterrupt:  # there is nothing to drain yet
        return
    _until_stopped(lambda stop: run_roles(job, settings, classes, stop))


def _until_stopped(work: Callable[[asyncio.Event], Awaitable[None]]) -> bool:
    """Whether a signal has asked to stop while `work` was going on."""

    async def worked() -> bool:
        stop = asyncio.Event()
        with_signals(stop.set, lambda: os._exit(KILLED))
        await work(stop)
        return stop.is_set()

    before = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        return asyncio.run(worked())
    finally:
        for number, handler in before.items():  # a loop that ends leaves the default handlers, which kill
            if handler is not None:
                signal.signal(number, handler)


def with_signals(first: Callable[[], object], second: Callable[[], object]) -> None:
    """Call `first` at the first SIGTERM or SIGINT of the running loop, `second` at each further one."""
    loop = asyncio.get_running_loop()
    seen = 0

    def act() -> None:
        nonlocal seen
        seen += 1
        (first if seen == 1 else second)()

    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            loop.add_signal_handler(number, act)


async def run_roles(
    job: Job, settings: KafkaSettings, classes: Mapping[str, Callable[[KafkaSettings, Watch], Stage]],
    stop: asyncio.Event,
) -> None:  # fmt: skip
    """Run the roles of a job until `stop` is set or one of them gives up; then all drain.

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
                raise UsageError(
                    f"http_port {job.port} on http_host {settings.http_host} cannot be used: "
                    f"{os.strerror(error.errno or 0)}. Each process of a worker takes one, from http_port on."
                ) from None
            log.info("health and metrics of %s at http://%s:%d", job.name, settings.http_host, port)
        tasks = []
        for role in job.roles:
            watch = Watch(role, registry, health)
            lives = keep_running(partial(classes[role], settings, watch), stop, settings, watch)
            tasks.append(asyncio.create_task(lives, name=role))
        log.info("started %s", job.name)
        asked = asyncio.create_task(stop.wait())
        ended, _ = await asyncio.wait([*tasks, asked], return_when=asyncio.FIRST_COMPLETED)
        asked.cancel()
        stop.set()
        began = time.monotonic()
        _, late = await asyncio.wait(tasks, timeout=DRAIN)
        for task in late:
            log.warning(
                "%s did not finish within %d s; others do again what it has not committed", task.get_name(), DRAIN
            )
            task.cancel()
        if late:
            await asyncio.wait(late, timeout=5)
        _raise_first([task for task in tasks if task in ended] + tasks)
        log.info("stopped %s in %.1f s", job.name, time.monotonic() - began)


def _raise_first(tasks: Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        if task.done() and not task.cancelled():
            error = task.exception()
            if error is not None:
                raise error


def explained(error: BaseException) -> StreamLshError | None:
    """An error that a person can understand; None for what nobody foresaw."""
    if isinstance(error, StreamLshError):
        return error
    full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    if full or "No space left on device" in str(error):
        where = f" while writing {error.filename}" if isinstance(error, OSError) and error.filename else ""
        return OutputError(f"no space left on the disk{where}; make room and start the worker again")
    return None


def main() -> NoReturn:
    """The child: a job from standard input, what went wrong to standard output, 0 after a clean stop."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to all processes; the supervisor says what to do
    signal.signal(signal.SIGTERM, _interrupt)
    report = os.dup(1)
    os.dup2(2, 1)  # what a library prints is not taken for the report
    code = 0
    try:
        line = sys.stdin.buffer.readline()
        if line:
            _die_with_supervisor()
            threading.Thread(target=_watch_supervisor, daemon=True).start()
            job, settings = load(line)
            logs.set_up(job.log_level, job.name)
            run(job, settings)
    except KeyboardInterrupt:
        pass
    except BaseException as error:
        known = explained(error)
        if known is None:
            log.exception("an error that was not foreseen; please report it")
        else:
            with suppress(OSError):
                os.write(report, orjson.dumps({"message": str(known)}))
        code = known.exit_code if known is not None else StreamLshError.exit_code
    with suppress(OSError, ValueError):
        sys.stderr.flush()
    os._exit(code)  # at once: threads of libraries may take their time


def _interrupt(_: int, __: FrameType | None) -> None:
    raise KeyboardInterrupt


def _die_with_supervisor() -> None:
    """Ask Linux to kill this process when its parent dies."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _watch_supervisor() -> None:
    """Stop when the supervisor is no more: where the system does not see to it, or it was dead before we asked."""
    while sys.stdin.buffer.read(1):
        pass
    log.warning("the supervisor is gone; stopping")
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(DRAIN + 10)
    os._exit(KILLED)


if __name__ == "__main__":
    main()
