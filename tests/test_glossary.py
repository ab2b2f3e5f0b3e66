"""The reference defines every name that a user reads: JSON fields and metrics."""

import re
from pathlib import Path

from stream_lsh.judging.events import Change

ROOT = Path(__file__).parents[1]
REFERENCE = ROOT / "docs" / "reference"


def defined(section: str) -> list[str]:
    """The names in the first column of the tables of a section."""
    text = (REFERENCE / "glossary.md").read_text(encoding="utf-8").partition(f"## {section}\n")[2].partition("\n## ")[0]
    return [name for row in re.findall(r"^\| ([^|]+) \|", text, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)]


def fields() -> set[str]:
    """The fields of what stream_lsh writes, as the examples of docs/reference/outputs.md have them."""
    outputs = (REFERENCE / "outputs.md").read_text(encoding="utf-8")
    outputs = outputs.partition("## Verdicts\n")[2].partition("## Dead letters")[0]
    return set(re.findall(r'"([a-z]\w*)":', outputs))


def test_a_field_is_defined_once() -> None:
    names = defined("JSON fields")
    assert len(names) == len(set(names)) > 20


def test_every_field_is_defined() -> None:
    assert fields() <= {*defined("JSON fields"), *(change.label for change in Change)}
