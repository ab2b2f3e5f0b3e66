"""The generated pages of docs/reference say what the code says, and leave nothing out."""

import re
import runpy
from pathlib import Path

import click
import pytest
from command_line_page import commands

from stream_lsh.cli import main
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
