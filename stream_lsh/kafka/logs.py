"""The log of a worker: one line an event on standard error, with time, level and role."""

from __future__ import annotations

import logging
import sys
import time
from contextvars import ContextVar

LEVELS = ("debug", "info", "warning", "error")
CLIENTS = ("aiokafka",)  # they say many times what we say once, in our words

role: ContextVar[str] = ContextVar("role")
"""The role that the running task belongs to."""


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
    """Log to standard error from `level` on; what libraries say from warnings on, what Kafka's clients say under debug.

    Args:
        level: one of LEVELS. process: what to call the process where no role is running.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Line("%(asctime)s %(levelname)s %(role)s: %(message)s"))
    handler.addFilter(_Role(process))
    everything = level == "debug"
    logging.basicConfig(level=logging.INFO if everything else logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("stream_lsh").setLevel(level.upper())
    for name in CLIENTS:
        logging.getLogger(name).setLevel(logging.INFO if everything else logging.CRITICAL)
