"""Workers with names in their groups: a restart moves nothing, who is gone for good is replaced, no name is for two."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.kafka.feeding import feed_of, lines, records_of
from support.kafka.harness import Pipeline, Worker, until

from stream_lsh.errors import UsageError
from stream_lsh.kafka.client import clients
from stream_lsh.kafka.settings import ROLES, KafkaSettings

SESSION_MS = 45_000  # enough for a worker to be back on a busy machine
# What a worker says when its groups have shared out anew.
MOVES = ("reading ", "gave up ", "standing by", "member of generation", "forwarding ", "judging from", "answering for")


def moves(worker: Worker) -> list[str]:
    """What it has said of all that."""
    return [line for line in worker.said(1 << 24).splitlines() if any(f": {move}" in line for move in MOVES)]


def settled(pipeline: Pipeline, number: int) -> None:
    """Wait until all groups have so many members, and have shared out what there is."""
    until(
        lambda: all(pipeline.members(role) == number for role in ROLES), why=pipeline.report("the groups do not settle")
    )


@pytest.mark.first
def test_a_restart_moves_nothing(broker: Any, prefix: str, tmp_path: Path, shared_data: Path) -> None:
    values = feed_of(lines(shared_data, "posts-120k.jsonl.xz", 1500), 5)
    third = len(values) // 3
    given: dict[str, Any] = {"partitions": 4, "shards": 2, "session_timeout_ms": SESSION_MS}
    with Pipeline(broker.bootstrap, prefix, tmp_path, **given) as pipeline:
        here, there = pipeline.worker(instance="pod-0"), pipeline.worker(instance="pod-1")
        settled(pipeline, 2)
        pipeline.produce(records_of(values[:third], 4, 1))
        pipeline.finish()
        settled(pipeline, 2)
        known = moves(there)
        for number, stop in enumerate((Worker.kill, pipeline.stop)):
            stop(here)
            pipeline.produce(records_of(values[third + number * 100 : third + (number + 1) * 100], 4, 2 + number))
            here.start()
            pipeline.finish()
            assert moves(there) == known, pipeline.report("something has moved")
            assert all(pipeline.members(role) == 2 for role in ROLES)
        # Who does not come back is missed in the end: after a session, of which each member says how long it is.
        pipeline.stop(here)
        pipeline.workers.remove(here)
        here = pipeline.worker(name=here.name, instance="pod-0", session_timeout_ms=6000)
        pipeline.produce(records_of(values[third + 200 : third + 300], 4, 4))
        pipeline.finish()
        here.kill()
        pipeline.produce(records_of(values[third + 300 :], 4, 5))
        pipeline.finish()
        settled(pipeline, 1)
        assert len(moves(there)) > len(known)
        pipeline.stop(there)
        pipeline.check()


class Group:
    """A group as the brokers describe it, and a consumer that believes to be a member of it."""

    def __init__(self, *ids: str, ours: str, generation: int = 3) -> None:
        self.ids = ids
        self.member_id, self.generation = ours, generation
        self._coordinator = self
        self.looks = 0
        self.pushed: list[Exception] = []

    async def describe_consumer_groups(self, _: list[str]) -> list[Any]:
        self.looks += 1
        if self.looks > 5:
            raise asyncio.CancelledError
        members = [(id, "client", "host", b"", b"") for id in self.ids]
        return [SimpleNamespace(groups=[(0, "group", "Stable", "consumer", "range", members)])]

    async def _push_error_to_user(self, error: Exception) -> None:
        self.pushed.append(error)


def id_of(name: str, number: int) -> str:
    """The id that brokers give to a member."""
    return f"{name}-{uuid.UUID(int=number)}"


@pytest.mark.parametrize(
    ("group", "looks"),
    [
        (Group(id_of("pod-1", 8), id_of("pod-0", 2), ours=id_of("pod-0", 1)), 2),
        (Group(id_of("pod-1", 8), id_of("pod-0", 1), ours=id_of("pod-0", 1)), None),
        (Group(id_of("pod-1", 8), ours=id_of("pod-0", 1)), None),
        (Group(id_of("pod-0-x", 8), id_of("my-pod-0", 9), ours=id_of("pod-0", 1)), None),
        (Group(id_of("pod-0", 2), ours="", generation=-1), None),  # it joins: the other one is what was before
    ],
)
async def test_whether_another_process_has_our_name(
    group: Group, looks: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    @asynccontextmanager
    async def described(_: KafkaSettings) -> AsyncIterator[Group]:
        yield group

    monkeypatch.setattr(clients, "admin", described)
    monkeypatch.setattr(clients, "NAME_SECONDS", 0)
    with suppress(asyncio.CancelledError):
        await clients.watch_name(group, KafkaSettings(instance="pod-0"), "t.sign", "pod-0")
    if looks is None:
        assert not group.pushed and group.looks == 6
    else:
        assert group.looks == looks
        (error,) = group.pushed
        assert isinstance(error, UsageError) and "t.sign under the name of this one (instance = 'pod-0')" in str(error)


def test_a_name() -> None:
    assert KafkaSettings().instance is None
    for name in ("", "a b", "x" * 201):
        with pytest.raises(UsageError, match="instance"):
            KafkaSettings.load(instance=name)
