"""Draining a pipeline: the signers pause, and everything read gets its verdict and is forwarded. Shows what is left."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from aiokafka import TopicPartition, errors
from aiokafka.admin import AIOKafkaAdminClient

from stream_lsh.errors import StoreError, StreamLshError
from stream_lsh.kafka.client.connection import admin
from stream_lsh.kafka.client.reading import partitions_of, passed, read_from, reading
from stream_lsh.kafka.consumer import state
from stream_lsh.kafka.consumer.decisions import judged_so_far
from stream_lsh.kafka.consumer.position import all_committed, commit_alone, committed
from stream_lsh.kafka.groups.store import Folded
from stream_lsh.kafka.names import Topics
from stream_lsh.kafka.sequence.order import Accepted, sequenced
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.kafka.sign.position import PAUSE, Pause, noted, pause_of, recorded_pause
from stream_lsh.kafka.tools.observer import group_of
from stream_lsh.kafka.topics import check
from stream_lsh.wording import count

BY = "stream-lsh kafka drain (stream-lsh kafka drain --resume has documents read again)"
LOOK = 1.0  # seconds between two checks
_WITHOUT_MEMBERS = ("Empty", "Dead")  # states of a consumer group

Way = tuple[int, int]
"""A position, and its goal."""


@dataclass(frozen=True, slots=True)
class Standing:
    """The progress of all roles, by their commits and by partition of their inputs.

    Attributes:
        reading: source partitions that a signer may still read.
        signed: position after what was signed.
        accepted: None before the first start of a sequencer.
        judged: the last complete frame.
        with_verdict: number of documents with a verdict.
        forward: None if it has never run.
        folded: the last frame that is folded into groups; None without groups.
        kept: the position of the sequencer's checkpoint, -1 before the first; None if it does not matter.
        where: names a source partition of several topics.
    """

    reading: tuple[int, ...] = ()
    signed: Mapping[int, int] = field(default_factory=dict)
    sequence: Way = (0, 0)
    accepted: Accepted | None = None
    match: Mapping[int, Way] = field(default_factory=dict)
    judged: int = -1
    with_verdict: int = 0
    forward: Mapping[int, Way] | None = None
    folded: int | None = None
    kept: int | None = None
    where: Callable[[int], str] | None = None

    @property
    def documents(self) -> int:
        """Number of accepted documents."""
        return 0 if self.accepted is None else self.accepted.documents

    def left(self) -> list[str]:
        """What is left of each role, as text; empty if all is done."""
        found = []
        if self.reading:
            found.append(
                f"sign may still read {self._listed(self.reading)}: its signer has not confirmed the pause yet"
            )
        known = {} if self.accepted is None else self.accepted.positions
        missing = [partition for partition, to in self.signed.items() if to > known.get(partition, 0)]
        at, end = self.sequence
        if at < end:
            found.append(f"sequence has {count(end - at, 'frame')} to read")
        elif missing:
            found.append(f"sequence has not read all signed documents of {self._listed(missing)}")
        elif self.kept is not None and self.kept < at and self.accepted is not None:
            found.append("sequence has not written its checkpoint yet")
        for shard, (at, end) in sorted(self.match.items()):
            if at < end:
                found.append(f"match has {count(end - at, 'frame')} of shard {shard} to answer")
        if self.accepted is not None and self.judged < self.accepted.last:
            left = count(self.documents - self.with_verdict, "document")
            found.append(f"judge has {left} without a verdict, after frame {self.judged}")
        for partition, (at, end) in sorted((self.forward or {}).items()):
            if at < end:
                found.append(f"forward has verdicts of partition {partition} from offset {at} to {end}")
        if self.folded is not None and self.folded < self.judged:
            found.append(f"group has frames to fold, after frame {self.folded}")
        return found

    def _listed(self, partitions: Iterable[int]) -> str:
        if self.where is None:
            return f"partition {', '.join(map(str, sorted(partitions)))}"
        return "; ".join(map(self.where, sorted(partitions)))


async def mark(client: AIOKafkaAdminClient, settings: KafkaSettings, pause: Pause) -> None:
    """Write the mark for the signers. Raises as `state.write` and `commit_alone`."""
    topics = Topics.of(settings)
    found = {TopicPartition(topics.documents, 0): (0, pause.metadata())}
    await state.write(settings, PAUSE, found)  # first: it outlives the commit
    await commit_alone(client, topics.group(PAUSE), found)


async def _drained_by_us(client: AIOKafkaAdminClient, settings: KafkaSettings) -> Pause:
    found = await pause_of(client, Topics.of(settings)) or await recorded_pause(settings) or Pause()
    if found and found.by != BY:
        raise StoreError(
            f"the signers of {settings.topic_prefix} pause for {found.by}: finish that command, which resumes them"
        )
    return found


async def begin(settings: KafkaSettings) -> Pause:
    """Make the signers pause. An existing pause is kept.

    Raises:
        BrokerError, KafkaError, OSError: see `topics.check`.
        StoreError: they pause for another command.
    """
    await check(settings, ["sign", "sequence", "judge"])
    async with admin(settings) as client:
        found = await _drained_by_us(client, settings) or Pause(BY, time.time_ns() // 1_000_000)
        await mark(client, settings, found)  # also a pause that is only recorded: a drain was killed while it marked
    return found


async def resume(settings: KafkaSettings) -> bool:
    """Let the signers read again. Returns False if they were not paused. Raises as `begin`."""
    async with admin(settings) as client:
        found = await _drained_by_us(client, settings)
        if found:
            await mark(client, settings, Pause())
    return bool(found)


async def follow(
    settings: KafkaSettings, pause: Pause, seconds: float, report: Callable[[list[str]], object]
) -> Standing:  # fmt: skip
    """Wait until nothing is left.

    Args:
        report: called regularly with what is left.

    Raises:
        StreamLshError: something is left after `seconds`.
        KafkaError, OSError: Kafka is down at that time.
        StoreError: the pause was ended meanwhile.
    """
    end = time.monotonic() + seconds
    while True:
        late = time.monotonic() >= end
        try:
            async with admin(settings) as client:
                if await pause_of(client, Topics.of(settings)) != pause:
                    raise StoreError("the signers were resumed (drain --resume) before the pipeline was drained")
                found = await look(client, settings, pause)
        except (errors.KafkaError, OSError, TimeoutError):
            if late:
                raise
        else:
            left = found.left()
            if not left:
                return found
            if late:
                raise StreamLshError(
                    f"not drained within {seconds:.0f} s: {'; '.join(left)}. The signers are still paused: run the "
                    "command again to wait for the rest, or stream-lsh kafka drain --resume to resume them"
                )
            report(left)
        await asyncio.sleep(LOOK)


async def look(client: AIOKafkaAdminClient, settings: KafkaSettings, pause: Pause) -> Standing:
    """The progress of all roles. They are checked in the order of the pipeline: a checked role gets nothing new."""
    topics = Topics.of(settings)

    async def ways(topic: str, role: str) -> dict[int, Way]:
        places = await partitions_of(client, topic)
        found = await committed(client, topics.group(role), topic)
        # Includes open transactions, whose markers are still to be written.
        async with reading(settings, isolation_level="read_uncommitted") as consumer:
            begins, ends = await consumer.beginning_offsets(places), await consumer.end_offsets(places)
        return {at.partition: (found.get(at.partition, (begins[at], ""))[0], ends[at]) for at in places}

    group = topics.group("sign")
    sources = [topics.number(*place) for topic in topics.sources for place in await partitions_of(client, topic)]
    found = noted(topics, await all_committed(client, group))
    reads: tuple[int, ...] = ()
    if (await group_of(client, group)).state not in _WITHOUT_MEMBERS:
        reads = tuple(p for p in sources if p not in found or found[p][1].paused != pause.since)
    signed = {partition: to for partition, (to, note) in found.items() if not note.begun}

    # The end is read first: what is sent meanwhile is not from the signers that have stopped.
    ways_in = await ways(topics.signatures, "sequence")
    _, accepted = await sequenced(client, topics) or (0, None)
    kept = (await state.recorded(settings, "sequence")).get(topics.signatures, {}).get(0, (-1, ""))[0]
    match = await ways(topics.frames, "match")
    judged = await judged_so_far(settings)
    forward: dict[int, Way] | None = None
    if await all_committed(client, topics.group("forward")):
        forward = await _forward(settings, await ways(topics.verdicts, "forward"))
    folded = None
    if settings.groups:
        name = topics.group("group")
        grouped = await committed(client, name, topics.memberships)
        folded = Folded.of(grouped[0][1], name).last if 0 in grouped else -1
    return Standing(
        reads, signed, ways_in[0], accepted, match, judged.last, judged.documents, forward, folded, kept,
        topics.where if len(topics.sources) > 1 else None,
    )  # fmt: skip


async def _forward(settings: KafkaSettings, ways: Mapping[int, Way]) -> dict[int, Way]:
    """The same, with partitions marked as done that have only transaction markers left."""
    found, topic = dict(ways), Topics.of(settings).verdicts
    open_ = {TopicPartition(topic, partition): at for partition, (at, end) in ways.items() if at < end}
    async with reading(settings) as consumer:
        read_from(consumer, open_)
        for place in open_:
            end = ways[place.partition][1]
            with suppress(errors.OffsetOutOfRangeError):  # forward reports this itself
                if await passed(consumer, place, end):
                    found[place.partition] = end, end
    return found
