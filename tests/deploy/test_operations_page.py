"""The chapter on operations keeps step with the code and with the files in deploy."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import yaml

from stream_lsh.kafka.run.metrics import Registry

ROOT = Path(__file__).parents[2]
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


def test_messages_are_those_of_the_code() -> None:
    known = texts()
    messages = [row[0] for row in rows("message")]
    assert len(messages) > 15
    for message in messages:
        pieces = [piece.strip() for piece in message.split("…") if piece.strip()]
        assert any(all(piece in text for piece in pieces) for text in known), message


def test_every_metric_is_described() -> None:
    text = Registry().exposition()[0].decode()
    names = set(re.findall(r"^# TYPE (stream_lsh_\w+) (?:counter|gauge|histogram)$", text, re.MULTILINE))
    names -= {name for name in names if name.endswith("_created")}
    described = set(re.findall(r"`(stream_lsh_\w+)`", " ".join(row[0] for row in rows("metric"))))
    assert described == names


def test_every_alert_is_described() -> None:
    groups = yaml.safe_load((ROOT / "deploy" / "prometheus" / "alerts.yml").read_text(encoding="utf-8"))["groups"]
    assert [row[0] for row in rows("alert")] == [rule["alert"] for group in groups for rule in group["rules"]]


def test_every_manifest_is_described() -> None:
    kustomization = yaml.safe_load((ROOT / "deploy" / "kubernetes" / "kustomization.yaml").read_text(encoding="utf-8"))
    named = [row[0].strip("`") for row in rows("manifest")]
    assert sorted([*named, "namespace.yaml"]) == sorted(kustomization["resources"])
