"""Feeds in which documents are replaced and deleted: from the lines that come in to the lines that go out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from stream_lsh.cli import main
from stream_lsh.embedded.information import information
from stream_lsh.errors import UsageError
from stream_lsh.kafka.settings import KafkaSettings

TEXT = "the council has voted for the new bridge over the river work begins in spring and takes two years"
OTHER = "an old oak fell on the road to the harbour last night and nobody was hurt the fire brigade says so"
CHANGING = ("--on-same-id", "update", "--deleted-field", "deleted", "--time-field", "ts", "--quiet")


def stream_lsh(*arguments: str, input: str | None = None) -> Result:
    return CliRunner().invoke(main, list(arguments), input=input)


def document(id: Any, text: str, ts: int, **more: Any) -> dict[str, Any]:
    return {"id": id, "text": text, "ts": ts, **more}


def deletion(id: Any, **more: Any) -> dict[str, Any]:
    return {"id": id, "deleted": True, **more}


def dedup(folder: Path, *records: Any, name: str = "feed.jsonl", arguments: tuple[str, ...] = CHANGING) -> list[Any]:
    """The verdicts on some records."""
    feed = folder / name
    feed.write_text("".join(json.dumps(record) + "\n" for record in records))
    outputs = [word for what in ("unique", "verdicts") for word in (f"--{what}", str(folder / what))]
    done = stream_lsh("dedup", str(feed), "--state", str(folder / "index"), *outputs, *arguments)
    assert done.exit_code == 0, done.output
    return [json.loads(line) for line in (folder / "verdicts").read_text().splitlines()][-len(records) :]


def test_a_feed_updates_and_deletes(tmp_path: Path) -> None:
    found = dedup(
        tmp_path,
        document("a", TEXT, 10),
        document("b", TEXT + " or three", 11, deleted=False),
        document("a", OTHER, 12, deleted=None),
        document("a", TEXT, 9),
        deletion("a", text=7),
        deletion("b", ts=8),
        deletion("b", ts=11),
        deletion("nobody", ts=12),
        document("nobody", OTHER, 11),
        {"id": "c", "text": OTHER, "ts": 13, "deleted": "yes"},
    )
    kept = {"of": None, "similarity": None, "matches": []}
    assert found[0] == {"id": "a", "seq": 0, "kind": "unique", "group": 0, **kept}
    assert (found[1]["kind"], found[1]["of"], found[1]["group"]) == ("near_duplicate", "a", 0)
    heir = {"id": "b", "seq": 1}
    assert found[2] == {"id": "a", "seq": 2, "kind": "unique", "group": 2, "replaces": 0, "heir": heir, **kept}
    assert found[3] == {"id": "a", "seq": 3, "kind": "outdated", "group": None, **kept}
    assert found[4] == {"id": "a", "seq": 4, "kind": "deleted", "group": 2, "replaces": 2, **kept}
    assert found[5] == {"id": "b", "seq": 5, "kind": "outdated", "group": None, **kept}
    assert found[6] == {"id": "b", "seq": 6, "kind": "deleted", "group": 0, "replaces": 1, **kept}
    assert found[7] == {"id": "nobody", "seq": 7, "kind": "deleted", "group": None, **kept}
    assert found[8] == {"id": "nobody", "seq": 8, "kind": "outdated", "group": None, **kept}
    assert found[9]["kind"] == "rejected"
    (letter,) = map(json.loads, (tmp_path / "index" / "dead-letters.jsonl").read_text().splitlines())
    assert (letter["reason"], letter["line"]) == ("wrong_type", 10)
    assert letter["detail"] == 'the field "deleted" is a string, not a boolean'
    facts: Any = information(tmp_path / "index", check=True)
    assert (facts["documents"]["stored"], facts["health"]["problems"]) == (0, [])


def test_the_index_remembers_how_it_changes(tmp_path: Path) -> None:
    dedup(tmp_path, document("a", TEXT, 10))
    found = dedup(tmp_path, document("a", OTHER, 11), deletion("a"), name="next", arguments=("--quiet",))
    assert [(verdict["kind"], verdict["replaces"]) for verdict in found] == [("unique", 0), ("deleted", 1)]
    update = ("--on-same-id", "update")
    for given in (("--on-same-id", "reject"), ("--deleted-field", "gone", *update), ("--time-field", "at")):
        refused = stream_lsh("dedup", str(tmp_path / "next"), "--state", str(tmp_path / "index"), *given)
        assert refused.exit_code == 3, given
        assert given[0][2:].replace("-", "_") in refused.output


def test_a_query_decides_as_the_next_document_would(tmp_path: Path) -> None:
    dedup(tmp_path, document("a", TEXT, 10), document("b", OTHER, 10))
    feed = tmp_path / "asked"
    lines = [document("a", OTHER, 9), document("a", OTHER, 10), document("a", TEXT + " or three", 10)]
    feed.write_text("".join(json.dumps(line) + "\n" for line in lines))
    output = tmp_path / "answers"
    arguments = ["--input", str(feed), "--state", str(tmp_path / "index"), "--output", str(output), "--quiet"]
    assert stream_lsh("query", *arguments).exit_code == 0
    kinds = [json.loads(line)["kind"] for line in output.read_text().splitlines()]
    assert kinds == ["outdated", "exact_duplicate", "unique"]


def test_the_summary_says_what_changed(tmp_path: Path) -> None:
    feed = tmp_path / "feed.jsonl"
    records = [document("a", TEXT, 10), document("a", OTHER, 11), document("a", TEXT, 9), deletion("a"), deletion("b")]
    feed.write_text("".join(json.dumps(record) + "\n" for record in records))
    done = stream_lsh("dedup", str(feed), "--unique", str(tmp_path / "unique"), *CHANGING[:-1])
    assert done.exit_code == 0, done.output
    assert "2   40 %  deleted" in done.stderr
    assert "1   20 %  outdated (older than what is known of the id)" in done.stderr
    assert "1 document replaced the version before" in done.stderr


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("--deleted-field", "deleted"), "give on_same_id = 'update' too"),
        (("--on-same-id", "update", "--shards", "2"), "needs against = 'unique' and shards = 1 so far"),
        (("--on-same-id", "update", "--against", "any"), "needs against = 'unique' and shards = 1 so far"),
        (("--on-same-id", "update", "--groups", "groups"), "--groups: so far an index keeps none whose documents"),
        (("--on-same-id", "replace"), "on_same_id"),
    ],
)
def test_what_does_not_go_together_is_refused(tmp_path: Path, given: tuple[str, ...], message: str) -> None:
    (tmp_path / "feed").write_text(json.dumps(document("a", TEXT, 10)) + "\n")
    done = stream_lsh("dedup", str(tmp_path / "feed"), "--state", str(tmp_path / "index"), *given)
    assert done.exit_code == 2 and message in done.output


def test_kafka_has_neither(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="on_same_id = 'update': on Kafka nothing is replaced yet"):
        KafkaSettings.load(None, on_same_id="update")
    with pytest.raises(UsageError, match="deleted_field"):
        KafkaSettings.load(None, deleted_field="deleted")
    for command in ("worker", "reindex", "skip"):
        assert "on-same-id" not in (shown := stream_lsh(command, "--help").output) and "deleted-field" not in shown
        assert stream_lsh(command, "--on-same-id", "update").exit_code == 2
    assert {"on_same_id", "deleted_field"}.isdisjoint(KafkaSettings.load(None).answers)
