"""Which member forwards which partitions: each those of documents and of verdicts, whatever either topic has more."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from aiokafka.coordinator.assignors.range import RangePartitionAssignor


class _Common:
    """A cluster in which every topic has the partitions that all of them have."""

    def __init__(self, cluster: Any, topics: Iterable[str]) -> None:
        self._partitions = set.intersection(*(set(cluster.partitions_for_topic(topic) or ()) for topic in topics))

    def partitions_for_topic(self, _: str) -> set[int]:
        return self._partitions


class PairedAssignor(RangePartitionAssignor):  # type: ignore[misc]  # aiokafka has no types
    """Kafka's range assignor gives out partitions of one topic without regard to another. While the documents have been
    given more than the verdicts have, a member would get documents of one partition and verdicts of another.

    It goes by the name of that one: members of version 0.1 know no other, and to offer both is no way. aiokafka joins
    the group once for each assignor that it has, so that two members may put each other out for minutes.
    """

    @classmethod
    def assign(cls, cluster: Any, members: Mapping[str, Any]) -> Any:
        """A share for each member, as `RangePartitionAssignor`."""
        topics = {topic for member in members.values() for topic in member.subscription}
        return super().assign(_Common(cluster, topics), members)
