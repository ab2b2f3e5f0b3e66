"""`dedup` of a file of events."""

import json
from pathlib import Path

from click.testing import CliRunner

from stream_lsh.cli import main

TEXT = "The council has voted for the new bridge over the river and work begins in spring"


def test_changes_of_a_database_are_deduplicated(tmp_path: Path) -> None:
    events = [
        {"op": "r", "after": {"id": 1, "text": TEXT}}, {"op": "c", "after": {"id": 2, "text": TEXT.upper()}},
        {"op": "t"}, {"op": "u", "after": {"id": 2, "text": "Another text altogether, about the harbour museum"}},
        {"op": "d", "before": {"id": 1, "text": TEXT}}, {"op": "c", "after": {"id": 3, "text": TEXT}},
    ]  # fmt: skip
    file, verdicts, letters, unique = (tmp_path / name for name in ("events.jsonl", "verdicts", "letters", "unique"))
    file.write_text("".join(json.dumps(event) + "\n" for event in events))
    options = ["--envelope", "debezium", "--quiet", "--index", str(tmp_path / "index")]
    outputs = ["--verdicts", str(verdicts), "--dead-letters", str(letters), "--unique", str(unique)]
    result = CliRunner().invoke(main, ["dedup", str(file), *options, *outputs])
    assert result.exit_code != 0 and "give on_conflict = 'update' too" in result.output
    result = CliRunner().invoke(main, ["dedup", str(file), *options, *outputs, "--on-conflict", "update"])
    assert result.exit_code == 0, result.output
    found = [json.loads(line) for line in verdicts.read_text().splitlines()]
    assert [(one["id"], one["kind"]) for one in found] == [
        (1, "unique"), (2, "exact_duplicate"), (None, "rejected"), (2, "unique"), (1, "deleted"), (3, "unique"),
    ]  # fmt: skip
    assert [json.loads(line)["reason"] for line in letters.read_text().splitlines()] == ["bad_event"]


def test_only_lines_are_events(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(TEXT)
    result = CliRunner().invoke(main, ["dedup", str(tmp_path), "--envelope", "cloudevents"])
    assert result.exit_code != 0 and "read of JSON lines only" in result.output
