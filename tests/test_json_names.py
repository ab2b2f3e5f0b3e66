"""Every name in the JSON that users read has a definition in the glossary, or on the page of its kind."""

import ast
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from inspect import getmembers, isclass
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from click.testing import CliRunner

from stream_lsh.audit.estimates import Estimate
from stream_lsh.cli import main
from stream_lsh.cli.schema import OUTPUTS
from stream_lsh.families.measure import MEASURES
from stream_lsh.families.tuning import Banding
from stream_lsh.judging.events import Change
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.kafka.tools.status import Report
from stream_lsh.serve import schemas

ROOT = Path(__file__).parents[1]
PACKAGE, PAGES = ROOT / "stream_lsh", ROOT / "docs" / "reference"
NAMES = {"name", "names", "field", "field of 202", "section"}
"""Titles of the columns that have the names of a table."""
MADE = {
    "info": ("embedded/information.py",),
    "tune": ("cli/tune.py", "cli/tune_bands.py", "cli/tune_containment.py"),
    "evaluate": ("cli/evaluate.py", "cli/labelled.py", "cli/limit.py"),
    "audit": ("audit/report.py", "audit/groups.py", "audit/labels.py", "audit/pairs.py", "audit/shared_texts.py"),
    "kafka status": (), "kafka topics": ("cli/kafka/topics.py",), "serve token list": ("cli/serve_token.py",),
}  # fmt: skip
"""The modules that make the objects of `--json`, by the section of reports.md. Their dicts have the names."""
OTHERS: dict[str, set[str]] = {
    "info": {"rows", "first", "log"},  # what the index has stored
    "tune": {*MEASURES}, "evaluate": {*MEASURES, "pairs"},  # names by measure; of an output of the engine
    "audit": {"sides", "spans"},  # texts, which --json leaves out
}  # fmt: skip
"""Keys of other dicts of these modules."""


def page(name: str) -> str:
    return (PAGES / name).read_text(encoding="utf-8")


def defined(text: str) -> set[str]:
    """The names that the tables of a page define."""
    names: set[str] = set()
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        titles, *rows = ([cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines())
        cells = (cell for row in rows for title, cell in zip(titles, row, strict=False) if title in NAMES)
        names.update(name for cell in cells for name in re.findall(r"`(\w+)`", cell))
    return names


def section(text: str, title: str) -> str:
    found = text.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    assert found, title
    return found


def glossary() -> set[str]:
    return defined(section(page("glossary.md"), "JSON fields"))


def test_a_field_is_defined_once() -> None:
    rows = re.findall(r"^\| ([^|]+) \|", section(page("glossary.md"), "JSON fields"), re.MULTILINE)
    names = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert len(names) == len(set(names)) > 50


def test_fields_of_examples_are_defined() -> None:
    """Also those of lines without a schema, as of deletions in unique documents and of receivers."""
    shown = page("outputs.md").partition("## Verdicts\n")[2].partition("## Dead letters")[0]
    names = set(re.findall(r'"([a-z]\w*)":', shown))
    assert names - glossary() - {change.label for change in Change} == set()


def properties(node: Any) -> Iterator[str]:
    """The names of all properties of a JSON Schema."""
    if isinstance(node, Mapping):
        if isinstance(node.get("properties"), Mapping):
            yield from node["properties"]
        for part in node.values():
            yield from properties(part)
    elif isinstance(node, list):
        for part in node:
            yield from properties(part)


@pytest.mark.parametrize("output", OUTPUTS)
def test_properties_of_schemas_are_defined(output: str) -> None:
    result = CliRunner().invoke(main, ["schema", output])
    names = set(properties(json.loads(result.stdout)))
    assert len(names) > 5
    assert names - glossary() == set()


def test_properties_of_http_models_are_defined() -> None:
    models = [model for _, model in getmembers(schemas, isclass) if issubclass(model, schemas.Model)]
    names = {name for model in models for name in properties(model.model_json_schema())}
    assert len(names) > 100
    assert names - glossary() - defined(page("http.md")) - KafkaSettings.model_fields.keys() == set()


def written(module: str) -> set[str]:
    """The keys of the dicts that a module writes as literals, but for options; of an f-string none."""
    names: set[str] = set()
    for node in ast.walk(ast.parse((PACKAGE / module).read_text(encoding="utf-8"))):
        keys = node.keys if isinstance(node, ast.Dict) else []
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            keys = [node.slice]
        for key in keys:
            parts = (key.body, key.orelse) if isinstance(key, ast.IfExp) else (key,)
            names |= {part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)}
    return {name for name in names if not name.startswith("--")}


def fields_of(kind: Any) -> Iterator[str]:
    """The fields of a dataclass, and of the dataclasses in it."""
    if is_dataclass(kind):
        for field in fields(kind):
            yield field.name
            yield from fields_of(get_type_hints(kind)[field.name])
    for part in getattr(kind, "__args__", ()):
        yield from fields_of(part)


def keys(node: Any) -> Iterator[str]:
    if isinstance(node, Mapping):
        yield from node
    for part in node.values() if isinstance(node, Mapping) else node if isinstance(node, list) else ():
        yield from keys(part)


@pytest.mark.parametrize("command", MADE)
def test_names_of_reports_are_defined(command: str) -> None:
    names = {name for module in MADE[command] for name in written(module)}
    names |= {"kafka status": set(fields_of(Report)), "audit": {*Estimate._fields}, "tune": {*Banding._fields}}.get(
        command, set()
    )
    names -= OTHERS.get(command, set())
    assert len(names) > 3
    known = defined(section(page("reports.md"), command))
    assert names - known - glossary() - KafkaSettings.model_fields.keys() == set()


TEXT = "The council has voted for the new bridge over the river; work begins in spring and takes two years, says"
FEED = [
    {"id": f"{i}", "outlet": "herald", "at": 1_790_000_000 + 600 * i, "event": "bridge", "text": f"{TEXT} {i % 5}"}
    for i in range(12)
]  # fmt: skip
DELETION = {"id": "11", "deleted": True}
RUNS = {
    "info": ("info --index index", "info --index index --check"),
    "tune": (
        "tune feed", "tune", "tune --measure tf-idf", "tune feed --measure containment",
        "tune --measure cosine --dimensions 64", "tune --measure hamming --dimensions 64 --max-distance 3",
    ),
    "evaluate": ("evaluate feed", "evaluate feed --truth pairs", "evaluate feed --labels event"),
    "audit": ("audit --index index --verdicts verdicts",),
    "serve token list": ("serve token list --token-file tokens",),
}  # fmt: skip


def run(command: str) -> str:
    result = CliRunner().invoke(main, command.split())
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.limit(300)  # the first run on a machine compiles the kernels
def test_what_commands_print_has_defined_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("feed").write_text("".join(f"{json.dumps(line)}\n" for line in (*FEED, DELETION)))
    options = "--on-conflict update --deleted-field deleted --source-field outlet --time-field at"
    run(f"dedup feed --index index --window 2d {options} --verdicts verdicts --unique unique --quiet")
    Path("feed").write_text("".join(f"{json.dumps(line)}\n" for line in FEED))
    Path("one.txt").write_text(TEXT + " 1")
    Path("pairs").write_text(run("pairs feed --quiet"))
    run("serve token add news --token-file tokens")
    for line in ("groups --index index", "groups 0 --index index", "query one.txt --index index"):
        lines = run(f"{line} --json").splitlines()
        assert {name for said in lines for name in keys(json.loads(said))} - glossary() == set(), line
    for command, runs in RUNS.items():
        known = {*defined(section(page("reports.md"), command)), *glossary(), *KafkaSettings.model_fields}
        for line in runs:
            said = json.loads(run(f"{line} --json"))
            names = {name for name in keys(said) if not name.startswith(str(tmp_path))}  # of outputs: their paths
            assert names - known == set(), line
