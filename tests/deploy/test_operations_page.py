"""The runbook, the metrics and the messages in the docs are those of the code and of deploy."""

import ast
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.exposition import exposition
from support.pages import METRICS, rows

from stream_lsh.cli.screen import RUNBOOK as SHOWN

ROOT = Path(__file__).parents[2]
RUNBOOK = ROOT / "docs" / "how-to" / "runbook"
ERRORS = ROOT / "docs" / "reference" / "errors.md"


def page(name: str) -> str:
    return (RUNBOOK / f"{name}.md").read_text(encoding="utf-8")


@pytest.mark.long
def test_messages_are_those_of_the_code() -> None:
    # The messages of the package; what is filled in is left out.
    found = []
    for path in (ROOT / "stream_lsh").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                parts = [part.value if isinstance(part, ast.Constant) else "\0" for part in node.values]
                found.append("".join(str(part) for part in parts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
    known = [re.sub("(\0|%[.0-9]*[sdf])+", "…", text) for text in found]
    section = ERRORS.read_text(encoding="utf-8").partition("## Messages on Kafka\n")[2]
    messages = re.findall(r"\*\*`(.+?)`\*\*", section)
    assert len(messages) > 30
    for message in messages:
        pieces = [piece.strip() for piece in message.split("…") if piece.strip()]
        assert any(all(piece in text for piece in pieces) for text in known), message


def test_every_metric_is_described() -> None:
    types = re.findall(r"^# TYPE (stream_lsh_\w+) (?:counter|gauge|histogram)$", exposition(), re.MULTILINE)
    names = set(types)
    names -= {name for name in names if name.endswith("_created")}
    cells = [row[0] for heading in ("metric", "metric from outside") for row in rows(METRICS, heading)]
    described = set(re.findall(r"`(stream_lsh_\w+)`", " ".join(cells)))
    assert described == names


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load((ROOT / "deploy" / "prometheus" / "alerts.yml").read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def test_every_alert_has_its_page() -> None:
    """At the address that it names: the symptom, what to look at, what to do and when it is over."""
    for rule in rules():
        name = rule["alert"]
        assert rule["annotations"]["runbook"] == f"docs/how-to/runbook/{name}.md"
        text = page(name)
        assert text.startswith(f"# {name}\n")
        assert re.findall(r"^## (.*)$", text, re.MULTILINE) == ["Symptom", "Look at", "Do", "Over when"], name
    assert {path.stem for path in RUNBOOK.glob("*.md")} == {"index", *(rule["alert"] for rule in rules())}


def test_the_runbook_lists_the_alerts_in_the_order_of_the_rules() -> None:
    listed = re.findall(r"^\| \[(\w+)\]\(\1\.md\) \| .* \| (\w+) \|$", page("index"), re.MULTILINE)
    assert listed == [(rule["alert"], rule["labels"]["severity"]) for rule in rules()]


def test_status_names_alerts_that_there_are() -> None:
    source = (ROOT / "stream_lsh" / "kafka" / "tools" / "status.py").read_text(encoding="utf-8")
    named = set(re.findall(r'"(StreamLsh\w+)"', source))
    assert len(named) > 8 and named <= {rule["alert"] for rule in rules()}
    assert str(RUNBOOK.relative_to(ROOT) / "index.md") == SHOWN
