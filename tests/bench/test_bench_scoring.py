"""Recall and precision of the benchmarks on pairs counted by hand, the words of peers, the clock of stages."""

import lzma
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench import stages
from bench.growth import score_segments
from bench.scoring import Score, read_truth, score
from bench.tokens import TOKENIZERS, UNDERSCORE

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
