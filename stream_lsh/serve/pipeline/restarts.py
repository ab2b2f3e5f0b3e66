"""Restarts a reader of topics after failures, and reports whether it is up to date."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

from stream_lsh.embedded.often import Often
from stream_lsh.errors import BrokerError
from stream_lsh.kafka.client.connection import FINAL, cause, explain
from stream_lsh.kafka.run.restarts import may_pass
from stream_lsh.kafka.settings import KafkaSettings

PAUSES = (0.1, 2.0)  # seconds between two runs: at first, and at most
SAY = 30.0  # seconds within which the same failure is logged only once
_LOG = logging.getLogger("stream_lsh.serve")


class Restarts:
    """Runs a reader for ever. After a failure of a broker it starts the reader again; listeners wait meanwhile.

    Args:
        read: one run of the reader. It gets a function to be called when it is up to date, or no longer is.
        moved: called when that changes.

    Attributes:
        up_to_date: whether everything is read.
        ever: whether it ever was.
        why: the last error, while it is not up to date.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        read: Callable[[Callable[[bool], None]], Awaitable[None]],
        moved: Callable[[], None],
    ) -> None:
        self.up_to_date = False
        self.why = ""
        self._settings = settings
        self._read = read
        self._moved = moved
        self._began = time.monotonic()
        self.ever = False
        self._often = Often(SAY)

    async def run(self) -> None:
        """Run until cancelled.

        Raises:
            StreamLshError: retrying cannot help, or the first run was not up to date within `give_up_seconds`.
        """
        pause = PAUSES[0]
        while True:
            began = time.monotonic()
            error = await self._once()
            self._tell(False)
            # A cluster that has just started may not have its topics yet.
            if not may_pass(error) and not (self.ever and isinstance(error, BrokerError)):
                raise error
            why = await cause(error, self._settings)
            self.why = str(explain(why, self._settings))
            if isinstance(why, FINAL) or (
                not self.ever and time.monotonic() > self._began + self._settings.give_up_seconds
            ):
                raise BrokerError(self.why) from error
            if self._often.due(self.why):
                _LOG.warning("%s It is tried again", self.why)
            pause = PAUSES[0] if time.monotonic() > began + 10 * PAUSES[1] else min(2 * pause, PAUSES[1])
            await asyncio.sleep(pause)

    async def _once(self) -> BaseException:
        """The error that ended a run. It runs in its own task: while the broker is down, aiokafka raises the
        cancellation of its own tasks, which is not ours."""
        reading = asyncio.ensure_future(self._read(self._tell))
        try:
            await asyncio.wait([reading])
        finally:
            if not reading.done():
                reading.cancel()
                await asyncio.wait([reading])
        if reading.cancelled():
            return ConnectionError("Kafka does not answer")
        return reading.exception() or ConnectionError("the reader has ended")

    def _tell(self, up_to_date: bool) -> None:
        if up_to_date:
            self.ever, self.why = True, ""
        if up_to_date != self.up_to_date:
            self.up_to_date = up_to_date
            self._moved()
