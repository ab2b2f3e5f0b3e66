"""One question to a copy, which is read up to the last verdict before and closed after it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

from stream_lsh.index.reader import IndexReader
from stream_lsh.kafka.client.connection import FINAL, cause, explain
from stream_lsh.kafka.lookup.lookup import Answer, AsOf, Lookup
from stream_lsh.kafka.run.restarts import may_pass
from stream_lsh.kafka.settings import KafkaSettings

PAUSE = 0.5  # seconds between two runs


async def ask_once(
    settings: KafkaSettings, folder: Path, question: Callable[[IndexReader], Answer]
) -> tuple[Answer, AsOf]:  # fmt: skip
    """The answer to a question, and the frame that it is as of.

    Args:
        folder: see `Lookup`.

    Raises:
        NotReady: the pipeline has judged no document yet.
        BrokerError: Kafka could not be read for `give_up_seconds`.
        StreamLshError: see `Lookup.follow`.
    """
    copy, end = Lookup(settings, folder), time.monotonic() + settings.give_up_seconds
    while True:
        try:
            return await _asked(copy, question)
        except Exception as error:
            if not may_pass(error):
                raise
            why = await cause(error, settings)
            if isinstance(why, FINAL) or time.monotonic() > end:
                raise explain(why, settings) from error
            await asyncio.sleep(PAUSE)


async def _asked(copy: Lookup, question: Callable[[IndexReader], Answer]) -> tuple[Answer, AsOf]:
    read = asyncio.Event()
    following = asyncio.create_task(copy.follow(lambda _: read.set()))
    waiting = asyncio.create_task(read.wait())
    try:
        await asyncio.wait([following, waiting], return_when=asyncio.FIRST_COMPLETED)
        if following.done():
            following.result()
        return await copy.ask(question)
    finally:
        waiting.cancel()
        following.cancel()
        await asyncio.gather(following, waiting, return_exceptions=True)
