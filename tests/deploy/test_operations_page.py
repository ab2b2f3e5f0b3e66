"""The chapter on operations keeps step with the code and with the files in deploy."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
import yaml
from support.exposition import exposition

ROOT = Path(__file__).parents[2]
RUNBOOK = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
CHAPTER = (ROOT / "docs" / "kafka.md").read_text(encoding="utf-8").partition("## Operations")[2]


def rows(heading: str) -> list[list[str]]:
    """The table that begins with this cell, without its head."""
    lines = CHAPTER[CHAPTER.index(f"| {heading} |") :].splitlines()
    found: list[list[str]] = []
    for line in lines[2:]:
        if not line.startswith("|"):
            break
        found.append([cell.strip() for cell in line.strip("|").split(" | ")])
    return found


def texts() -> list[str]:
    """The messages of the package; what is filled in is left out."""
    found = []
    for path in (ROOT / "stream_lsh").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                parts = [part.value if isinstance(part, ast.Constant) else "\0" for part in node.values]
                found.append("".join(str(part) for part in parts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
    return [re.sub("(\0|%[.0-9]*[sdf])+", "…", text) for text in found]


@pytest.mark.long
def test_messages_are_those_of_the_code() -> None:
    known = texts()
    messages = [row[0] for row in rows("message")]
    assert len(messages) > 15
    for message in messages:
        pieces = [piece.strip() for piece in message.split("…") if piece.strip()]
        assert any(all(piece in text for piece in pieces) for text in known), message


def test_every_metric_is_described() -> None:
    types = re.findall(r"^# TYPE (stream_lsh_\w+) (?:counter|gauge|histogram)$", exposition(), re.MULTILINE)
    names = set(types)
    names -= {name for name in names if name.endswith("_created")}
    cells = [row[0] for heading in ("metric", "metric from outside") for row in rows(heading)]
    described = set(re.findall(r"`(stream_lsh_\w+)`", " ".join(cells)))
    assert described == names


def test_every_alert_has_its_page() -> None:
    """In the order of the rules; each says what it means, what to look at, what to do and when it is over."""
    groups = yaml.safe_load((ROOT / "deploy" / "prometheus" / "alerts.yml").read_text(encoding="utf-8"))["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    runbook = RUNBOOK.partition("## Runbook")[2].partition("\n## ")[0]
    pages = dict(re.findall(r"^### (\w+)\n(.*?)(?=^### |\Z)", runbook, re.MULTILINE | re.DOTALL))
    assert list(pages) == [rule["alert"] for rule in rules]
    for name, text in pages.items():
        assert re.findall(r"^- \*\*([\w ]+)\*\*", text, re.MULTILINE) == ["Means", "Look at", "Do", "Over when"], name
    for rule in rules:
        assert rule["annotations"]["runbook"] == f"docs/operations.md#{rule['alert'].lower()}"


def test_status_names_alerts_that_there_are() -> None:
    source = (ROOT / "stream_lsh" / "kafka" / "tools" / "status.py").read_text(encoding="utf-8")
    named = set(re.findall(r'"(StreamLsh\w+)"', source))
    assert len(named) > 8 and all(f"\n### {name}\n" in RUNBOOK for name in named)
