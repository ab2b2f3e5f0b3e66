"""A shard that forgets, what it remembers of a window, and what follows it."""

import random
from pathlib import Path

import numpy as np
import pytest
from support.kafka.replica_play import UPDATES, WINDOW, answer, change_of, feed_of, frames, settings_of

from stream_lsh.index.rows.deleted_rows import DELETED_ROWS, deleted_count
from stream_lsh.index.segments.window import Window
from stream_lsh.index.store.rocksdb import FREQUENCIES, Store, parts_of
from stream_lsh.kafka.match.forgetting import Forgetting
from stream_lsh.kafka.match.replica import Replica
from stream_lsh.settings.model import Settings
from stream_lsh.wire.changes import Change
from stream_lsh.wire.sequenced import places_in_log

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


def test_document_frequencies_of_frames_that_are_applied_together_are_whole(tmp_path: Path) -> None:
    """The first of these frames has increments, and a later one the state as a whole."""
    settings = settings_of(**{**WINDOW, "measure": "tf-idf"})
    log = frames(settings, feed_of(settings, 300), seed=16)
    source, copy = Replica(settings, 0, tmp_path / "a"), Replica(settings, 0, tmp_path / "b")
    source.activate()
    changes = list(enumerate(change_of(answer(source, data)) for data in log))
    values = [Change.decode(value, settings).values for _, value in changes]
    whole = [value[:1] for each in values for key, value in each.items() if key[:1] == FREQUENCIES]
    begin = whole.index(b"\0")
    assert b"\1" in whole[begin:]
    copy.apply(changes[:begin])
    copy.apply(changes[begin:])
    copy.activate()
    assert (copy.shard.counted.frequencies.counts == source.shard.counted.frequencies.counts).all()
    copy.close()
    source.close()


MINUTE = 60_000


@pytest.mark.parametrize("seed", range(20))
def test_segments_begin_with_what_is_accepted(seed: int) -> None:
    """Where a frame has documents that were accepted before, too, as if it had not."""
    chance = random.Random(seed)
    settings = Settings(window="16m", segment_documents=8)
    forgetting, alone = Forgetting(settings, None, -1), Window(settings)
    first, now = 0, 10**12
    for frame in range(60):
        n = chance.randrange(1, 9)
        accepted = np.array([chance.random() < 0.6 for _ in range(n)])
        log = np.empty(n, np.int64)
        for i in range(n):  # what is not accepted moves no time
            now += chance.choice((0, 0, MINUTE, 3 * MINUTE)) * int(accepted[i])
            log[i] = now
        places = places_in_log(first, accepted, n)
        numbers = forgetting.cut(frame, log, places, None if accepted.all() else accepted)
        assert len(numbers) == n and (np.diff(numbers) >= 0).all()
        if accepted.any():
            count = int(accepted.sum())
            wanted = alone.cut(log[accepted], first + np.arange(count))
            assert numbers[accepted].tolist() == wanted.tolist()
            first += count
        assert forgetting.window.spans == alone.spans
    assert len(alone.spans) > 20
