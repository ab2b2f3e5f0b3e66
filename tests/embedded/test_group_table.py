"""Groups of a job without updates: orders of the table, what memory and a window change."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
from support import jobs
from support.jobs import written

from stream_lsh import Settings
from stream_lsh.documents.times import NO_TIME
from stream_lsh.embedded.group_table import table, whole
from stream_lsh.errors import StoreError, UsageError

WORDS = [f"w{number}" for number in range(400)]
SETTINGS = {"time_field": "at", "source_field": "outlet", "memtable_documents": 64, "segment_documents": 200}


def feed(folder: Path, documents: int, files: int) -> list[str]:
    """Copies and edits of some hundred texts, with sources and times that run on, jump and are late."""
    chance, records = random.Random(3), list[dict[str, Any]]()
    texts = [[chance.choice(WORDS) for _ in range(40)] for _ in range(documents // 8)]
    for number in range(documents):
        words = list(chance.choice(texts[: 10 + number // 6] if number % 8 else texts[:1]))
        if chance.random() < 0.4:
            words[chance.randrange(40)] = "edited"
        document: dict[str, Any] = {"id": number, "at": 1_700_000_000 + 60 * number, "text": " ".join(words)}
        if chance.random() < 0.95:
            document["outlet"] = f"outlet {chance.randrange(30 if number % 3 else 3)}"
        if chance.random() < 0.1:
            document["at"] -= chance.randrange(100_000)
        records.append(document if chance.random() > 0.01 else {"id": number})
        if chance.random() < 0.03:
            records[-1] = chance.choice(records)
    return written(folder, records, files)


def run(
    folder: Path, inputs: list[str], settings: dict[str, Any] | None = None, groups: bool = True,
    only_new: bool = False,
) -> None:  # fmt: skip
    outputs = ["verdicts", *(["groups"] if groups else [])]
    jobs.run(folder, inputs, Settings(**SETTINGS | (settings or {})), outputs, only_new=only_new)


def rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(row.group.json) for row in table(folder / "index")]


def test_orders(tmp_path: Path) -> None:
    lines = []
    for number, hours in ((0, (0, 1, 2, 3)), (1, (5, 30, 31)), (2, (20, 32))):
        text = " ".join(WORDS[40 * number : 40 * number + 40])
        lines += [(hour, json.dumps({"id": f"{number}/{hour}", "at": hour * 3600, "text": text})) for hour in hours]
    (tmp_path / "feed").write_text("\n".join(line for _, line in sorted(lines)))
    run(tmp_path, [str(tmp_path / "feed")])

    def ids(**how: Any) -> list[tuple[str, int | None]]:
        return [(json.loads(row.group.id), row.joined_since) for row in table(tmp_path / "index", **how)]

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
            table(tmp_path / "index", **how)  # type: ignore[arg-type]
    with whole(tmp_path / "index", rows(tmp_path)[0]["group"]) as (_, members):
        assert {(member.time, member.source) for member in members} == {(NO_TIME, b"")}
    with pytest.raises(UsageError, match="there is no group 4711"), whole(tmp_path / "index", 4711):
        pass


def test_an_index_that_keeps_groups_does_so_in_every_run(tmp_path: Path) -> None:
    inputs = feed(tmp_path, 900, 3)
    once, often = tmp_path / "once", tmp_path / "often"
    run(once, inputs)
    run(often, inputs[:1])
    with pytest.raises(StoreError, match=r"source_field = 'outlet' \(now 'agency'\)"):
        run(often, inputs, {"source_field": "agency"})
    run(often, inputs[:2], {"source_field": None}, groups=False)
    with pytest.raises(StoreError, match="which were never made"):
        run(often, inputs)
    run(often, inputs, only_new=True)
    assert rows(often) == rows(once)
