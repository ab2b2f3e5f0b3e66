"""Where documents come from, where results go, and progress by the reports of the job alone."""

import sys
import threading
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_lsh.cli.progress import Bar, Lines, Speed, progress_display
from stream_lsh.cli.running import OUTPUTS, chosen_inputs, chosen_outputs
from stream_lsh.embedded.report import Progress
from stream_lsh.errors import UsageError

EXAMPLE = "stream-lsh dedup feed.jsonl"


class Terminal:
    def __init__(self, terminal: bool) -> None:
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal


def test_without_input_a_pipe_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal(False))
    assert chosen_inputs((), EXAMPLE) == ["-"]


def test_without_input_a_terminal_gets_an_example(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal(True))
    with pytest.raises(UsageError, match=EXAMPLE):
        chosen_inputs((), EXAMPLE)


def test_standard_input_can_be_read_once() -> None:
    with pytest.raises(UsageError, match="more than once"):
        chosen_inputs(("-", "a", "-"), EXAMPLE)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {"unique": "-"}),
        ({"unique": "u"}, {"unique": "u"}),
        ({"pairs": "p"}, {"unique": "-", "pairs": "p"}),
        ({"verdicts": "-"}, {"verdicts": "-"}),
        ({"verdicts": "-", "unique": "u"}, {"verdicts": "-", "unique": "u"}),
        ({"dead_letters": "d", "unique": "-"}, {"unique": "-", "dead_letters": "d"}),
    ],
)
def test_the_standard_output_of_a_command_gives_way(given: dict[str, str], expected: dict[str, str]) -> None:
    nothing: dict[str, str | None] = dict.fromkeys(OUTPUTS)
    assert chosen_outputs(nothing | given, "unique", []) == expected


def test_an_output_is_never_written_over_an_input(tmp_path: Path) -> None:
    feed = tmp_path / "feed.jsonl"
    feed.write_text("")
    with pytest.raises(UsageError, match=r"--unique and the input .* are the same file"):
        chosen_outputs({"unique": f"{tmp_path}/./feed.jsonl"}, "unique", [str(feed)])


def report(seconds: float, documents: int = 0, read: int = 0, total: int | None = None, rejected: int = 0) -> Progress:
    return Progress(
        documents=documents, duplicates=documents // 10, rejected=rejected, redelivered=0, pairs=0, bytes_read=read,
        bytes_total=total, seconds=seconds,
    )  # fmt: skip


def test_the_speed_is_that_of_the_last_seconds() -> None:
    speed = Speed(window=10)
    for second in range(61):
        slow, fast = min(second, 30), max(0, second - 30)
        speed.add(report(second, documents=slow * 100 + fast * 1000, read=second * 500, total=50_000))
    assert speed.documents() == pytest.approx(1000)
    assert speed.seconds_left(report(60, read=30_000, total=50_000)) == pytest.approx(40)


def test_a_pipe_has_no_end() -> None:
    speed = Speed()
    speed.add(report(0))
    speed.add(report(5, documents=100, read=1000))
    assert speed.documents() == pytest.approx(20)
    assert speed.seconds_left(report(5, read=1000)) is None


@given(st.lists(st.tuples(st.floats(0, 100), st.integers(0, 10**6)), max_size=50))
def test_the_speed_is_never_negative_or_infinite(steps: list[tuple[float, int]]) -> None:
    speed, seconds, documents = Speed(), 0.0, 0
    for wait, more in steps:
        seconds, documents = seconds + wait, documents + more
        speed.add(report(seconds, documents, documents, total=10**9))
        rate = speed.documents()
        assert rate is None or 0 <= rate < float("inf")
        left = speed.seconds_left(report(seconds, documents, documents, total=10**9))
        assert left is None or 0 <= left < float("inf")


def test_lines_come_after_two_seconds_and_then_every_ten() -> None:
    lines: list[str] = []
    times: list[float] = []
    with Lines(lines.append) as update:
        for tick in range(0, 450):
            before = len(lines)
            update(report(tick / 10, documents=tick * 1000, read=tick * 100, total=45_000))
            if len(lines) > before:
                times.append(tick / 10)
    assert times[0] == pytest.approx(2, abs=0.2)
    assert all(later - earlier == pytest.approx(10, abs=0.2) for earlier, later in pairwise(times))
    assert lines[0] == "stream-lsh: 20,000 documents, 10,000/s, 2,000 duplicates, 4 % read, about 43 s left"


def test_a_line_mentions_what_was_rejected() -> None:
    lines: list[str] = []
    with Lines(lines.append) as update:
        update(report(3, documents=10, rejected=4))
    assert lines == ["stream-lsh: 10 documents, 1 duplicate, 4 rejected"]


def test_a_long_silence_is_explained_once() -> None:
    said = threading.Event()
    lines: list[str] = []

    def write(line: str) -> None:
        lines.append(line)
        said.set()

    with Lines(write, patience=0.01):
        assert said.wait(60)
    assert len(lines) == 1
    assert lines == ["stream-lsh: no documents yet"]


class Stream:
    def __init__(self, terminal: bool) -> None:
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal

    def write(self, text: str) -> int:
        return len(text)

    def flush(self) -> None:
        pass


@pytest.mark.parametrize(
    ("quiet", "error", "output", "writes", "kind"),
    [
        (True, True, False, True, nullcontext),
        (False, False, False, True, Lines),
        (False, True, False, True, Bar),
        (False, True, True, True, Lines),
        (False, True, True, False, Bar),
    ],
)
def test_the_display_that_fits(
    monkeypatch: pytest.MonkeyPatch, quiet: bool, error: bool, output: bool, writes: bool, kind: type
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", Stream(error))
    monkeypatch.setattr(sys, "stdout", Stream(output))
    assert isinstance(progress_display(quiet=quiet, writes_standard_output=writes), kind)
