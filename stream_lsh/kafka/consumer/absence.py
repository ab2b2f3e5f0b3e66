"""Waiting for a Schema Registry that is absent."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from stream_lsh.embedded.often import Often
from stream_lsh.kafka.registry.decoding import Absent
from stream_lsh.kafka.run.metrics import Probe

T = TypeVar("T")

REGISTRY = "registry"  # reason of stalls
PAUSE_SECONDS = 0.1, 5.0  # shortest and longest pause between attempts
SAY_SECONDS = 30.0  # between two warnings


class Absence:
    """Asks a Schema Registry until it answers.

    Args:
        log: of the warnings.
        probe: of a role; while the registry is absent it says what the role waits for.
    """

    def __init__(self, log: logging.Logger, probe: Probe | None) -> None:
        self._log = log
        self._probe = probe
        self._often = Often(SAY_SECONDS)

    async def answered(
        self, ask: Callable[[], Awaitable[T]], pause: Callable[[float], Awaitable[bool]]
    ) -> T | None:  # fmt: skip
        """The registry's answer, None if it was given up.

        Args:
            ask: raises Absent if there is no answer.
            pause: waits for so many seconds between two attempts, and returns whether to give up.
        """
        seconds, longest = PAUSE_SECONDS
        try:
            while True:
                try:
                    return await ask()
                except Absent as error:
                    if self._probe is not None:
                        self._probe.waits(str(error))
                        self._probe.stalled(REGISTRY)
                    if self._often.due():
                        self._log.warning("%s; waiting for it", error)
                if await pause(seconds):
                    return None
                seconds = min(2 * seconds, longest)
        finally:
            if self._probe is not None:
                self._probe.waits(None)
