"""The examples in a page of the documentation, run in an empty folder: what stands behind a command is what it says.

| block | how it is run |
|---|---|
| `console` | each line behind `$ `, and its output is compared; `cat FILE` makes the file instead |
| `sh` | only `cat > FILE <<'END'`, which makes a file; everything else is for the reader's own machine |
| `pycon` | as a doctest; all blocks of a page share their names |
| `python` | executed, and its output is compared with the `text` block behind it, if there is one |
"""

import contextlib
import doctest
import io
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from markup import FENCE

from stream_lsh.cli import main

DOCS = Path(__file__).parents[2] / "docs"
METRICS = DOCS / "reference" / "metrics.md"
LANGUAGES = ("console", "sh", "pycon", "python", "text")
HERE = re.compile(r"cat > (\S+) <<'END'\n(.*?)^END$", re.MULTILINE | re.DOTALL)
CALL = re.compile(r"""(?:[^"'|>;&]|"[^"]*"|'[^']*')+""")
VARIES = re.compile(r" {2,}|\d[\d.,]* (m?s|[kM]?B)\b|\(?[\d,.]+(/s\b\)?| a second)|\d{4}-\d\d-\d\d[T ][\d:.]+Z?")

PROGRESS = re.compile(r"^stream-lsh: (compiling for|no documents yet|[\d,]+ documents?, ).*\n", re.MULTILINE)


class Page:
    """Runs a page in a folder of its own."""

    def __init__(self, name: str, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
        found = FENCE.findall((DOCS / f"{name}.md").read_text(encoding="utf-8"))
        self.blocks = [(language, body) for language, body in found if language in LANGUAGES]
        self.folder, self.capfd, self.examples = folder, capfd, 0
        self.names: dict[str, object] = {"__name__": "__main__"}
        tools = folder / "bin"
        tools.mkdir()
        (tools / "stream-lsh").write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m stream_lsh "$@"\n')
        (tools / "stream-lsh").chmod(0o755)
        self.environment = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"}

    def run(self) -> None:
        for (language, body), (behind, shown) in zip(self.blocks, [*self.blocks[1:], ("", "")], strict=True):
            if language == "console":
                for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
                    self.command(*part.partition("\n")[::2])
            elif language == "sh":
                for name, text in HERE.findall(body):
                    (self.folder / name).write_text(text, encoding="utf-8")
            elif language == "pycon":
                test = doctest.DocTestParser().get_doctest(body, self.names, "page", None, 0)
                self.names = test.globs
                self.examples += len(test.examples)
                assert doctest.DocTestRunner().run(test, clear_globs=False).failed == 0, self.capfd.readouterr().out
            elif language == "python":
                with contextlib.redirect_stdout(io.StringIO()) as said:
                    exec(compile(body, "page", "exec"), self.names)
                assert behind != "text" or said.getvalue() == shown
                self.examples += 1

    def command(self, line: str, shown: str) -> None:
        program, *words = shlex.split(line)
        if program == "cat" and len(words) == 1 and not (self.folder / words[0]).exists():
            (self.folder / words[0]).write_text(shown, encoding="utf-8")
        elif words[:1] in (["demo"], ["kafka"]) and "--feed" not in words:
            pass  # the one is as a wide terminal shows it, the other needs a broker; they have tests of their own
        else:
            out, err = self.said(line)
            assert same(shown, out) or same(shown, out + err), f"$ {line}\n{out}{err}"
            self.examples += 1

    def said(self, line: str) -> tuple[str, str]:
        """Standard output and standard error of a command. What follows a pipe, > or ; is left to bash."""
        if not line.startswith("stream-lsh ") or " --feed " in line:  # which is not all UTF-8
            return self.bash(line, ""), ""
        call = CALL.match(line)[0]  # type: ignore[index]
        rest = line[len(call) :]
        result = CliRunner().invoke(main, shlex.split(call)[1:])
        past = self.capfd.readouterr()  # lines of outputs go past Python's stdout
        out, err = result.stdout + past.out, PROGRESS.sub("", result.stderr + past.err)  # seen on slow machines only
        if rest:
            return self.bash(f"(cat; exit {result.exit_code}){rest}", out), err
        assert result.exit_code == 0, (line, out, err)
        return out, err

    def bash(self, script: str, stdin: str) -> str:
        command = ["bash", "-o", "pipefail", "-c", script]
        done = subprocess.run(
            command, input=stdin, capture_output=True, text=True, cwd=self.folder, env=self.environment
        )
        return done.stdout + PROGRESS.sub("", done.stderr)


def same(shown: str, said: str) -> bool:
    """Equal but for durations, rates, sizes, moments, and the widths of columns."""
    return VARIES.sub("…", shown) == VARIES.sub("…", said)


def rows(path: Path, heading: str) -> list[list[str]]:
    """The table of a page that begins with this cell, without its head."""
    text = path.read_text(encoding="utf-8")
    lines = text[text.index(f"| {heading} |") :].splitlines()
    found: list[list[str]] = []
    for line in lines[2:]:
        if not line.startswith("|"):
            break
        found.append([cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip("|"))])
    return found
