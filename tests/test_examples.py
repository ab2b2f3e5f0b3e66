"""The examples in the pages of the measures, run: what stands behind a command is what it says."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from stream_lsh.cli import main

DOCS = Path(__file__).parents[1] / "docs"
CONSOLE = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", ["bit-vectors", "levenshtein", "containment", "weighted-jaccard", "tf-idf", "vectors"])
def test_the_examples_of_a_page(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    commands = [part for block in CONSOLE.findall(text) for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]]
    assert len(commands) > 1
    for shown in commands:
        line, _, output = shown.partition("\n")
        program, *words = shlex.split(line)
        if program == "cat":
            (tmp_path / words[0]).write_text(output, encoding="utf-8")
            continue
        assert program == "stream-lsh"
        if words[0] == "demo":  # as a wide terminal shows it; tests/demo runs it
            continue
        result = CliRunner().invoke(main, words)
        assert result.exit_code == 0, result.output
        assert result.stdout + capfd.readouterr().out == output, line  # lines of outputs go past Python's stdout
