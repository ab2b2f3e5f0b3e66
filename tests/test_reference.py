"""The pages of docs/reference say what the code says, and define every name that a user reads."""

import re
import runpy
from pathlib import Path

import click
import pytest
from command_line_page import commands

from stream_lsh.cli import main
from stream_lsh.judging.events import Change
from stream_lsh.kafka.settings import KafkaSettings

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "reference"
GENERATOR = ROOT / ".ci" / "reference"
GENERATED = ("command-line.md", "python.md", "settings.md")


def page(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", GENERATED)
def test_page_is_current(name: str) -> None:
    pages = runpy.run_path(str(GENERATOR / "__main__.py"))["PAGES"]
    assert tuple(pages) == GENERATED
    assert page(name) == pages[name](), "make the pages again: python .ci/reference"


def test_every_setting_has_a_heading() -> None:
    assert set(re.findall(r"^### (\w+)$", page("settings.md"), re.MULTILINE)) == KafkaSettings.model_fields.keys()


def test_every_command_has_a_section_with_its_own_options() -> None:
    text = page("command-line.md")
    shared = text.partition("\n## Options of several commands\n")[2]
    for name, command in commands(main, "stream-lsh"):
        section = text.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
        assert section, name
        for option in command.params:
            if isinstance(option, click.Option) and option.name not in KafkaSettings.model_fields:
                assert f"`{option.opts[0]}" in section + shared or option.opts[0] in ("--help-all", "--version"), name


def defined(section: str) -> list[str]:
    """The names in the first column of the tables of a section."""
    text = page("glossary.md").partition(f"## {section}\n")[2].partition("\n## ")[0]
    return [name for row in re.findall(r"^\| ([^|]+) \|", text, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)]


def fields() -> set[str]:
    """The fields of what stream_lsh writes, as the examples of docs/reference/outputs.md have them."""
    outputs = page("outputs.md")
    outputs = outputs.partition("## Verdicts\n")[2].partition("## Dead letters")[0]
    return set(re.findall(r'"([a-z]\w*)":', outputs))


def test_a_field_is_defined_once() -> None:
    names = defined("JSON fields")
    assert len(names) == len(set(names)) > 20


def test_every_field_is_defined() -> None:
    assert fields() <= {*defined("JSON fields"), *(change.label for change in Change)}
