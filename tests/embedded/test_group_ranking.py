"""Tables of groups: their orders, those kept up with commits, and what memory and a window change."""

import json
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from support import jobs
from support.copies import FIELDS, SURE, copies
from support.group_tables import MINUTE, batches, check_tables, scanned
from support.jobs import written
from support.long_form import LONG, seeds
from support.waiting import until

from stream_lsh import Settings
from stream_lsh.documents.builder import Builder
from stream_lsh.documents.times import NO_TIME
from stream_lsh.embedded import group_joins, group_ranking
from stream_lsh.embedded.engine import Engine
from stream_lsh.embedded.group_ranking import Ranking
from stream_lsh.embedded.group_store import row_key
from stream_lsh.embedded.group_table import table, whole
from stream_lsh.errors import StoreError, UsageError


@pytest.mark.long
@pytest.mark.parametrize("seed", seeds(2, 6, 12))
@pytest.mark.parametrize("given", [{}, {"window": "30m"}, {"shards": 3, "window": "5h"}], ids=str)
def test_tables_kept_up_with_commits_are_those_of_a_scan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: dict[str, Any], seed: int
) -> None:
    """Inserts, updates, deletions, late documents, ends of groups and stream time, with room for all joins or for few.
    Sometimes the writer takes over what it notes."""
    monkeypatch.setattr(group_ranking, "_AT_ONCE", 2)  # many parts, and groups are forgotten often
    monkeypatch.setattr(group_ranking, "_LARGE", 4)
    monkeypatch.setattr(group_ranking, "MOST_READ", 5)  # many pages
    monkeypatch.setattr(group_joins, "MOST_TAIL", 10)
    chance, most = random.Random(seed), 60 if seed % 2 else 1000
    engine = Engine.open(Settings(**SURE | FIELDS | given), tmp_path / "index", groups=True)
    kept = engine.ranking = Ranking(engine.index.store, most)
    records, at = copies(seed, 900 if LONG else 400), 0
    while at < len(records):
        size = chance.choice((1, 5, 40))
        builder = Builder(engine.fields)
        for record in records[at : at + size]:
            builder.add(record)
        engine.add(builder.columns())
        at += size
        if chance.random() < 0.1 and (engine.groups is not None and engine.index.window is not None):
            engine.set_back(engine.index.window.shown - MINUTE)
        monkeypatch.setattr(group_ranking, "_MOST_NOTED", chance.choice((0, 1000)))
        engine.commit(now=at)
        if chance.random() < 0.2 or at >= len(records):
            store = engine.index.store
            check_tables(store, (kept, Ranking(store, most), Ranking(store, 0)))
    engine.close()


def test_building_ends_when_the_index_is_closed(tmp_path: Path) -> None:
    engine = Engine.open(Settings(**SURE | FIELDS), tmp_path / "index", groups=True)
    with ThreadPoolExecutor(1) as pool:

        def close(ranking: Ranking) -> None:
            pool.submit(ranking.close)
            until(lambda: ranking._closed)

        with pytest.raises(StoreError, match="the index is closed"):
            Ranking(engine.index.store, listening=close)
    engine.close()


def test_a_table_is_that_of_one_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while another thread commits, and if the ranking is built meanwhile."""
    note = Ranking.note

    def slow(*given: Any) -> None:
        time.sleep(0.003)  # time enough to see what is written and not noted, if that were possible
        note(*given)

    monkeypatch.setattr(Ranking, "note", slow)
    engine = Engine.open(Settings(**SURE | FIELDS), tmp_path / "index", groups=True)
    ended, found = threading.Event(), list[tuple[bytes, ...]]()

    def read() -> None:
        while not ended.is_set():
            found.append(tuple(row.stored for row in engine.rank().first("largest", None, 10)))

    with ThreadPoolExecutor(1) as pool:
        reading, tables = pool.submit(read), {()}
        for some in batches(copies(5, 400), 8):
            builder = Builder(engine.fields)
            for record in some:
                builder.add(record)
            engine.add(builder.columns())
            engine.commit()
            rows = scanned(engine.index.store, "largest", None, 10)
            tables.add(tuple(engine.index.store.value(row_key(group)) or b"" for group, _ in rows))
        ended.set()
        reading.result()
    assert set(found) <= tables and len(set(found)) > 1
    engine.close()


def run(
    folder: Path, inputs: list[str], settings: dict[str, Any] | None = None, groups: bool = True,
    only_new: bool = False,
) -> None:  # fmt: skip
    outputs = ["verdicts", *(["groups"] if groups else [])]
    jobs.run(folder, inputs, Settings(**SURE | FIELDS | (settings or {})), outputs, only_new=only_new)


def rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(row.group.json) for row in table(folder / "index")]


def test_without_times_and_sources(tmp_path: Path) -> None:
    inputs = written(tmp_path, copies(3, 500))
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
    inputs = written(tmp_path, copies(3, 900))
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
