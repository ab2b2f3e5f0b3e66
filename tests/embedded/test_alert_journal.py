"""The journal of alerts in an index: as durable as the verdicts, bounded, and erased with what it names."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stream_lsh import Settings
from stream_lsh.alerts.rules import read_rules
from stream_lsh.documents.builder import columns
from stream_lsh.documents.document import Document
from stream_lsh.embedded.alert_journal import AlertJournal
from stream_lsh.embedded.engine import Engine
from stream_lsh.embedded.erasure import erase

RULE = '[[rule]]\nname = "copied"\nkind = "copied"\nby = "herald"\nsimilarity = 0.9\n'
SETTINGS = Settings(time_field="at", source_field="outlet", on_conflict="update")


@contextmanager
def opened(folder: Path) -> Iterator[Engine]:
    (folder / "rules.toml").write_text(RULE)
    engine = Engine.open(SETTINGS, folder / "index", groups=True, rules=read_rules(folder / "rules.toml"))
    engine.journals_alerts = True
    try:
        yield engine
    finally:
        engine.close()


def copied(engine: Engine, first: int, count: int) -> None:
    """So many copies by the herald, each of which raises an alert."""
    for number in range(first, first + count):
        text = " ".join(f"word{number}-{place}" for place in range(10))
        documents = [Document(f"{name}-{number}", text, time=0, source=name) for name in ("wire", "herald")]
        engine.add(columns(documents))


def numbers(journal: AlertJournal, before: int | None = None, limit: int = 10) -> list[int]:
    return [entry.number for entry in journal.latest(before, limit, None)]


def test_alerts_are_committed_with_their_documents(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        copied(engine, 1, 2)
        engine.commit(now=1000)
        copied(engine, 3, 1)  # never committed
    with opened(tmp_path) as engine:
        assert engine.seq == 4 and numbers(engine.alert_journal) == [1, 0]
        copied(engine, 3, 1)
        engine.commit(now=1001)
        newest = engine.alert_journal.get(2)
        assert newest is not None and (newest.time, newest.rule) == (1_001_000, "copied")
        assert b'"id":"herald-3"' in newest.line and len(newest.key) == 32
        assert numbers(engine.alert_journal, before=2, limit=1) == [1]
        assert engine.alert_journal.latest(None, 10, "another") == []
        found = engine.alert_journal.after(0, {"copied"})
        assert found is not None and found.number == 1


def test_oldest_alerts_are_dropped_at_the_limit(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        engine.alert_journal = AlertJournal(engine.index.store, most=3)
        copied(engine, 1, 2)
        engine.commit()
        copied(engine, 3, 3)
        engine.commit()
        assert numbers(engine.alert_journal) == numbers(AlertJournal(engine.index.store)) == [4, 3, 2]
        engine.alert_journal = AlertJournal(engine.index.store, most_bytes=1)
        copied(engine, 6, 1)
        engine.commit()
        assert numbers(engine.alert_journal) == numbers(AlertJournal(engine.index.store)) == [5]


def test_erasing_after_the_clock_was_set_back_removes_all_up_to_its_time(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        for number, now in enumerate((2000, 1000, 3000)):
            copied(engine, number, 1)
            engine.commit(now=now)
        engine.alert_journal.erase(1100)
        assert numbers(engine.alert_journal) == numbers(AlertJournal(engine.index.store)) == [2]


def test_alert_before_a_deletion_is_erased_after_the_clock_was_set_back(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        copied(engine, 0, 1)
        engine.commit(now=2000)
        engine.add(columns([Document("herald-0", deleted=True)]))
        engine.commit(now=1000)
    with opened(tmp_path) as engine:
        assert numbers(engine.alert_journal) == [0]
        engine.alert_journal.erase(1000)
        assert numbers(engine.alert_journal) == numbers(AlertJournal(engine.index.store)) == []


def test_erasing_removes_alerts_that_may_name_the_document(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        copied(engine, 1, 2)
        engine.commit()
        engine.add(columns([Document("herald-2", deleted=True)]))
        engine.commit()
        assert numbers(engine.alert_journal) == [1, 0]
    erase(tmp_path / "index", everything=True)
    files = (path for path in (tmp_path / "index").rglob("*") if path.is_file())
    assert not any(b"herald-2" in path.read_bytes() for path in files)
    with opened(tmp_path) as engine:
        assert numbers(engine.alert_journal) == [] and engine.alert_journal.next == 2
