"""Groups of a job: events that fold to the table, and members in order, whatever is interrupted."""

from __future__ import annotations

import json
import random
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from support.kills import COMMITTING, kill
from support.long_form import LONG

from stream_lsh import Deduplicator, Document, Settings
from stream_lsh.documents.times import NO_TIME
from stream_lsh.embedded import shelf as module
from stream_lsh.embedded.group_table import reading_groups, table, whole
from stream_lsh.embedded.job import Job
from stream_lsh.errors import StateError, UsageError

WORDS = [f"w{number}" for number in range(400)]
SETTINGS = {"time_field": "at", "source_field": "outlet", "memory_documents": 256, "generation_documents": 700}


def feed(folder: Path, documents: int, files: int, seed: int = 3) -> list[str]:
    """Copies and edits of some hundred texts, with sources and times that run on, jump and are late."""
    chance = random.Random(seed)
    texts = [[chance.choice(WORDS) for _ in range(40)] for _ in range(documents // 8)]
    lines: list[str] = []
    for number in range(documents):
        words = list(chance.choice(texts[: 10 + number // 6] if number % 8 else texts[:1]))
        if chance.random() < 0.4:
            words[chance.randrange(40)] = "edited"
        document: dict[str, Any] = {"id": number, "at": 1_700_000_000 + 60 * number, "text": " ".join(words)}
        if chance.random() < 0.95:
            document["outlet"] = f"outlet {chance.randrange(30 if number % 3 else 3)}"
        if chance.random() < 0.1:
            document["at"] -= chance.randrange(100_000)
        if chance.random() < 0.01:
            document = {"id": number}
        lines.append(json.dumps(document) + "\n")
        if chance.random() < 0.03:
            lines[-1] = chance.choice(lines)
    names = []
    for number in range(files):
        path = folder / f"{number:03}.jsonl"
        path.write_text("".join(lines[number * len(lines) // files : (number + 1) * len(lines) // files]))
        names.append(str(path))
    return names


def run(folder: Path, inputs: list[str], settings: dict[str, Any] | None = None, **outputs: str) -> None:
    paths = {name: str(folder / path) for name, path in ({"groups": "g", "verdicts": "v"} | outputs).items() if path}
    Job(Settings(**SETTINGS | (settings or {})), inputs, paths, folder / "state").run()


def rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(row.group.json) for row in table(folder / "state")]


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("settings", [{}, {"shards": 3, "decided_after": 64}], ids=["one shard", "three"])
def test_events_fold_to_the_table_and_the_members_to_both(tmp_path: Path, settings: dict[str, Any]) -> None:
    inputs = feed(tmp_path, 3000, 4)
    run(tmp_path, inputs[:3], settings)
    run(tmp_path, inputs, settings)
    events, verdicts = read(tmp_path / "g"), read(tmp_path / "v")
    folded = {event.pop("group"): event for event in (dict(event) for event in events)}
    found = {row.pop("group"): row for row in rows(tmp_path)}
    assert found == {number: {key: row[key] for key in list(row)[3:]} for number, row in folded.items()}

    dropped = [verdict for verdict in verdicts if verdict["kind"] in ("near_duplicate", "exact_duplicate")]
    assert [(event["seq"], event["id"], event["group"]) for event in events] == [
        (verdict["seq"], verdict["id"], verdict["group"]) for verdict in dropped
    ]
    documents = {seq: json.loads(line) for seq, line in enumerate(
        line for name in inputs for line in Path(name).read_text().splitlines())}  # fmt: skip
    members = defaultdict(list)
    for verdict in verdicts:
        if verdict["kind"] in ("unique", "near_duplicate", "exact_duplicate"):
            members[verdict["group"]].append(verdict)
    assert len(found) > 100 and max(row["sources"] for row in found.values()) > 16
    for number in sorted(found, key=lambda number: -found[number]["size"])[:40]:
        with whole(tmp_path / "state", number) as (group, stored):
            listed = list(stored)
        assert group.size == len(listed)
        for member, verdict in zip(listed, members[number], strict=True):
            document = documents[member.seq]
            assert member.seq == verdict["seq"] and json.loads(member.id) == verdict["id"]
            assert (member.kind.label, member.similarity) == (verdict["kind"], verdict["similarity"])
            assert member.time == 1000 * document["at"]
            assert (json.loads(member.source) if member.source else None) == document.get("outlet")
        row = found[number]
        assert row["representative"] == {"id": members[number][0]["id"], "seq": number}
        assert (row["first"], row["last"]) == (min(m.time for m in listed), max(m.time for m in listed))
        sources = list(dict.fromkeys(json.loads(m.source) for m in listed if m.source))
        assert (row["sources"], row["first_sources"]) == (len(sources), sources[:16])


def test_what_is_in_memory_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = feed(tmp_path, 2500, 25)
    large, small = tmp_path / "large", tmp_path / "small"
    large.mkdir()
    small.mkdir()
    run(large, inputs)
    for name in ("MOST_ROWS", "MOST_BLOCKS", "MOST_SOURCES", "BLOCK"):
        monkeypatch.setattr(module, name, 2)
    monkeypatch.setattr("stream_lsh.embedded.job.COMMIT_SECONDS", 0.0)
    run(small, inputs)
    assert (small / "g").read_bytes() == (large / "g").read_bytes()
    assert rows(small) == rows(large)


def test_orders(tmp_path: Path) -> None:
    lines = []
    for number, hours in ((0, (0, 1, 2, 3)), (1, (5, 30, 31)), (2, (20, 32))):
        text = " ".join(WORDS[40 * number : 40 * number + 40])
        lines += [(hour, json.dumps({"id": f"{number}/{hour}", "at": hour * 3600, "text": text})) for hour in hours]
    (tmp_path / "feed").write_text("\n".join(line for _, line in sorted(lines)))
    run(tmp_path, [str(tmp_path / "feed")], {"source_field": "outlet"})

    def ids(**how: Any) -> list[tuple[str, int | None]]:
        return [(json.loads(row.group.id), row.grown) for row in table(tmp_path / "state", **how)]

    hour = 3_600_000
    assert ids() == [("0/0", None), ("1/5", None), ("2/20", None)]
    assert ids(limit=1) == [("0/0", None)]
    assert ids(order="newest", limit=2) == [("2/20", None), ("1/5", None)]
    assert ids(order="growing") == [("1/5", 2), ("2/20", 1)]
    assert ids(order="growing", since=hour // 2) == [("2/20", 1)]
    assert ids(order="largest", since=2 * hour) == [("1/5", 2), ("2/20", 1)]


def test_without_times_and_sources(tmp_path: Path) -> None:
    inputs = feed(tmp_path, 500, 2)
    run(tmp_path, inputs, {"time_field": None, "source_field": None})
    assert all(row["first"] is None and row["last"] is None and row["sources"] == 0 for row in rows(tmp_path))
    for how in ({"since": 1}, {"order": "growing"}):
        with pytest.raises(UsageError, match="have no event times"):
            table(tmp_path / "state", **how)  # type: ignore[arg-type]
    with whole(tmp_path / "state", rows(tmp_path)[0]["group"]) as (_, members):
        assert {(member.time, member.source) for member in members} == {(NO_TIME, b"")}
    with pytest.raises(UsageError, match="there is no group 4711"), whole(tmp_path / "state", 4711):
        pass


def test_an_index_keeps_groups_from_its_beginning_or_not_at_all(tmp_path: Path) -> None:
    inputs = feed(tmp_path, 600, 3)
    late = tmp_path / "late"
    late.mkdir()
    run(late, inputs[:1], groups="")
    with pytest.raises(StateError, match=r"keeps no groups: .* feed it again into a new folder with --groups FILE"):
        run(late, inputs)
    with pytest.raises(StateError, match="keeps no groups"):
        table(late / "state")
    with pytest.raises(UsageError, match="only under --against unique"):
        run(tmp_path, inputs, {"against": "any"})


def test_an_index_that_keeps_groups_does_so_in_every_run(tmp_path: Path) -> None:
    inputs = feed(tmp_path, 900, 3)
    once, often = tmp_path / "once", tmp_path / "often"
    once.mkdir()
    often.mkdir()
    run(once, inputs)
    run(often, inputs[:1])
    with pytest.raises(StateError, match=r"source_field = 'outlet' \(now 'agency'\)"):
        run(often, inputs, {"source_field": "agency"})
    run(often, inputs[:2], {"source_field": None}, groups="")
    run(often, inputs)
    assert rows(often) == rows(once)


def test_the_interface_in_python_keeps_them_too(tmp_path: Path) -> None:
    inputs = feed(tmp_path, 300, 1)
    run(tmp_path, inputs)
    before = {row["group"]: row for row in rows(tmp_path)}
    copied = max(before.values(), key=lambda row: row["size"])
    with whole(tmp_path / "state", copied["group"]) as (group, _):
        seq = group.seq
    text = json.loads(Path(inputs[0]).read_text().splitlines()[seq])["text"]
    with Deduplicator(state=tmp_path / "state") as deduplicator:
        (verdict,) = deduplicator.process([Document("from python", text, time=1_700_000_000)])
    assert verdict.group == copied["group"]
    after = {row["group"]: row for row in rows(tmp_path)}
    assert after.pop(copied["group"])["size"] == before.pop(copied["group"])["size"] + 1
    assert after == before


def test_a_window_ends_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Folded, the events are the table, which is no larger than two windows; nothing else of them is in the store."""
    inputs = feed(tmp_path, 2500, 5)
    large, small = tmp_path / "large", tmp_path / "small"
    large.mkdir()
    small.mkdir()
    run(large, inputs, {"window": "4h"})
    monkeypatch.setattr("stream_lsh.embedded.job.COMMIT_SECONDS", 0.0)
    for number in range(1, 6):
        run(small, inputs[:number], {"window": "4h"})
    assert (small / "g").read_bytes() == (large / "g").read_bytes()
    assert rows(small) == rows(large)

    folded: dict[int, dict[str, Any]] = {}
    ended, seq = 0, 0
    for event in read(large / "g"):
        assert event["seq"] >= seq
        seq, number, row = event["seq"], event["group"], {key: event[key] for key in list(event)[3:]}
        if event["event"] == "ended":
            assert event["seq"] > 2 * 240 + ended and number >= ended
            ended, before = number, folded.pop(number)
            assert row == before | {"version": before["version"] + 1, "living": 0}
        else:
            assert (event["event"] == "created") == (number not in folded)
            folded[number] = row
    assert folded == {row["group"]: row for row in rows(large)}
    assert ended > 1500
    with pytest.raises(UsageError, match="there is no group"), whole(large / "state", ended):
        pass
    with reading_groups(small / "state") as (store, fact):
        for kind in (b"g", b"n", b"s"):
            found = [int.from_bytes(key[1:9], "big") for key, _ in store.scan(kind)]
            assert all(number >= fact["cleared"] > 1000 for number in found)
            assert found or kind == b"s"
        assert len(list(store.scan(b"k"))) < 40


@pytest.mark.parametrize("window", [None, "4h"])
@pytest.mark.parametrize("kills", [3, pytest.param(25 if LONG else 8, marks=pytest.mark.long)])
def test_killed_at_random_moments(tmp_path: Path, kills: int, window: str | None) -> None:
    inputs = feed(tmp_path, 200 * kills + 600, 20 * kills)
    broken, undisturbed = tmp_path / "broken", tmp_path / "undisturbed"
    broken.mkdir()
    undisturbed.mkdir()
    more = {"window": window} if window else {}
    run(undisturbed, inputs, more)
    events = broken / "g"
    size = (undisturbed / "g").stat().st_size
    options = [f"--{name.replace('_', '-')}={value}" for name, value in (SETTINGS | more).items()]
    command = [
        sys.executable, "-c", COMMITTING, "dedup", *inputs, "--quiet", "--state", str(broken / "state"), *options,
        "--groups", str(events), "--unique", "/dev/null",
    ]  # fmt: skip
    kill(command, events, size, kills)
    assert events.read_bytes() == (undisturbed / "g").read_bytes()
    assert rows(broken) == rows(undisturbed)
    for row in rows(undisturbed)[:10]:
        with (
            whole(broken / "state", row["group"]) as (_, ours),
            whole(undisturbed / "state", row["group"]) as (_, all_),
        ):
            assert list(ours) == list(all_)
