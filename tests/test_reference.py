"""The pages of docs/reference say what the code says and writes."""

import json
import re
import runpy
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from command_line_page import commands
from markup import blocks, prose

from stream_lsh.cli import main
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.serve.codes import CODES

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


def test_values_belong_to_the_code_of_their_option() -> None:
    said = prose("others (--shingles chars:3, --threshold 0.5, --shards 4).")
    assert said == "others (`--shingles chars:3`, `--threshold 0.5`, `--shards 4`)."


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


BRIDGE = "The council has voted for the new bridge over the river; work begins in spring and takes two years."
HARBOUR = "The harbour museum opens its doors again on Saturday after a winter of repairs to the roof."
COPY, EDIT = BRIDGE.replace("The", "THE").replace("bridge", "bridge "), BRIDGE.replace("years", "winters")
REPORT = (
    "The harbour was closed on Tuesday because of a storm from the west, and all ferries stayed where they were until "
    "Wednesday noon. Nobody was hurt, the police said."
)
POST = f"They write: the {REPORT.partition(' until')[0].removeprefix('The ')}"
FEED = [
    {"id": "a1", "text": BRIDGE}, {"id": "a2", "text": HARBOUR}, {"id": "b7", "text": COPY}, {"id": "c3", "text": EDIT},
    {"id": "a2", "text": HARBOUR}, {"id": "a1", "text": "Another text under an id that was there before."},
    {"id": "d4", "title": "no text"},
]  # fmt: skip
TIMED = [
    {"id": "a1", "outlet": "nordwire", "published": "2026-11-02T08:00:00Z", "text": BRIDGE},
    {"id": "b7", "outlet": "herald", "published": "2026-11-02T08:20:00Z", "text": COPY},
    {"id": "c3", "outlet": "radio", "published": "2026-11-02T09:05:00Z", "text": EDIT},
]
FILES = ("verdicts", "pairs", "letters", "files", "quotes", "unique", "groups", "alerts")
QUOTED = [{"id": "report", "text": REPORT}, {"id": "post", "text": POST}]


def written(name: str, documents: list[dict[str, str]]) -> None:
    Path(name).write_text("".join(f"{json.dumps(document)}\n" for document in documents), encoding="utf-8")


def run(command: str) -> str:
    result = CliRunner().invoke(main, command.split())
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.limit(300)  # the first run on a machine compiles the kernels of two measures
def test_examples_are_what_the_commands_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = page("outputs.md")
    written("feed.jsonl", FEED)
    written("timed.jsonl", TIMED)
    written("quoted.jsonl", QUOTED)
    Path("rules.toml").write_text(blocks(text, "toml")[0])
    Path("texts").mkdir()
    Path("texts", "a.txt").write_text("A short text about the harbour that is long enough.\n")
    Path("texts", "c.bin").write_bytes(b"\xff\xfe broken")
    said = run("dedup feed.jsonl --verdicts verdicts --pairs pairs --dead-letters letters --unique /dev/null --quiet")
    said += run("dedup texts --dead-letters files --unique /dev/null --quiet --max-rejected 1")
    said += run("dedup quoted.jsonl --measure containment --verdicts quotes --unique /dev/null --quiet")
    options = "--source-field outlet --time-field published --on-conflict update --deleted-field deleted --quiet"
    said += run(
        f"dedup timed.jsonl --index timed {options} --unique unique --groups groups --alerts alerts --rules rules.toml"
    )
    said += run("delete a1 --index timed --unique unique")
    said += run("groups 0 --index timed --json")
    said += "".join(Path(name).read_text() for name in FILES)
    shown = text.partition("## Verdicts\n")[2]
    lines = [
        line for block in blocks(shown, "json") for line in block.splitlines()
        if not line.startswith('{"offset"')  # of a receiver
    ]  # fmt: skip
    assert len(lines) > 12
    for line in lines:
        assert line in said, line


def test_problems_has_each_code() -> None:
    page = (ROOT / "docs/reference/problems.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| (\d+) \| (.+) \| (.+) \|$", page, re.MULTILINE)
    assert rows == [(name, str(code.status), code.title, code.remedy) for name, code in CODES.items()]
    sources = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "stream_lsh/serve").rglob("*.py"))
    assert set(re.findall(r'\bcode="(\w+)"', sources)) <= set(CODES)
