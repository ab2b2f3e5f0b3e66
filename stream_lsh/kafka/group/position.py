"""Where a group has read to, and whether that is still there."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError, for_code
from aiokafka.protocol.commit import OffsetCommitRequest

from stream_lsh.errors import StateError
from stream_lsh.kafka.client import private
from stream_lsh.kafka.client.connection import all_committed

LOOKS, PAUSE = 5, 0.5  # how often it is looked for an end, and the seconds in between

Place = TypeVar("Place")
Answer = TypeVar("Answer")
Bounds = tuple[int, int]
"""Offset of the first record that is there, and behind the last."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What is said where a role's position is not in its topic.

    records: what the topic has. done: what the role does to them. anew: what helps where it is another topic, or has
    lost its end. gone: what helps where records are deleted, if it is something else.
    """

    records: str
    done: str
    anew: str
    gone: str = ""

    def missing(self, where: str, position: int, bounds: Bounds, *, accept_loss: bool = False) -> int:
        """How many records were deleted before the role had them.

        Args:
            where: the partition, for messages. accept_loss: whether the role goes on without them.

        Raises:
            StateError: the topic ends before the position; or some are missing, and that was not accepted.
        """
        begin, end = bounds
        if position > end:
            raise StateError(
                f"{where}, ends at offset {end}, but has been {self.done} up to {position}: the topic was deleted and "
                f"made again, or the brokers have lost its end. {self.anew}"
            )
        missing = max(0, begin - position)
        if missing and not accept_loss:
            raise self.deleted(where, f"{missing} {self.records} from offset {position} on")
        return missing

    def deleted(self, where: str, what: str) -> StateError:
        """Records are missing."""
        return StateError(
            f"{where}: {what} were deleted before they were {self.done} (retention). {self.gone or self.anew}"
        )


async def committed(client: AIOKafkaAdminClient, group: str) -> dict[str, dict[int, tuple[int, str]]]:
    """What a group has committed, see `connection.all_committed`; a coordinator that is moving is waited for."""
    return await _patiently(lambda: all_committed(client, group))


async def commit_alone(
    client: AIOKafkaAdminClient, group: str, topic: str, positions: Mapping[int, tuple[int, str]]
) -> None:
    """Commit positions with their metadata for a group that nobody is a member of; likewise.

    Raises:
        KafkaError: it is refused.
    """
    partitions = [(partition, at, metadata) for partition, (at, metadata) in positions.items()]
    request = OffsetCommitRequest(group, -1, "", -1, [(topic, partitions)])

    async def commit() -> None:
        response = await private.ask(client, request, await client.find_coordinator(group))
        for _, answers in response.topics:
            for partition, code in answers:
                if code:
                    raise for_code(code)(f"a commit of the group {group} for {topic}, partition {partition}")

    await _patiently(commit)


async def _patiently(ask: Callable[[], Awaitable[Answer]]) -> Answer:
    while True:
        try:
            return await ask()
        except KafkaError as error:
            if not error.retriable:
                raise
            await asyncio.sleep(0.1)


async def bounds(
    ask: Callable[[], Awaitable[Mapping[Place, Bounds]]], positions: Mapping[Place, int]
) -> Mapping[Place, Bounds]:
    """What `ask` gives, once it is not before one of the positions any more: a broker that has just taken over may not
    know its end yet. What stays behind them for two seconds is what there is.

    positions: those that are known, by place.
    """
    found = await ask()
    for _ in range(1, LOOKS):
        if all(positions.get(place, 0) <= end for place, (_, end) in found.items()):
            break
        await asyncio.sleep(PAUSE)
        found = await ask()
    return found


async def bounds_of(
    consumer: AIOKafkaConsumer, positions: Mapping[TopicPartition, int]
) -> Mapping[TopicPartition, Bounds]:
    """The same of partitions, as a consumer hears of them. positions: 0 where none is known."""

    async def ask() -> Mapping[TopicPartition, Bounds]:
        begins = await consumer.beginning_offsets(list(positions))
        ends = await consumer.end_offsets(list(positions))
        return {place: (begins[place], ends[place]) for place in positions}

    return await bounds(ask, positions)
