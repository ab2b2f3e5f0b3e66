"""Where documents come from and where results go."""

import sys
from pathlib import Path

import pytest

from stream_lsh.cli.running import OUTPUTS, chosen_inputs, chosen_outputs
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
