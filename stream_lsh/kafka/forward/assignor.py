"""Gives documents and verdicts of a partition to the same member of the group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment


class _Common:
    """A cluster in which every topic has the same partitions."""

    def __init__(self, partitions: set[int]) -> None:
        self._partitions = partitions

    def partitions_for_topic(self, _: str) -> set[int]:
        return self._partitions


class PairedAssignor(RangePartitionAssignor):  # type: ignore[misc]  # aiokafka has no types
    """A range assignor that treats topics together.

    Kafka's range assignor assigns each topic separately. While documents has more partitions than verdicts, a member
    would get different partitions of the two. A partition is assigned if verdicts has it, and a documents topic.

    It has the name of Kafka's assignor: workers of an earlier revision know only that one. Offering both does not work:
    aiokafka joins the group once per assignor, and two members may expel each other for minutes.
    """

    verdicts: ClassVar[str]

    @classmethod
    def by(cls, verdicts: str) -> type[PairedAssignor]:
        """The assignor for a topic of verdicts."""
        return type(cls.__name__, (cls,), {"verdicts": verdicts})

    @classmethod
    def assign(cls, cluster: Any, members: Mapping[str, Any]) -> Any:
        """A share for each member, as `RangePartitionAssignor`."""
        topics = {topic for member in members.values() for topic in member.subscription}
        there = {topic: set(cluster.partitions_for_topic(topic) or ()) for topic in topics}
        judged = there.get(cls.verdicts, set())
        common = judged & set[int]().union(*(there[topic] for topic in topics - {cls.verdicts}))
        found = super().assign(_Common(common), members)
        for member, share in [*found.items()]:
            mine = [(topic, [p for p in partitions if p in there[topic]]) for topic, partitions in share.assignment]
            found[member] = ConsumerProtocolMemberAssignment(share.version, mine, share.user_data)
        return found
