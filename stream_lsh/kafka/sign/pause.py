"""The mark by which an operator has the signers pause: nothing new is read, what was read is finished."""

from __future__ import annotations

from dataclasses import dataclass

import orjson
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import GroupAuthorizationFailedError

from stream_lsh.kafka.group.position import committed
from stream_lsh.kafka.names import Topics

GROUP = "pause"
"""The group that reads nothing: the metadata of its commit for partition 0 of the documents are the mark."""


@dataclass(frozen=True, slots=True)
class Pause:
    """by: who has asked for it, and what ends it; "" = nobody, documents are read. since: ms since 1970, which tells
    one pause from another."""

    by: str = ""
    since: int = 0

    def __bool__(self) -> bool:
        return bool(self.by)

    def metadata(self) -> str:
        """As text for an offset commit."""
        return orjson.dumps({"by": self.by, "since": self.since}).decode()


async def pause_of(client: AIOKafkaAdminClient, topics: Topics) -> Pause:
    """The pause as it stands. Who may not look at the mark is not paused: nobody can have written it.

    Raises:
        KafkaError: as `position.all_committed`.
    """
    try:
        found = (await committed(client, topics.group(GROUP), topics.documents)).get(0)
    except GroupAuthorizationFailedError:
        return Pause()
    return Pause() if found is None else Pause(**orjson.loads(found[1]))
