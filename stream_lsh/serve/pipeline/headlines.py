"""Headlines of documents of a pipeline, from the records on the documents topic."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any

from stream_lsh.errors import StreamLshError
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.serve.headline import UNKNOWN, Headline, has_headlines, headline
from stream_lsh.serve.pipeline.originals import Originals
from stream_lsh.serve.problems import Problem

SECONDS = 10.0  # time limit of one list
MOST_HEADLINES = 400  # that wait, of all requests


class Headlines:
    """Reads headlines, a few at a time. Other reads of records do not wait for them. Used in the event loop.

    Args:
        known: what is known of a document. It raises Problem if nothing is.
        crowded: the problem for a request that is refused because others wait.
    """

    def __init__(
        self, settings: KafkaSettings, known: Callable[[str | int], dict[str, Any]], crowded: Callable[[str], Problem]
    ) -> None:
        self._settings = settings
        self._known = known
        self._crowded = crowded
        self._originals = Originals(settings)
        self._waiting = 0

    async def read(self, ids: Sequence[str | int]) -> list[Headline]:
        """The headlines of documents, in this order. `UNKNOWN` if a document is not there, or not read in time.

        Raises:
            Problem: too many headlines wait.
        """
        if self._waiting + len(ids) > MOST_HEADLINES:
            raise self._crowded(f"{self._waiting:,} headlines wait already")
        self._waiting += len(ids)
        reads = [asyncio.create_task(self._one(id)) for id in ids]
        try:
            if reads:
                await asyncio.wait(reads, timeout=SECONDS)
            return [read.result() if read.done() else UNKNOWN for read in reads]
        finally:
            self._waiting -= len(ids)
            for read in reads:
                read.cancel()

    async def _one(self, id: str | int) -> Headline:
        try:
            found = self._known(id)
            original = await self._originals.of(found["source"])
        except (Problem, StreamLshError):
            return UNKNOWN
        text = original.text if has_headlines(self._settings) else ""
        source = json.loads(original.source) if original.source else None
        return Headline(headline(text), source, found["time"])
