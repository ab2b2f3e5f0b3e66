"""The role group in a simulated Kafka, and killed on a real one: each event and alert once, whatever disk is left."""

import asyncio
import errno
import json
import os
import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from aiokafka import ConsumerRecord
from aiokafka.consumer.fetcher import Fetcher
from support.kafka.brokers import Make, settings_for
from support.kafka.group_play import RULES, embedded_lines, memberships
from support.kafka.judge_play import PARTITIONS
from support.kafka.last_steps import DEATHS, Victim
from support.kafka.stages import COMPACTED, commit, ended, make_topics, records, running, send, until, until_committed
from support.simulation.runner import simulated

from stream_lsh.alerts.rules import read_rules
from stream_lsh.embedded.group_table import table
from stream_lsh.errors import StoreError
from stream_lsh.index.store.rocksdb import Store, name_key
from stream_lsh.kafka.groups import stage as group
from stream_lsh.kafka.groups.stage import GroupStage
from stream_lsh.kafka.groups.store import FOLDER, PLACE, LocalStore
from stream_lsh.kafka.names import Topics
from stream_lsh.kafka.run.metrics import Probe
from stream_lsh.kafka.settings import KafkaSettings


@pytest.fixture
def make(make: Make, tmp_path: Path) -> Make:
    file = tmp_path / "rules.toml"
    file.write_text(RULES)
    return partial(
        make, partitions=PARTITIONS, verify="signature", groups=True, source_field="outlet", alerts=file,
        session_timeout_ms=30_000, transaction_timeout_ms=30_000, give_up_seconds=300,
    )  # fmt: skip


@pytest.fixture(autouse=True)
def small_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group, "ROUND_DOCUMENTS", 60)
    monkeypatch.setattr(group, "QUIET_SECONDS", 0.5)


async def say(settings: KafkaSettings, said: Sequence[bytes]) -> None:
    """Write memberships."""
    await send(settings, Topics.of(settings).memberships, said)


async def until_folded(settings: KafkaSettings, position: int, victim: Victim | None = None) -> None:
    await until_committed(
        settings, "group", Topics.of(settings).memberships,
        lambda found: found.get(0, -1) >= position or (victim is not None and victim.dead),
    )  # fmt: skip


async def feed(settings: KafkaSettings, said: Sequence[bytes], begin: int, end: int, victim: Victim | None) -> None:
    """Memberships in slices, each when the one before is folded, or nobody is left to fold."""
    for start in range(begin, end, 10):
        stop = min(start + 10, end)
        await say(settings, said[start:stop])
        await until_folded(settings, stop, victim)


async def committed_records(settings: KafkaSettings, topic: str) -> list[ConsumerRecord]:
    return await records(settings, topic, isolation="read_committed")


def elsewhere(settings: KafkaSettings, folder: Path) -> KafkaSettings:
    """As another worker has them, with a disk of its own."""
    return settings.model_copy(update={"data_folder": folder})


def row_of(event: bytes) -> dict[str, Any]:
    return {name: value for name, value in json.loads(event).items() if name not in ("event", "seq", "id")}


async def test_killed_in_a_transaction(make: Make, tmp_path: Path) -> None:
    """The one that takes over has no disk."""
    settings = await make(**DEATHS)
    said, _ = memberships(settings, tmp_path, 900)
    victim = Victim("group", settings, 3)
    await until_folded(settings, 0)
    await feed(settings, said, 0, len(said), victim)
    await asyncio.to_thread(victim.wait_until_dead)
    other = elsewhere(settings, tmp_path / "other")
    probe = Probe("group")
    async with running(GroupStage, other, probe):
        await until_folded(settings, len(said))
        await say(settings, said[-3:])  # repeats change nothing
        await until_folded(settings, len(said) + 3)
    assert probe.registry.ignored.labels("group", "repeat")._value.get() == 3
    # Events and alerts are those of the embedded engine, each once, in order; the table is that of the last ones.
    folder = tmp_path / "check"
    topics, rules = Topics.of(settings), read_rules(settings.alerts or Path())
    events, alerts = embedded_lines(settings, folder, rules, said)
    assert len(events) > 100 and {json.loads(line)["rule"] for line in alerts} == {rule.name for rule in rules}
    found = await committed_records(settings, topics.groups)
    assert [record.value for record in found] == events
    assert all(json.loads(record.value)["group"] == int(record.key) for record in found)
    assert [record.value for record in await committed_records(settings, topics.alerts)] == alerts
    changelog = {record.key: record.value for record in await committed_records(settings, topics.group_changelog)}
    assert name_key(PLACE) not in changelog
    rebuilt = Store(folder / "rebuilt" / "db", sync=False)
    rebuilt.write({key: value for key, value in changelog.items() if value is not None})
    rebuilt.close()
    rows = {row.group.group: json.loads(row.group.json) for row in table(folder / "rebuilt")}
    assert rows == {json.loads(record.value)["group"]: row_of(record.value) for record in found}


async def test_compaction_leaves_the_table_and_all_that_is_needed_to_go_on(
    broker: Any, prefix: str, make: Make, tmp_path: Path
) -> None:
    plain = settings_for(broker, prefix, tmp_path, groups=True)
    topics = Topics.of(plain)
    more = {"message.timestamp.type": "LogAppendTime", "max.message.bytes": str(80 << 20)}
    await make_topics(plain, COMPACTED | more, topics.groups, topics.group_changelog)
    settings = await make()
    said, _ = memberships(settings, tmp_path, 900)
    half = len(said) // 2
    events, alerts = embedded_lines(settings, tmp_path / "told", read_rules(settings.alerts or Path()), said)

    async with running(GroupStage, settings):
        await feed(settings, said, 0, half, None)
        first = {topic: await committed_records(settings, topic) for topic in (topics.groups, topics.group_changelog)}
        await asyncio.sleep(1.5)  # then the next records begin a segment
        await feed(settings, said, half, half + 10, None)

    async def compacted() -> bool:
        after = {topic: await committed_records(settings, topic) for topic in first}
        return all(
            sum(record.offset <= first[topic][-1].offset for record in found) < len(first[topic])
            for topic, found in after.items()
        )

    await until(compacted, "something is compacted")
    async with running(GroupStage, elsewhere(settings, tmp_path / "empty")):
        await feed(settings, said, half + 10, len(said), None)
    found = await committed_records(settings, topics.groups)
    assert len(found) < len(events)
    rows = {json.loads(record.value)["group"]: row_of(record.value) for record in found}
    assert rows == {json.loads(event)["group"]: row_of(event) for event in events}
    assert [record.value for record in await committed_records(settings, topics.alerts)] == alerts


@simulated()
async def test_what_is_not_there_is_said(make: Make, tmp_path: Path) -> None:
    settings = await make()
    said, frames = memberships(settings, tmp_path, 200)
    topics = Topics.of(settings)
    await say(settings, [said[0], *said[2:4]])
    with pytest.raises(StoreError, match=rf"what follows after frame {frames[0].offset}, before offset 1.*reindex"):
        await ended(GroupStage, settings)
    await commit(settings, "group", topics.memberships, 1, "by hand")
    with pytest.raises(StoreError, match="set by hand"):
        await ended(GroupStage, settings)


@pytest.mark.parametrize("name", ["mkdir", "rmtree"])
def test_full_disk_names_folder_and_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """The system does not name the file."""

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    LocalStore.of(tmp_path / FOLDER, "others", 0).close()
    monkeypatch.setattr(Path if name == "mkdir" else shutil, name, full)
    with pytest.raises(StoreError, match=r"groups cannot be used: No space left on device; make room on the disk"):
        LocalStore.of(tmp_path / FOLDER, "these", 0)


@simulated()
async def test_a_store_that_is_lost_is_read_again(make: Make, tmp_path: Path) -> None:
    """Another pipeline's store, or one that cannot be read."""
    settings = await make()
    said, _ = memberships(settings, tmp_path, 200)
    topics = Topics.of(settings)
    await say(settings, said)
    async with running(GroupStage, settings):
        await until_folded(settings, len(said))
    events, _ = embedded_lines(settings, tmp_path / "told", (), said)
    assert [record.value for record in await committed_records(settings, topics.groups)] == events
    place = settings.data_folder / FOLDER / "db"
    store = Store(place, sync=False)
    store.write({name_key(PLACE): b'{"state":"another","position":1,"changelog":0}'})
    store.close()
    await say(settings, said[-1:])
    async with running(GroupStage, settings):
        await until_folded(settings, 1 + len(said))
    (place / "CURRENT").write_bytes(b"nonsense\n")
    await say(settings, said[-1:])
    async with running(GroupStage, settings):
        await until_folded(settings, 2 + len(said))
    assert [record.value for record in await committed_records(settings, topics.groups)] == events


@simulated()
async def test_a_reader_of_the_changelog_that_fails_is_replaced(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = await make()
    said, _ = memberships(settings, tmp_path, 200)
    await say(settings, said[:-1])
    async with running(GroupStage, settings):
        await until_folded(settings, len(said) - 1)
    actions, fail = Fetcher._get_actions_per_node, True

    def broken(self: Fetcher, assignment: Any) -> Any:
        nonlocal fail
        if fail and any(place.topic == Topics.of(settings).group_changelog for place in assignment.tps):
            fail = False
            raise OverflowError("unforeseen")
        return actions(self, assignment)

    monkeypatch.setattr(Fetcher, "_get_actions_per_node", broken)
    await say(settings, said[-1:])
    async with asyncio.timeout(120), running(GroupStage, elsewhere(settings, tmp_path / "other")):
        await until_folded(settings, len(said))
    assert not fail


@simulated()
@pytest.mark.parametrize(("kept", "rebuilt"), [("0", True), ("86400000", False)])
async def test_store_older_than_tombstones_is_read_again(
    broker: Any, prefix: str, make: Make, tmp_path: Path, kept: str, rebuilt: bool
) -> None:
    """While it was away, the tombstone of one of its values was written and is gone."""
    topic = Topics.of(settings_for(broker, prefix, tmp_path)).group_changelog
    config = {"cleanup.policy": "compact", "delete.retention.ms": kept, "message.timestamp.type": "LogAppendTime"}
    await make_topics(settings_for(broker, prefix, tmp_path), config, topic)
    settings = await make()
    said, _ = memberships(settings, tmp_path, 900)
    for part, disk in enumerate((settings, elsewhere(settings, tmp_path / "other"), settings)):
        async with running(GroupStage, disk):
            await feed(settings, said, part * len(said) // 3, (part + 1) * len(said) // 3, None)
        store = Store(disk.data_folder / FOLDER / "db", sync=False)
        assert (store.named("deleted") is None) == (rebuilt or part < 2)
        store.write({name_key("deleted"): b"1"})
        store.close()
