"""The log of a worker: one line per event on standard error, with time, level and role."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Callable
from contextvars import ContextVar
from functools import partial
from typing import Any

LEVELS = ("debug", "info", "warning", "error")
CLIENTS = ("aiokafka",)  # these log many times what our own messages say once
# So does Faust. A service of Faust logs under the module of its class, which for subclasses is one of ours.
FAUST = ("faust", "mode", *(f"stream_lsh.kafka.match.{module}" for module in ("app", "faust_driver", "store")))

log = logging.getLogger("stream_lsh.kafka.run.logs")

role: ContextVar[str] = ContextVar("role")
"""The role of the running task."""


class _Line(logging.Formatter):
    """`2026-11-21T15:07:20.123Z WARNING judge: text`."""

    converter = time.gmtime  # type: ignore[assignment]
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"


class _Role(logging.Filter):
    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process

    def filter(self, record: logging.LogRecord) -> bool:
        record.role = role.get(self._process)
        return True


def set_up(level: str, process: str) -> None:
    """Log to standard error from `level` on. Libraries log from warnings on, Kafka's clients only at level debug.

    Args:
        level: one of LEVELS.
        process: the name in the log lines while no role is running.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Line("%(asctime)s %(levelname)s %(role)s: %(message)s"))
    handler.addFilter(_Role(process))
    everything = level == "debug"
    logging.basicConfig(level=logging.INFO if everything else logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("stream_lsh").setLevel(level.upper())
    for name in (*CLIENTS, *FAUST):
        logging.getLogger(name).setLevel(logging.INFO if everything else logging.CRITICAL)


def hush(loop: asyncio.AbstractEventLoop, expected: Callable[[BaseException], bool]) -> None:
    """Make the loop log at level debug what a failed run leaves behind: unretrieved errors, and errors of tasks and
    callbacks of Kafka's clients. Everything else is logged as before.

    Args:
        expected: whether a run may end with this error.
    """
    if loop.get_exception_handler() is None:  # once for all roles
        loop.set_exception_handler(partial(_handle, expected))


def _handle(
    expected: Callable[[BaseException], bool], loop: asyncio.AbstractEventLoop, context: dict[str, Any]
) -> None:
    error, message = context.get("exception"), str(context.get("message"))
    unasked = message.endswith("exception was never retrieved")
    if isinstance(error, Exception) and ((unasked and expected(error)) or _of_a_client(error)):
        log.debug("%s", message, exc_info=error)
    else:
        loop.default_exception_handler(context)


def _of_a_client(error: BaseException) -> bool:
    """Whether the error comes from a Kafka client: of its code and ours, the innermost is the client's."""
    trace, found = error.__traceback__, ""
    while trace is not None:
        package = trace.tb_frame.f_globals.get("__name__", "").partition(".")[0]
        found = package if package in (*CLIENTS, __name__.partition(".")[0]) else found
        trace = trace.tb_next
    return found in CLIENTS
