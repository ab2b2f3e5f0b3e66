"""Documents and verdicts of a partition go to the same member, and partitions that only one of them has to none."""

import pytest
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from hypothesis import given
from hypothesis import strategies as st

from stream_lsh.kafka.forward.assignor import PairedAssignor

TOPICS = ("documents", "verdicts")
ASSIGNOR = PairedAssignor.by("verdicts")


class Cluster:
    def __init__(self, **partitions: int | None) -> None:
        self.partitions = partitions

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        number = self.partitions[topic]
        return None if number is None else set(range(number))


def shared(cluster: Cluster, members: int) -> list[dict[str, list[int]]]:
    given = {f"m{i}": ASSIGNOR.metadata([*cluster.partitions]) for i in range(members)}
    found = ASSIGNOR.assign(cluster, given)
    return [dict(found[name].assignment) for name in sorted(found)]


@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 5))
def test_every_pair_has_one_member(documents: int, verdicts: int, members: int) -> None:
    found = shared(Cluster(documents=documents, verdicts=verdicts), members)
    assert all(mine["documents"] == mine["verdicts"] for mine in found)
    assert sorted(p for mine in found for p in mine["documents"]) == list(range(min(documents, verdicts)))
    sizes = [len(mine["documents"]) for mine in found]
    assert max(sizes) - min(sizes) <= 1


@given(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9), st.integers(1, 5))
def test_several_topics_share_the_partitions_of_verdicts(a: int, b: int, verdicts: int, members: int) -> None:
    found = shared(Cluster(a=a, b=b, verdicts=verdicts), members)
    assert sorted(p for mine in found for p in mine["verdicts"]) == list(range(min(max(a, b), verdicts)))
    for mine in found:
        assert mine["a"] == [p for p in mine["verdicts"] if p < a]
        assert mine["b"] == [p for p in mine["verdicts"] if p < b]


@pytest.mark.parametrize("unknown", TOPICS)
def test_a_topic_that_is_not_known_yet(unknown: str) -> None:
    counts: dict[str, int | None] = {"documents": 3, "verdicts": 3, unknown: None}
    assert all(mine == {"documents": [], "verdicts": []} for mine in shared(Cluster(**counts), 2))


def test_members_of_the_version_before_can_join_its_group() -> None:
    assert ASSIGNOR.name == RangePartitionAssignor.name
    assert ASSIGNOR.metadata(TOPICS) == RangePartitionAssignor.metadata(TOPICS)
