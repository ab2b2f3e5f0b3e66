"""Stored answers of a shard: they outlive what they name."""

from pathlib import Path

from support.kafka.replica_play import settings_of

from stream_lsh.index.store.rocksdb import DECISIONS, ROWS, Store, rows_key
from stream_lsh.kafka.match.kept_answers import KeptAnswers
from stream_lsh.wire.changes import Change

NO_KEY = b""


def unflushed(first: int, last: int) -> bytes:
    raise AssertionError(f"rows {first} to {last} are in the store")


def test_an_answer_outlives_the_segment_of_its_decisions(tmp_path: Path) -> None:
    """A frame decides rows of earlier frames. The window removes their segment while the answer is kept."""
    settings = settings_of(shards=2, compare_with="kept")
    decided, rows = rows_key(DECISIONS, 1, 3, 116), rows_key(ROWS, 1, 9, 169)
    change = Change(
        1, 40, 39, 169, 192, NO_KEY, {rows: b"rows of the frame", decided: b"decisions"}, b"the reply", (3, 100, 120)
    )
    store = Store(tmp_path / "db", sync=False)
    try:
        answers = KeptAnswers(settings, store, 1, 0)
        deleted = list[bytes]()
        store.write(change.values | answers.add(change, deleted, {}))
        before = answers.change(40, NO_KEY, unflushed)
        store.write({}, [decided])
        after = answers.change(40, NO_KEY, unflushed)
    finally:
        store.close()
    assert before is not None
    assert after is not None
    assert before.encode(settings) == after.encode(settings) == change.encode(settings)
    assert after.reply == b"the reply"
    assert not deleted
