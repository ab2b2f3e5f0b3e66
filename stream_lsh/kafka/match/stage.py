"""The match role as a stage of our own worker: one run of the Faust application in the process's event loop."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import ClassVar

from faust.exceptions import FaustError

from stream_lsh.kafka.match.app import MatchApp
from stream_lsh.kafka.run.restarts import Failed, Stage

log = logging.getLogger("stream_lsh.kafka.match")

LOOK_SECONDS = 0.1  # between two checks whether the app has crashed, perhaps in the thread of its consumer
STOP_SECONDS = 20.0


class MatchStage(Stage):
    """Runs the shards that Faust assigns to this member."""

    role: ClassVar[str] = "match"

    async def run(self, stop: asyncio.Event) -> None:
        """One run; see `Stage.run`."""
        app = MatchApp(self.settings, self.probe)
        starting = asyncio.create_task(app.start())
        try:
            await self._until(stop, app, starting)
        finally:
            await self._end(app, starting)
        error = app.ended
        if starting.done() and not starting.cancelled():
            error = error or starting.exception()
        if error is None or (stop.is_set() and isinstance(error, asyncio.CancelledError)):
            return
        if isinstance(error, FaustError) or not isinstance(error, Exception):
            raise Failed(f"Faust: {error!r}") from error
        raise error

    async def _until(self, stop: asyncio.Event, app: MatchApp, starting: asyncio.Task[None]) -> None:
        asked = asyncio.create_task(stop.wait())
        try:
            while not asked.done() and app.ended is None and not app.crashed:
                if starting.done() and starting.exception() is not None:
                    return
                await asyncio.wait([asked], timeout=LOOK_SECONDS)
        finally:
            asked.cancel()

    async def _end(self, app: MatchApp, starting: asyncio.Task[None]) -> None:
        stopping = asyncio.create_task(app.stop())
        await asyncio.wait([stopping], timeout=STOP_SECONDS)
        if not stopping.done():
            # It leaves the group when the broker answers again, or when the request times out.
            log.warning("Faust did not stop within %d s", STOP_SECONDS)
        elif stopping.exception() is not None:
            log.warning("Faust stopped with an error: %r", stopping.exception())
        starting.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await starting
        await app.let_go()  # also what an unfinished start has opened
