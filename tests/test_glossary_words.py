"""Names that users and contributors read have the words of the glossary, and none that it has replaced."""

import ast
import re
import runpy
from collections.abc import Iterable, Iterator
from pathlib import Path

import click
import pytest
from command_line_page import commands

from stream_lsh.cli import main
from stream_lsh.kafka.settings import KafkaSettings

ROOT = Path(__file__).parents[1]
PROSE = re.compile(runpy.run_path(str(ROOT / ".ci" / "prose.py"))["LISTED"].pattern)
REPLACED = re.compile(
    r"\b(likened|living|grown|least shingles|memory documents|max ahead|verify matches|bucket size"
    r"|decided|settling|settled|dead(?! letters?\b)|lives|stretch(?:es)?|log time|rarity|shelf|salt|lane"
    r"|house|door|left out|incomplete|watch|forgetting)\b"
)
"""What the glossary's terms have replaced. Words with a plain meaning, such as room, floor, held and link, may stay."""
ALLOWED = {
    "KEEP_ALIVE_SECONDS": "HTTP's word",
    "dead": "a field of a stored file",
    "house_style": "of a newspaper, in the demo",
    "sleep": "the word of asyncio",
    "watch": "a function that observes: a verb",
    "watch_name": "a hook of Faust's consumer",
    "watch_throttle": "to observe a broker's throttling",
}
REWRITTEN = ("kafka/match",)
"""Packages with names of their own, until they are written again: language.md says what they become."""


def words(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|[_-]", " ", name).strip().lower()


def wrong(names: Iterable[str]) -> list[str]:
    found = {name for name in names if PROSE.search(words(name)) or REPLACED.search(words(name))}
    return sorted(found - ALLOWED.keys())


def files(folder: str, pattern: str = "*.py") -> Iterator[Path]:
    for path in (ROOT / folder).rglob(pattern):
        if not any(f"/{package}/" in path.as_posix() for package in REWRITTEN):
            yield path


def public(path: Path) -> Iterator[str]:
    """Classes, functions and constants of a module that have no underscore; methods and their parameters."""

    def of(body: list[ast.stmt]) -> Iterator[str]:
        for node in body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                if node.name.startswith("_"):
                    continue
                yield node.name
                if isinstance(node, ast.ClassDef):
                    yield from of(node.body)
                else:
                    yield from (arg.arg for arg in (*node.args.args, *node.args.kwonlyargs))
            targets = node.targets if isinstance(node, ast.Assign) else []
            targets = [node.target] if isinstance(node, ast.AnnAssign) else targets
            yield from (one.id for one in targets if isinstance(one, ast.Name) and not one.id.startswith("_"))

    return of(ast.parse(path.read_text(encoding="utf-8")).body)


def test_public_names_have_the_words_of_the_glossary() -> None:
    names = [name for path in files("stream_lsh") for name in (path.stem, *public(path))]
    assert len(names) > 5000
    assert wrong(names) == []
    assert ALLOWED.keys() <= set(names), "an exception that nothing needs"


def test_settings_and_options_have_the_words_of_the_glossary() -> None:
    options = [
        option.name for _, command in commands(main, "stream-lsh") for option in command.params
        if isinstance(option, click.Option) and option.name
    ]  # fmt: skip
    assert len(options) > 200
    assert wrong([*options, *KafkaSettings.model_fields]) == []


@pytest.mark.parametrize("page", ["glossary", "reports", "http", "outputs", "topics", "metrics"])
def test_json_fields_and_metrics_have_the_words_of_the_glossary(page: str) -> None:
    """tests/test_json_names.py compares these pages with the code; tests/serve and tests/kafka those of metrics."""
    text = (ROOT / "docs" / "reference" / f"{page}.md").read_text(encoding="utf-8")
    names = [
        name for row in re.findall(r"^\| ([^|]+\|[^|]+)", text, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)
    ]
    assert len(names) > 20
    assert wrong(names) == []


def test_tests_have_the_words_of_the_glossary() -> None:
    names = [
        node.name for path in files("tests", "test_*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    ]  # fmt: skip
    assert len(names) > 1500
    assert wrong(names) == []


@pytest.mark.parametrize("name", ["Watch", "LeftOut", "log_time_jumps", "test_whoever_reads", "decidedBefore"])
def test_replaced_words_are_found(name: str) -> None:
    assert wrong([name]) == [name]
    assert wrong(["dead_letters", "DeadLetter", "upheld", "keepalive"]) == []
