"""A shard that forgets, and what follows it."""

from pathlib import Path

import pytest
from support.kafka.replica_play import UPDATES, WINDOW, answer, change_of, feed_of, frames, settings_of

from stream_lsh.index.rows.deleted_rows import DELETED_ROWS, deleted_count
from stream_lsh.index.store.rocksdb import FREQUENCIES, Store, parts_of
from stream_lsh.kafka.match.replica import Replica

pytestmark = pytest.mark.usefixtures("short_memory")


def test_a_changelog_that_has_lost_what_can_be_seen_is_no_window(tmp_path: Path) -> None:
    settings = settings_of(**WINDOW)
    log = frames(settings, feed_of(settings, 600))
    source, copy = Replica(settings, 0, tmp_path / "a"), Replica(settings, 0, tmp_path / "b")
    source.activate()
    changes = list(enumerate(change_of(answer(source, data)) for data in log))
    source.close()
    copy.apply(changes[-2:], start=len(changes) - 2)
    assert copy.missing > 30
    copy.close()
    away = Replica(settings, 0, tmp_path / "c")
    away.apply(changes[:5])
    away.apply(changes[-2:], start=len(changes) - 2)
    assert away.gap and away.forgetting is not None and not away.forgetting.outlived
    away.close()


@pytest.mark.parametrize("given", [UPDATES, {**UPDATES, "measure": "tf-idf"}])
def test_a_copy_lets_go_what_has_left_the_window(tmp_path: Path, given: dict[str, object]) -> None:
    """Rows in no file, too, and marks of deleted rows; their number is that of the marks that are left."""
    settings = settings_of(**{**given, **WINDOW})
    log = frames(settings, feed_of(settings, 460))
    source, copy = Replica(settings, 0, tmp_path / "a"), Replica(settings, 0, tmp_path / "b")
    source.activate()
    for offset, data in enumerate(log):
        copy.apply([(offset, change_of(answer(source, data)))])
    source.close()
    copy.close()
    store = Store(copy.folder / "db", read_only=True)
    deleted_rows = sum(deleted_count(store, 0, number) for number in store.segments())
    assert (store.named("shard/0") or {}).get(DELETED_ROWS, 0) == deleted_rows
    assert not settings.updates or 10 < deleted_rows < 100
    rows = {parts_of(key)[2] for key, _ in store.scan(b"r")}
    assert rows and min(rows) > 10 and len(rows) < 20
    assert set(store.segments()) == rows
    # Of how rare words are, what the last segment began with, and what its frames have added.
    assert len(list(store.rows_of(FREQUENCIES, 0, 0))) in (range(1, 12) if "measure" in given else [0])
    store.close()
    again = Replica(settings, 0, copy.folder)
    again.activate()
    again.close()
