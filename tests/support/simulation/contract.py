"""Calls whose answers a simulated Kafka and a real one have to share: the contract of the simulation.

Each function makes calls on a broker and returns what was answered, without what may differ (ids of members and
producers, times). Names of topics, groups and transactional ids begin with a prefix of the caller's.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiokafka.conn import AIOKafkaConnection, create_conn
from aiokafka.protocol.admin import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteGroupsRequest,
    DeleteRecordsRequest,
    DescribeConfigsRequest,
    DescribeGroupsRequest,
)  # fmt: skip
from aiokafka.protocol.commit import OffsetCommitRequest, OffsetFetchRequest
from aiokafka.protocol.coordination import FindCoordinatorRequest
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.protocol.group import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)  # fmt: skip
from aiokafka.protocol.metadata import MetadataRequest
from aiokafka.protocol.offset import OffsetRequest
from aiokafka.protocol.produce import ProduceRequest
from aiokafka.protocol.transaction import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
)  # fmt: skip
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from support.simulation import wire
from support.simulation.cluster import TOPIC_DEFAULTS
from support.simulation.errors import Error

Answers = list[Any]
Contract = Callable[[str, str], Awaitable[Answers]]
BY_VERSION = "message.timestamp.after.max.ms"  # its default has changed with Kafka 4.0
ALL_CONTRACTS: list[Contract] = []

_MANY = 1 << 20  # bytes
_AGAIN = (Error.CONCURRENT_TRANSACTIONS, Error.COORDINATOR_NOT_AVAILABLE, Error.NOT_COORDINATOR, 14)
_SESSION = 10_000  # ms


def contract(calls: Contract) -> Contract:
    ALL_CONTRACTS.append(calls)
    return calls


class Client:
    """A connection to the only node of a cluster, and its answers by the names of their fields."""

    def __init__(self, connection: AIOKafkaConnection) -> None:
        self.connection = connection

    async def ask(self, request: Any) -> dict[str, Any]:
        """The answer. A coordinator that is busy or not there yet is asked again."""
        while True:
            answer = wire.fields_of(await self.connection.send(request))
            if answer.get("error_code") not in _AGAIN:
                return answer
            await asyncio.sleep(0.02)

    async def coordinator(self, key: str, kind: int) -> None:
        """Wait until a group (0) or a transactional id (1) has a coordinator: a new broker makes topics for them."""
        await self.ask(FindCoordinatorRequest(key, kind))

    async def topic(self, name: str, partitions: int = 1, **config: str) -> int:
        """Create a topic, and wait until it has leaders. It keeps all records, unless told otherwise: those of `batch`
        are years old, and a real broker looks for such now and then."""
        given = {"retention_ms": "-1"} | config
        entries = [(key.replace("_", "."), value) for key, value in given.items()]
        answer = await self.ask(CreateTopicsRequest([(name, partitions, 1, [], entries)], 10_000, False))
        while True:
            [topic] = (await self.ask(MetadataRequest([name])))["topics"]
            if len(topic["partitions"]) >= partitions and all(one["leader"] >= 0 for one in topic["partitions"]):
                return answer["topic_errors"][0]["error_code"]
            await asyncio.sleep(0.02)

    async def produce(self, topic: str, batch: bytes, name: str | None = None) -> tuple[int, int]:
        """Error and offset."""
        answer = await self.ask(ProduceRequest(name, -1, 10_000, [(topic, [(0, batch)])]))
        [found] = answer["topics"][0]["partitions"]
        return found["error_code"], found["offset"]

    async def fetch(self, topic: str, offset: int, committed: bool = False) -> Answers:
        """Error, bounds of the partition, first offsets of aborted transactions, and all records by offset. One answer
        may have fewer of them than there are."""
        aborted, records, at = set[int](), list[tuple[int, str]](), offset
        while True:
            answer = await self.ask(FetchRequest(50, 1, _MANY, int(committed), [(topic, [(0, at, _MANY)])]))
            [found] = answer["topics"][0]["partitions"]
            bounds = found["log_start_offset"], found["last_stable_offset"], found["highwater_offset"]
            aborted |= {one["first_offset"] for one in found["aborted_transactions"] or []}
            records += _records(found["message_set"] or b"")
            if not found["message_set"]:
                return [
                    found["error_code"],
                    bounds,
                    sorted(aborted),
                    [record for record in records if record[0] >= offset],
                ]
            at = records[-1][0] + 1

    async def offset_at(self, topic: str, time: int, committed: bool = False) -> tuple[int, int]:
        """Error and offset."""
        answer = await self.ask(OffsetRequest(-1, int(committed), [(topic, [(0, time)])]))
        [found] = answer["topics"][0]["partitions"]
        return found["error_code"], found["offset"]

    async def delete_before(self, topic: str, offset: int) -> tuple[int, int]:
        """Error and the first offset that is left."""
        answer = await self.ask(DeleteRecordsRequest([(topic, [(0, offset)])], 10_000))
        [found] = answer["topics"][0]["partitions"]
        return found["error_code"], found["low_watermark"]

    async def committed(self, group: str, topic: str) -> tuple[int, str]:
        """Offset and metadata."""
        answer = await self.ask(OffsetFetchRequest(group, [(topic, [0])]))
        [found] = answer["topics"][0]["partitions"]
        return found["offset"], found["metadata"]

    async def commit(self, group: str, topic: str, offset: int, generation: int = -1, member: str = "") -> int:
        """Error."""
        while True:
            request = OffsetCommitRequest(group, generation, member, -1, [(topic, [(0, offset, f"at {offset}")])])
            error = (await self.ask(request))["topics"][0]["partitions"][0]["error_code"]
            if error not in _AGAIN:
                return error
            await asyncio.sleep(0.02)

    async def join(self, group: str, member: str = "", instance: str | None = None) -> dict[str, Any]:
        request = JoinGroupRequest(group, _SESSION, _SESSION, member, instance, "consumer", [("range", b"who")])
        return await self.ask(request)

    async def sync(
        self,
        group: str,
        generation: int,
        member: str,
        given: dict[str, bytes] | None = None,
        instance: str | None = None,
    ) -> tuple[int, bytes]:
        """Error and assignment."""
        answer = await self.ask(SyncGroupRequest(group, generation, member, instance, list((given or {}).items())))
        return answer["error_code"], answer["member_assignment"] or b""

    async def beat(self, group: str, generation: int, member: str) -> int:
        return (await self.ask(HeartbeatRequest(group, generation, member)))["error_code"]

    async def state(self, group: str) -> tuple[str, int]:
        """State and number of members."""
        [found] = (await self.ask(DescribeGroupsRequest([group])))["groups"]
        return found["state"], len(found["members"])


@asynccontextmanager
async def connected(bootstrap: str) -> AsyncIterator[Client]:
    host, _, port = bootstrap.rpartition(":")
    connection = await create_conn(host, int(port), client_id="contract")
    try:
        yield Client(connection)
    finally:
        connection.close()


def batch(
    *values: str, producer: int = -1, epoch: int = -1, sequence: int = -1, transactional: bool = False,
    key: bytes | None = None, time: int = 1_700_000_000_000,
) -> bytes:  # fmt: skip
    builder = DefaultRecordBatchBuilder(2, 0, transactional, producer, epoch, sequence, _MANY)
    for place, value in enumerate(values):
        builder.append(place, time + place, key, value.encode(), [])
    return bytes(builder.build())


def _records(data: bytes) -> list[tuple[int, str]]:
    found, at = [], 0
    while at + 12 <= len(data):
        size = 12 + int.from_bytes(data[at + 8 : at + 12], "big")
        one = DefaultRecordBatch(data[at : at + size])
        found += [(r.offset, "marker" if one.is_control_batch else bytes(r.value or b"").decode()) for r in one]
        at += size
    return found


@contract
async def versions(bootstrap: str, prefix: str) -> Answers:
    """The version of each request that a client takes."""
    async with connected(bootstrap) as client:
        offered = client.connection._versions
        chosen = {}
        for api in {key for key, _ in wire.STRUCTS}:
            lowest, highest = offered.get(api, (0, -1))
            fitting = [version for key, version in wire.STRUCTS if key == api and lowest <= version <= highest]
            chosen[api] = max(fitting, default=None)
        return sorted((api, version) for api, version in chosen.items() if api in SERVED)


SERVED = {0, 1, 2, 3, 8, 9, 10, 11, 12, 13, 14, 15, 16, 18, 19, 20, 21, 22, 24, 25, 26, 28, 32, 33, 37, 42}
"""The APIs that the simulation serves."""


@contract
async def producers(bootstrap: str, prefix: str) -> Answers:
    """Idempotent producers: repeated, missing and old batches; bad ones."""
    topic, found = f"{prefix}.producers", []
    async with connected(bootstrap) as client:
        found.append(await client.topic(topic, max_message_bytes="1000"))
        found.append(await client.topic(topic))
        who = (await client.ask(InitProducerIdRequest(None, 1000)))["producer_id"]
        for sequence, epoch in [(0, 0), (1, 0), (0, 0), (1, 0), (3, 0), (2, 0), (5, 1), (0, 1), (3, 0)]:
            one = batch(f"{sequence} {epoch}", producer=who, epoch=epoch, sequence=sequence)
            found.append((sequence, epoch, await client.produce(topic, one)))
        found.append(await client.produce(topic, batch("no", producer=who + 10_000, epoch=0, sequence=7)))
        broken = bytearray(batch("broken"))
        broken[-1] ^= 1
        found.append(await client.produce(topic, bytes(broken)))
        found.append(await client.produce(topic, batch("x" * 2000)))
        found.append(await client.produce(topic, batch("a", "b", "c")))
        found.append(await client.produce(f"{prefix}.nowhere", batch("a")))
        found.append(await client.fetch(topic, 0))
    return found


@contract
async def offsets(bootstrap: str, prefix: str) -> Answers:
    """Bounds of a partition, times, deleted records."""
    topic, compacted, found = f"{prefix}.offsets", f"{prefix}.compacted", []
    async with connected(bootstrap) as client:
        await client.topic(topic, message_timestamp_before_max_ms=str(2**62))
        await client.topic(compacted, cleanup_policy="compact")
        for place in range(4):
            await client.produce(topic, batch(f"{place}", f"{place}+", time=1000 * place))
        for time in (-2, -1, 0, 1000, 1001, 2500, 3001, 3002):
            found.append((time, await client.offset_at(topic, time)))
        for offset in (0, 3, 8, 9, -5):
            found.append((offset, await client.fetch(topic, offset)))
        for offset in (3, 1, 9, 6):
            found.append((offset, await client.delete_before(topic, offset)))
        found.append(await client.fetch(topic, 2))
        found.append(await client.fetch(topic, 6))
        found.append(await client.offset_at(topic, -2))
        found.append(await client.delete_before(topic, -1))
        found.append(await client.fetch(topic, 8))
        found.append(await client.delete_before(compacted, 0))
        found.append(await client.delete_before(f"{prefix}.nowhere", 0))
    return found


@contract
async def transactions(bootstrap: str, prefix: str) -> Answers:
    """Two producers of one transactional id: commits, aborts, fencing, offsets, what readers see meanwhile."""
    topic, group, name, found = f"{prefix}.transactions", f"{prefix}.group", f"{prefix}.id", []
    async with connected(bootstrap) as client:
        await client.topic(topic)
        await client.coordinator(name, 1)
        await client.coordinator(group, 0)

        async def begin() -> tuple[int, int]:
            answer = await client.ask(InitProducerIdRequest(name, 60_000))
            found.append(("epoch", answer["error_code"], answer["producer_epoch"]))
            return answer["producer_id"], answer["producer_epoch"]

        async def add(who: int, epoch: int) -> int:
            while True:
                answer = await client.ask(AddPartitionsToTxnRequest(name, who, epoch, [(topic, [0])]))
                error = answer["errors"][0]["partition_errors"][0]["error_code"]
                if error not in _AGAIN:
                    return error
                await asyncio.sleep(0.02)

        async def end(who: int, epoch: int, commit: bool) -> int:
            return (await client.ask(EndTxnRequest(name, who, epoch, commit)))["error_code"]

        async def settled(first: int) -> Answers:
            """What readers see once no transaction from an offset on is open."""
            while True:
                seen = await client.fetch(topic, 0, committed=True)
                if seen[1][1] == seen[1][2] > first:
                    return seen
                await asyncio.sleep(0.02)

        def one(value: str, who: int, epoch: int, sequence: int) -> bytes:
            return batch(value, producer=who, epoch=epoch, sequence=sequence, transactional=True)

        who, epoch = await begin()
        found.append(await add(who, epoch))
        found.append(await client.produce(topic, one("first", who, epoch, 0), name))
        found.append(await client.produce(topic, batch("plain")))
        found.append(await client.fetch(topic, 0, committed=True))
        found.append(await client.fetch(topic, 0))
        found.append((await client.offset_at(topic, -1, committed=True), await client.offset_at(topic, -1)))
        found.append((await client.ask(AddOffsetsToTxnRequest(name, who, epoch, group)))["error_code"])
        while True:
            request = TxnOffsetCommitRequest(name, group, who, epoch, [(topic, [(0, 5, "five")])])
            error = (await client.ask(request))["errors"][0]["partition_errors"][0]["error_code"]
            if error not in _AGAIN:
                break
            await asyncio.sleep(0.02)
        found.append((error, await client.committed(group, topic)))
        found.append(await end(who, epoch, True))
        found.append(await settled(2))
        while (seen := await client.committed(group, topic))[0] < 0:
            await asyncio.sleep(0.02)
        found.append(seen)
        found.append(await end(who, epoch, True))
        found.append(await end(who, epoch, False))
        found.append(await add(who, epoch))
        found.append(await client.produce(topic, one("second", who, epoch, 1), name))
        found.append(await end(who, epoch, False))
        found.append(await settled(4))
        found.append(await add(who, epoch))
        found.append(await client.produce(topic, one("third", who, epoch, 2), name))
        _, later = await begin()
        found.append(later - epoch)
        found.append(await settled(6))
        found.append(await add(who, epoch))
        found.append(await end(who, epoch, True))
        found.append(await client.produce(topic, one("fenced", who, epoch, 3), name))
        found.append(await add(who + 10_000, later))
        found.append(await end(who, later, True))
        found.append(await add(who, later))
        found.append(await client.produce(topic, one("fourth", who, later, 0), name))
        found.append(await end(who, later, True))
        found.append(await settled(8))
    return found


@contract
async def groups(bootstrap: str, prefix: str) -> Answers:
    """Members that come, sync, beat, go and are unknown; commits of members and of others."""
    topic, group, found = f"{prefix}.groups", f"{prefix}.members", []
    async with connected(bootstrap) as one, connected(bootstrap) as two:
        await one.topic(topic)
        await one.coordinator(group, 0)
        found.append(await one.commit(group, topic, 1))
        found.append(await one.committed(group, topic))
        asked = await one.join(group)
        found.append((asked["error_code"], bool(asked["member_id"])))
        first = await one.join(group, asked["member_id"])
        me, generation = first["member_id"], first["generation_id"]
        found.append((first["error_code"], generation, first["leader_id"] == me, first["group_protocol"]))
        found.append(await one.state(group))
        found.append(await one.beat(group, generation, me))
        found.append(await one.commit(group, topic, 2, generation, me))
        found.append(await one.sync(group, generation, me, {me: b"all"}))
        found.append(await one.sync(group, generation, me))
        found.append(await one.state(group))
        found.append([await one.beat(group, generation, me), await one.beat(group, generation + 1, me)])
        found.append(await one.beat(group, generation, "nobody"))
        found.append(await one.commit(group, topic, 3))
        found.append(await one.commit(group, topic, 3, generation, me))
        found.append(await one.commit(group, topic, 4, generation - 1, me))
        found.append(await one.commit(group, topic, 4, generation, "nobody"))
        found.append((await two.join(group, "nobody"))["error_code"])
        joining = asyncio.ensure_future(two.join(group, (await two.join(group))["member_id"]))
        while (error := await one.beat(group, generation, me)) == 0:
            await asyncio.sleep(0.02)
        found.append((error, await one.sync(group, generation, me), await one.state(group)))
        found.append(await one.commit(group, topic, 5, generation, me))
        again, other = await asyncio.gather(one.join(group, me), joining)
        found.append((again["generation_id"], len(again["members"]), len(other["members"])))
        you = other["member_id"]
        waiting = asyncio.ensure_future(two.sync(group, other["generation_id"], you))
        found.append(await one.sync(group, again["generation_id"], me, {me: b"left", you: b"right"}))
        found.append(await waiting)
        found.append((await one.ask(LeaveGroupRequest(group, me)))["error_code"])
        found.append(await two.beat(group, other["generation_id"], you))
        found.append((await one.ask(DeleteGroupsRequest([group])))["results"][0]["error_code"])
        found.append((await two.ask(LeaveGroupRequest(group, you)))["error_code"])
        found.append(await one.state(group))
        found.append(await one.committed(group, topic))
        found.append((await one.ask(DeleteGroupsRequest([group])))["results"][0]["error_code"])
        found.append((await one.ask(DeleteGroupsRequest([group])))["results"][0]["error_code"])
    return found


@contract
async def static_members(bootstrap: str, prefix: str) -> Answers:
    """Members with a name: they come back without a rebalance, and fence what they were."""
    group, found = f"{prefix}.static", []
    async with connected(bootstrap) as one, connected(bootstrap) as two:
        await one.coordinator(group, 0)
        first = await one.join(group, instance="a")
        old, generation = first["member_id"], first["generation_id"]
        found.append((first["error_code"], generation, first["leader_id"] == old, old.startswith("a-")))
        found.append(await one.sync(group, generation, old, {old: b"all"}, "a"))
        back = await two.join(group, instance="a")
        new = back["member_id"]
        found.append(
            (back["error_code"], back["generation_id"], back["leader_id"] == old, new != old, len(back["members"]))
        )
        found.append(await two.sync(group, back["generation_id"], new, instance="a"))
        found.append(await one.beat(group, generation, old))
        found.append(await one.sync(group, generation, old, instance="a"))
        found.append((await one.join(group, old, "a"))["error_code"])
        found.append((await one.join(group, "b-unknown", "b"))["error_code"])
        found.append(await two.beat(group, generation, new))
        found.append(await one.state(group))
        found.append((await two.ask(LeaveGroupRequest(group, new)))["error_code"])
        found.append(await one.state(group))
    return found


@contract
async def topics(bootstrap: str, prefix: str) -> Answers:
    """Topics, partitions and their settings."""
    topic, found = f"{prefix}.topics", []
    async with connected(bootstrap) as client:
        found.append(await client.topic(topic, 2, retention_ms="1000"))
        request = CreateTopicsRequest([(f"{prefix}.many", 1, 7, [], [])], 10_000, False)
        found.append((await client.ask(request))["topic_errors"][0]["error_code"])
        for count in (2, 1, 3):
            answer = await client.ask(CreatePartitionsRequest([(topic, (count, None))], 10_000, False))
            found.append((count, answer["topic_errors"][0]["error_code"]))
        for name in (topic, f"{prefix}.nowhere"):
            [answer] = (await client.ask(DescribeConfigsRequest([(2, name, None)], False)))["resources"]
            entries = {
                e["config_names"]: (e["config_value"], e["config_source"] == 1) for e in answer["config_entries"]
            }
            found.append(
                (
                    answer["error_code"],
                    sorted((n, *entries[n]) for n in TOPIC_DEFAULTS if n in entries and n != BY_VERSION),
                )
            )
        [answer] = (await client.ask(MetadataRequest([f"{prefix}.nowhere"])))["topics"]
        found.append((answer["error_code"], answer["partitions"]))
    return found
