"""The arithmetic of the benchmarks: quantiles, what was done when, recall and precision, clocks; a feed."""

import lzma
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import orjson
import pytest
from aiokafka import TopicPartition
from aiokafka.structs import ConsumerRecord
from hypothesis import given
from hypothesis import strategies as st

from bench import stages
from bench.growth import score_segments
from bench.kafka_figures import done_by, span
from bench.kafka_latency import Pair, delays
from bench.kafka_rig import last_offsets, seen_at
from bench.kafka_stages import total, weights
from bench.scoring import Score, read_truth, score
from bench.serve import endless
from bench.serve_soak import COPY_EACH, varied
from bench.tokens import TOKENIZERS, UNDERSCORE

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


TRUTH = {("a", "b"): 1.0, ("a", "c"): 0.8, ("b", "d"): 0.79, ("c", "x"): 0.9}


def test_score_counts_pairs_at_the_threshold_in_either_order_and_once() -> None:
    found = score([("b", "a"), ("a", "b"), ("b", "d")], TRUTH, 0.8, set("abcd"))
    assert found == Score(true=2, reported=2, right=1)
    assert found.recall == 0.5
    assert found.precision == 0.5


def test_score_leaves_out_what_the_truth_does_not_know() -> None:
    # x is not among the known ids: neither is its true pair missed, nor is a reported one wrong.
    assert score([("x", "a"), ("c", "a")], TRUTH, 0.8, set("abcd")) == Score(true=2, reported=1, right=1)


@pytest.mark.parametrize("name", ["truth.tsv", "truth.tsv.xz"])
def test_read_truth(tmp_path: Path, name: str) -> None:
    text = b"b\ta\t0.8\na\tc\t1.0\n"
    (tmp_path / name).write_bytes(lzma.compress(text) if name.endswith(".xz") else text)
    assert read_truth(tmp_path / name) == {("a", "b"): 0.8, ("a", "c"): 1.0}


def test_segments_are_scored_one_by_one() -> None:
    truth = {("a", "b"): 0.9, ("b", "c"): 0.8, ("a", "c"): 0.79}
    # In the first one b was dropped, which answers for both its pairs; in the second one a and nothing else.
    reported = [("a", "b"), ("b~1", "a~1"), ("a~1", "z~1"), ("a", "a~1"), ("a~1", "c~1")]
    found = score_segments(reported, truth, {"a", "b", "c"}, 240_000, 0.8)
    assert found == {"true_pairs": 4, "missed": 0, "false_pairs": 1, "pairs_of_two_segments": 1}
    found = score_segments(reported[:4], truth, {"a", "b", "c"}, 240_000, 0.8)
    assert found == {"true_pairs": 4, "missed": 1, "false_pairs": 0, "pairs_of_two_segments": 1}
    # A segment that is not there with all its known posts is not asked for.
    found = score_segments(reported, truth, {"a", "b", "c"}, 120_002, 0.8)
    assert found == {"true_pairs": 2, "missed": 0, "false_pairs": 0, "pairs_of_two_segments": 1}


TEXTS = st.one_of(st.text(), st.text(alphabet=[chr(code) for code in range(128)]))


@pytest.mark.parametrize("name", TOKENIZERS)
@given(text=TEXTS)
def test_words(name: str, text: str) -> None:
    words, line = TOKENIZERS[name]
    expected = re.findall(r"\w+", text.lower())
    assert words(text) == expected
    assert line(text).split() == [word.replace("_", UNDERSCORE) for word in expected]


@pytest.mark.parametrize(("module", "name"), [(module, name) for _, module, name in stages.CLOCKED])
def test_the_engine_has_the_stages(module: str, name: str) -> None:
    with ExitStack() as stack:
        stages.replaced(stack, module, name, lambda before: before)


def test_a_missing_stage_is_named() -> None:
    with ExitStack() as stack, pytest.raises(SystemExit, match=r"no judging in stream_lsh\.embedded\.job"):
        stages.replaced(stack, "stream_lsh.embedded.job", "judging", lambda before: before)


def test_inner_stages_are_not_counted_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks: Iterator[float] = iter([0.0, 1.0, 3.0, 7.0, 15.0])  # made, outer in, inner in, inner out, outer out
    monkeypatch.setattr(stages.time, "perf_counter", lambda: next(ticks))
    clock = stages.Clock()
    inner = clock.around("inner", lambda: 5)
    assert clock.around("outer", inner)() == 5
    assert clock.seconds == {"outer": 2.0 + 8.0, "inner": 4.0}


def test_near_copies_do_not_grow(tmp_path: Path) -> None:
    feed = tmp_path / "feed.jsonl"
    feed.write_bytes(b"".join(b'{"id":%d,"text":"word %d"}\n' % (n, n) for n in range(15)))
    coming = varied(endless(feed))
    texts = [orjson.loads(next(coming))["text"] for _ in range(300)]
    copies = texts[COPY_EACH - 1 :: COPY_EACH]
    assert copies == [f"{text} once more" for text in texts[::COPY_EACH]]
    assert max(map(len, texts)) < 40
    assert len(set(texts)) > 100  # not only those of the first turn again
