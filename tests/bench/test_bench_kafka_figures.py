"""The arithmetic of the benchmarks on Kafka: quantiles, what was done when, processes, delays; without a broker."""

import numpy as np
import pytest
from aiokafka import TopicPartition
from aiokafka.structs import ConsumerRecord

from bench.kafka_figures import done_by, span
from bench.kafka_latency import Pair, delays
from bench.kafka_rig import last_offsets, seen_at
from bench.kafka_stages import total, weights

ONE, TWO = TopicPartition("verdicts", 0), TopicPartition("verdicts", 1)


def record(partition: int, offset: int, value: bytes = b"x") -> ConsumerRecord:
    return ConsumerRecord("verdicts", partition, offset, 0, 1, b"k", value, 0, 1, len(value), ())


def test_what_was_done_when_over_two_partitions_with_markers_between() -> None:
    records = [record(0, 0), record(0, 2), record(1, 1)]  # offset 1 of the first is the marker of a transaction
    found = weights(records, lambda r: 10.0)
    assert total(found) == 30
    ends = [(0.0, {ONE: 0, TWO: 0}), (1.0, {ONE: 2, TWO: 0}), (2.0, {ONE: 4, TWO: 3})]
    times, documents = done_by(ends, found)
    assert times.tolist() == [0.0, 1.0, 2.0]
    assert documents.tolist() == [0.0, 10.0, 30.0]


def test_span_is_the_middle() -> None:
    times = np.arange(12.0)
    documents = np.array([0.0, 0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100])
    assert span(times, documents) == (2.0, 10.0, 80.0)


def test_seen_at_needs_all_partitions() -> None:
    last = last_offsets([record(0, 3), record(0, 1), record(1, 5)])
    assert last == {ONE: 3, TWO: 5}
    ends = [(1.0, {ONE: 4}), (2.0, {ONE: 4, TWO: 5}), (3.0, {ONE: 4, TWO: 6})]
    assert seen_at(ends, last) == 3.0
    with pytest.raises(ValueError, match="never seen"):
        seen_at(ends[:2], last)


def test_delays_count_the_document_that_made_the_pair_complete_once_and_inside() -> None:
    sent = {"a": 1.0, "b": 2.0, "c": 9.0, "early": 0.5}
    pairs = [
        Pair("a", "b", 2.02, 2004),
        Pair("a", "b", 3.0, 2004),  # said again
        Pair("b", "a", 2.5, 2004),  # in the other order: the later one still is b
        Pair("a", "early", 5.0, 1000),  # a was sent last
        Pair("unknown", "c", 9.5, 9001),
        Pair("b", "c", 9.5, 9001),  # behind the end
    ]
    found = delays(pairs, sent, 1.0, 9.0)
    assert found["seen"] == pytest.approx({"b": 20.0, "a": 4000.0})
    assert found["signed"]["b"] == pytest.approx(4.0)
