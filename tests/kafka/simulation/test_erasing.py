"""Erasing by workers: owner, standby, and a worker without a disk behind a cleaned changelog."""

import asyncio
from pathlib import Path

import orjson
import pytest
from support.contents import contents, unpacked_from
from support.kafka import plain
from support.kafka.feeding import Record
from support.simulation.cluster import Cluster
from support.simulation.pipeline import Pipeline, Worker
from support.simulation.runner import simulated
from support.simulation.world import World

from stream_lsh.index.rows.row_file import Shape
from stream_lsh.kafka.groups.store import FOLDER
from stream_lsh.kafka.match import cleaning
from stream_lsh.kafka.tools import drain
from stream_lsh.wire.bases import is_base

N, PARTS = 90, 3
TIME, MINUTE = 10**12, 60_000  # ms; a part takes five minutes


def documents(part: int) -> list[Record]:
    """Documents with words of their own; of every third of the part before the id is deleted."""
    found: list[dict[str, object]] = [
        {"id": f"name-{i}-", "text": " ".join(f"w{i}x{k}" for k in range(12))}
        for i in range(part * N // PARTS, (part + 1) * N // PARTS)
    ]
    found += [{"id": id, "deleted": True} for id in gone(part)]
    for number, document in enumerate(found):
        document["ts"] = TIME + part * 5 * MINUTE + number * MINUTE // 10
    return [Record(0, None, orjson.dumps(document)) for document in found]


def gone(part: int) -> list[str]:
    return [f"name-{i}-" for i in range((part - 1) * N // PARTS, part * N // PARTS, 3)] if part else []


@simulated()
@pytest.mark.parametrize("window", [None, "8m"])
async def test_what_is_deleted_leaves_folders_and_changelog(world: World, cluster: Cluster, window: str | None) -> None:
    """With a window, the first part leaves it before the last one ends."""
    pipeline = Pipeline(
        world, cluster, **plain.SURE, on_conflict="update", deleted_field="deleted", erase_hours=0, standbys=1,
        partitions=1, frame_documents=8, memtable_documents=32, segment_documents=60, time_field="ts", window=window,
    )  # fmt: skip

    def left(data: list[bytes], part: int) -> list[str]:
        return [id for before in range(part + 1) for id in gone(before) if any(id.encode() in each for each in data)]

    async def erased(part: int) -> None:
        """Take a part, and wait until nothing of what is deleted by then is in the changelog."""
        await pipeline.feed(documents(part), 50)
        await pipeline.finish([others], 300)
        end = world.seconds + 300
        while found := left(unpacked_from([record.value or b"" for record in pipeline.records("changelog")]), part):
            assert world.seconds < end, found
            await asyncio.sleep(1)

    await pipeline.create_topics()
    others = pipeline.start("sign", "sequence", "judge", "forward")
    owner = pipeline.start("match")
    await erased(0)
    standby = pipeline.start("match")
    await erased(1)
    owner.process.kill()
    assert not left(contents(owner.folder), 1)
    newest = pipeline.start("match")
    await erased(2)
    for worker in (standby, newest):
        await pipeline.stop(worker)
        assert not left(contents(worker.folder), 2)
    assert not any("the shard lacks" in line for line in world.warnings)
    pipeline.check()


FAMILIES, COPIES = 12, 3


def family(i: int, copy: int) -> dict[str, object]:
    return {"id": f"name-{i}-{copy}-", "text": " ".join(f"f{i}x{k}" for k in range(12))}


def feed_of_families() -> tuple[list[Record], list[bytes]]:
    """Copies of texts, of which the kept one or another one is deleted, and a second one when that has represented its
    group; texts of their own, which are deleted. Copies come again all the time. Also what has to be nowhere then."""
    alone = [{"id": f"alone-{i}-", "text": " ".join(f"a{i}x{k}" for k in range(12))} for i in range(FAMILIES)]
    first = [family(i, copy) for copy in range(COPIES) for i in range(FAMILIES)]
    gone: list[object] = [document["id"] for document in alone]
    gone += [family(i, int(i % 3 == 2))["id"] for i in range(FAMILIES)]
    later = [family(i, 1)["id"] for i in range(0, FAMILIES, 3)]
    found: list[dict[str, object]] = [*alone, *first, *({"id": id, "deleted": True} for id in gone)]
    for number in range(200):
        found.append({"id": number, "text": " ".join(f"{number}y{k}" for k in range(12))})
        found += [family(number // 4 % FAMILIES, 2)] if number % 4 == 0 else []
        found += [{"id": id, "deleted": True} for id in later] if number == 60 else []
    needles = [str(id).encode() for id in (*gone, *later)] + [f"a{i}x0 ".encode() for i in range(FAMILIES)]
    documents = [{**document, "ts": TIME + number * MINUTE // 10} for number, document in enumerate(found)]
    return [Record(0, None, orjson.dumps(document)) for document in documents], needles


@simulated(seeds=1, most=8)
@pytest.mark.parametrize(("shards", "groups", "window"), [(2, True, None), (3, False, "20m")])
async def test_what_is_deleted_is_nowhere_in_several_shards(
    world: World, cluster: Cluster, shards: int, groups: bool, window: str | None
) -> None:
    """The ids of documents for which others were dropped are in the decisions and replies of all shards."""
    pipeline = Pipeline(
        world, cluster, **plain.SURE, on_conflict="update", deleted_field="deleted", erase_hours=0, standbys=1,
        partitions=1, frame_documents=8, memtable_documents=32, segment_documents=120, time_field="ts", shards=shards,
        decision_lag=16, groups=groups, window=window,
    )  # fmt: skip
    documents, needles = feed_of_families()

    def left(*folders: Path) -> set[tuple[str, bytes]]:
        """What can still be read in records that Kafka keeps, or in folders."""
        data = {str(folder): contents(folder) for folder in folders}
        for topic in pipeline.cluster.topics:
            if topic.startswith("sim."):
                logs = cluster.topics[topic].logs
                data[topic] = unpacked_from(record.value or b"" for log in logs for record in log.committed())
        return {(name, each) for name, found in data.items() for each in needles if any(each in one for one in found)}

    async def erased(but: set[str], *folders: Path) -> None:
        end = world.seconds + 300
        while found := {(name, each) for name, each in left(*folders) if name not in but}:
            assert world.seconds < end, sorted(found)
            await asyncio.sleep(1)

    await pipeline.create_topics()
    kept = [topic.logs for topic in cluster.topics.values() if topic.logs[0].config["retention.ms"] != "-1"]
    expiring = {name for name, topic in cluster.topics.items() if topic.logs in kept}
    others = pipeline.start(*(role for role in pipeline.settings.roles if role != "match"))
    owner, standby = pipeline.start("match"), pipeline.start("match")
    await pipeline.feed(documents, 50)
    await pipeline.finish([others, owner, standby], 300)
    await erased({*expiring, pipeline.topics.groups, pipeline.topics.group_changelog}, owner.folder, standby.folder)
    owner.process.kill()
    newest = pipeline.start("match")
    await pipeline.feed(documents[-20:], 50)
    await pipeline.finish([others, standby, newest], 300)
    pipeline.check()
    await pipeline.stop(standby, newest)
    for log in (log for logs in kept for log in logs):
        log.config["retention.ms"] = "0"
    await asyncio.sleep(1)
    cluster.clean(active=True)
    # The last event of a group has the id of its representative.
    await erased({pipeline.topics.groups}, others.folder, standby.folder, newest.folder)


def with_copies(part: int) -> list[Record]:
    """Each document of a part with two copies. Of the part before, every third document and a copy of each of the
    others are deleted: kept ones, representatives and dropped ones."""
    found: list[dict[str, object]] = []
    for record in documents(part):
        document = orjson.loads(record.value or b"")
        copies = [{**document, "id": f"{document['id']}{copy}-"} for copy in (0, 1)]
        found += [document] if "deleted" in document else [document, *copies]
    found += [{"id": id, "deleted": True, "ts": TIME + part * 5 * MINUTE} for id in gone_copies(part)]
    return [Record(0, None, orjson.dumps(document)) for document in found]


def gone_copies(part: int) -> list[str]:
    return [f"name-{i}-0-" for i in range((part - 1) * N // PARTS, part * N // PARTS) if i % 3 < 2] if part else []


@simulated()
async def test_what_is_deleted_leaves_groups_and_their_changelog(world: World, cluster: Cluster) -> None:
    """A member is killed. The next one has no disk, the one after it that of the first."""
    pipeline = Pipeline(
        world, cluster, **plain.SURE, on_conflict="update", deleted_field="deleted", erase_hours=0, groups=True,
        partitions=1, frame_documents=8, time_field="ts", transaction_timeout_ms=5000,
    )  # fmt: skip

    def left(part: int, *folders: Path) -> list[str]:
        """The ids in the values of the changelog that compaction keeps, or in folders."""
        last = {record.key: record.value or b"" for record in pipeline.records("group_changelog")}
        data = [*last.values(), *(each for folder in folders for each in contents(folder))]
        ids = [id for before in range(part + 1) for id in (*gone(before), *gone_copies(before))]
        return [id for id in ids if any(b'"%s"' % id.encode() in each for each in data)]

    async def erased(part: int, member: Worker) -> None:
        end = world.seconds + 100
        while found := left(part, member.folder / FOLDER):
            assert world.seconds < end, found
            await asyncio.sleep(1)

    async def fed(part: int, member: Worker) -> None:
        await pipeline.feed(with_copies(part), 50)
        await pipeline.finish([others], 300)
        await pipeline.drain()
        await erased(part, member)
        await drain.resume(pipeline.settings)

    await pipeline.create_topics()
    others = pipeline.start("sign", "sequence", "match", "judge", "forward")
    first = pipeline.start("group")
    await fed(0, first)
    first.process.kill()
    second = pipeline.start("group")
    await fed(1, second)
    second.process.kill()
    third = pipeline.start("group", folder=first.folder)
    await erased(1, third)
    await fed(2, third)
    pipeline.check()


@simulated()
@pytest.mark.parametrize("shards", [1, 2, 3])
async def test_changelog_of_updates_stays_small(world: World, cluster: Cluster, shards: int) -> None:
    """Without `erase_hours`. The owner is killed, perhaps within a snapshot; a worker without a disk reads what is
    left."""
    cleaning.SIZE_SECONDS = 0  # each seed has a process of its own
    pipeline = Pipeline(
        world, cluster, **plain.SURE, on_conflict="update", min_cleanable_bytes=8000, standbys=1, partitions=1,
        frame_documents=8, memtable_documents=32, shards=shards, decision_lag=16,
    )  # fmt: skip
    versions, ids, row = 60, 6, 8 * Shape(pipeline.settings).width

    def changelogs() -> list[list[bytes]]:
        found: list[list[bytes]] = [[] for _ in range(shards)]
        for record in pipeline.records("changelog"):
            found[record.partition].append(record.value or b"")
        return found

    await pipeline.create_topics()
    others = pipeline.start("sign", "sequence", "judge", "forward")
    owner, standby = pipeline.start("match"), pipeline.start("match")
    for part in range(4):
        found = [
            {"id": i % ids, "text": " ".join(f"w{part}x{i}x{k}" for k in range(60 + i % 40))} for i in range(versions)
        ]
        await pipeline.feed([Record(0, None, orjson.dumps(document)) for document in found], 20)
        if part % 2:
            owner.process.kill()
            owner, standby = standby, pipeline.start("match")
        await pipeline.finish([others], 300)
        await asyncio.sleep(10)
        undecided = 0 if shards == 1 else pipeline.settings.decision_lag
        lives = (part + 1) * versions * row + (ids + undecided) * 800
        assert sum(len(record) for left in changelogs() for record in left) < 3 * lives
    for left in changelogs():
        assert is_base(left[0]) and len(left) < versions + undecided
        assert not any(b"w0x" in data for data in unpacked_from(left))
    await pipeline.stop(standby)
    assert not any(b"w0x" in data for data in contents(standby.folder))
    pipeline.check()
