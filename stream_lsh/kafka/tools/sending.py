"""Sending the alerts of the topic. Each receiver has a consumer group, whose position says what is done."""

from __future__ import annotations

import asyncio
import threading

from aiokafka import ConsumerRecord, TopicPartition

from stream_lsh.embedded.sending import Courier, key_of
from stream_lsh.kafka.client.connection import admin
from stream_lsh.kafka.client.reading import existing
from stream_lsh.kafka.consumer.group_member import GroupMember
from stream_lsh.kafka.consumer.output_values import OutputValues, check_decoded
from stream_lsh.kafka.consumer.position import Reading, bounds_of, committed_at
from stream_lsh.kafka.names import Topics
from stream_lsh.kafka.run.metrics import Probe
from stream_lsh.kafka.run.restarts import Stage
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.tracing import KEY, WEBHOOK, sending
from stream_lsh.wire.trace_context import trace_of

ROLE = "send"
READING = Reading(
    "alerts", "sent", "Begin again as another receiver (--receiver)",
    "To go on without them begin as another receiver (--receiver), with what is still there",
)  # fmt: skip
POLL_SECONDS = 0.5


class _Interrupted(Exception):
    """The sender was stopped before the receiver accepted an alert."""


class SendStage(Stage):
    """One run of a sender: it sends the remaining alerts one after another, each at least once.

    Args:
        receiver: names the consumer group, PREFIX.send-RECEIVER.
        until_end: set `stop` at the current end of the topic.
    """

    role = ROLE

    def __init__(
        self, settings: KafkaSettings, probe: Probe, receiver: str, courier: Courier, *, until_end: bool = False
    ) -> None:
        super().__init__(settings, probe)
        self._courier = courier
        self._values = OutputValues(settings, probe)
        self._input = TopicPartition(Topics.of(settings).alerts, 0)
        name = f"{ROLE}-{receiver}"
        self._member = GroupMember(settings, name, [self._input.topic], self._take_over, self._give_up)
        self._until_end = until_end
        self._end = self._position = 0
        self._over = threading.Event()
        self._stop = asyncio.Event()
        courier.sleep = self._pause

    async def run(self, stop: asyncio.Event) -> None:
        self._stop = stop
        waiting = asyncio.create_task(stop.wait())
        waiting.add_done_callback(lambda _: self._over.set())
        try:
            await self._member.run(stop, self._step, isolation_level="read_committed")
        finally:
            waiting.cancel()

    def _pause(self, seconds: float) -> None:
        if self._over.wait(seconds):
            raise _Interrupted

    async def _take_over(self, assigned: frozenset[TopicPartition]) -> None:
        self.probe.assigned({place.partition for place in assigned})
        if self._input not in assigned:
            return
        consumer, topic = self._member.consumer, self._input.topic
        found = await committed_at(self.settings, self._member.group, self._input)
        position = 0 if found is None else found[0]
        begin, self._end = (await bounds_of(consumer, {self._input: position}))[self._input]
        if found is not None:
            READING.missing(TopicPartition(topic, 0), position, (begin, self._end))
        self._position = max(begin, position)
        consumer.seek(self._input, self._position)

    async def _give_up(self) -> None:
        """Do nothing: each alert is sent and committed before the next one."""

    async def _step(self) -> None:
        found = await self._member.poll(POLL_SECONDS)
        async with self._member.working:
            if self._input not in self._member.assigned:
                return
            for record in await self._values.read((found or {}).get(self._input, ())):
                if self._stop.is_set() or not await self._send(record):
                    return
            if found is not None and not found:
                self.probe.idle()
                self._position = await self._member.consumer.position(self._input)
            if self._until_end and self._position >= self._end:
                self._stop.set()

    async def _send(self, record: ConsumerRecord) -> bool:
        """Send an alert and commit. Returns whether it is done."""
        check_decoded(record)
        value = record.value or b""
        key = key_of(value)
        try:
            if key is None:
                self._courier.tell(f"{record.topic}, offset {record.offset}, is no alert, and is passed over")
            else:
                with sending(WEBHOOK, trace_of(record.headers), {KEY: key}) as trace:
                    await asyncio.to_thread(self._courier.send, value, key, trace)
        except _Interrupted:
            return False
        self._position = record.offset + 1
        await self._member.commit({self._input: (self._position, "")})
        self.probe.committed()
        return True


async def check(settings: KafkaSettings) -> None:
    """Check that the topic of alerts exists.

    Raises:
        BrokerError: it does not.
        KafkaError, OSError: see `connection.explained`.
    """
    topic = Topics.of(settings).alerts
    async with admin(settings) as client:
        await existing(client, settings, topic, " with groups = true; for the alerts of an index name their file")
