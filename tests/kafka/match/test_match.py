"""The match role against a real broker: nothing lost, nothing changed, whatever is killed, deleted or taken away."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from support.kafka.brokers import settings_for
from support.kafka.match_play import LIMIT, Replies, expected, frames, produce, workers
from support.kafka.replica_play import stream

from stream_lsh.kafka.tools.topics import create

pytestmark = pytest.mark.long

SIZE = 16


def small(broker: Any, prefix: str, tmp_path: Path, **given: Any) -> Any:
    """Two shards, quick detection of deleted rows."""
    return settings_for(broker, prefix, tmp_path, **{"shards": 2, "session_timeout_ms": 6000, **given})


async def test_a_standby_takes_over(broker: Any, prefix: str, tmp_path: Path) -> None:
    """kill -9 of the worker that answers; the other one has followed the changelog and has hardly any to recover."""
    settings = small(broker, prefix, tmp_path, shards=1, standbys=1)
    second = settings.model_copy(update={"data_folder": tmp_path / "second"})
    log = frames(settings, stream(1, 4000), SIZE)
    replies = Replies(settings)
    await create(settings)
    feeding = asyncio.create_task(produce(settings, log, 0.06))
    with workers(tmp_path) as start:
        one, two = start(settings), start(second)
        await replies.read(25)
        for worker in (one, two):
            await asyncio.to_thread(worker.wait_for, "member of generation")
        deadline = time.monotonic() + LIMIT
        while not (one.says("standing by") or two.says("standing by")):
            assert time.monotonic() < deadline
            await asyncio.sleep(0.1)
        await replies.read(min(len(replies.found[0]) + 15, len(log)))
        while len(answering := [w for w in (one, two) if w.last("answering") > w.last("standing by")]) != 1:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.1)
        answering[0].kill()
        await feeding
        await replies.read(len(log))
    assert replies.found == expected(settings, log, tmp_path)
