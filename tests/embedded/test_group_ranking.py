"""The orders of the groups that are kept up with commits: those of a scan of the store."""

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from support.copies import FIELDS, SURE, copies
from support.group_tables import MINUTE, batches, check_tables, scanned
from support.long_form import LONG, seeds
from support.waiting import until

from stream_lsh.documents.builder import Builder
from stream_lsh.embedded import group_joins, group_ranking
from stream_lsh.embedded.engine import Engine
from stream_lsh.embedded.group_ranking import Ranking
from stream_lsh.embedded.group_store import row_key
from stream_lsh.errors import StoreError
from stream_lsh.settings.model import Settings


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
