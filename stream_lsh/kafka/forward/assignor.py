"""Assigns each member the same partitions of documents and verdicts, also while one topic has more of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from aiokafka.coordinator.assignors.range import RangePartitionAssignor


class _Common:
    """A cluster in which every topic has just the partitions that all topics have."""

    def __init__(self, cluster: Any, topics: Iterable[str]) -> None:
        self._partitions = set.intersection(*(set(cluster.partitions_for_topic(topic) or ()) for topic in topics))

    def partitions_for_topic(self, _: str) -> set[int]:
        return self._partitions


class PairedAssignor(RangePartitionAssignor):  # type: ignore[misc]  # aiokafka has no types
    """A range assignor that treats topics together.

    Kafka's range assignor assigns each topic separately. While documents has more partitions than verdicts, a member
    would get different partitions of the two.

    It has the name of Kafka's assignor, because members of version 0.1 only know that one. Offering both does not work:
    aiokafka joins the group once per assignor, and two members may expel each other for minutes.
    """

    @classmethod
    def assign(cls, cluster: Any, members: Mapping[str, Any]) -> Any:
        """A share for each member, as `RangePartitionAssignor`."""
        topics = {topic for member in members.values() for topic in member.subscription}
        return super().assign(_Common(cluster, topics), members)
