"""All shards stop at the same frame, whatever their changelogs have besides."""

from support.kafka.replica_play import settings_of
from support.kafka.stages import KEY

from stream_lsh.kafka.lookup.alignment import Alignment, Behind, Lag
from stream_lsh.wire.bases import BEGINS, Base, Mark
from stream_lsh.wire.changes import Change

SETTINGS = settings_of(shards=2, compare_with="all")


def change(offset: int, predecessor: int) -> bytes:
    return Change(0, offset, predecessor, 0, 0, KEY, {}, b"").encode(SETTINGS)


def test_shards_stop_at_the_last_frame_of_all() -> None:
    found = Alignment(SETTINGS, [-1, 5], [0, 0])
    records = [change(2, -1), b"foreign", change(5, 2), change(2, -1), change(9, 7), change(7, 5)]
    for offset, value in enumerate(records):
        found.add(0, offset, value)
    assert found.frame == 5  # shard 1 has no more; 9 does not follow 5
    assert [offset for offset, _ in found.take(0, found.frame)] == [0, 1, 2, 3, 4]
    found.add(1, 3, change(7, 5))
    assert (found.frame, len(found.take(0, 7)), len(found.take(1, 7))) == (7, 1, 1)


def test_trimmed_changelog_begins_anywhere() -> None:
    found = Alignment(SETTINGS, [-1, -1], [40, 40])
    found.add(0, 40, Base(0, KEY, Mark(BEGINS, 11, 0, 0, 0), facts={}).encode(SETTINGS))
    found.add(1, 40, change(12, 11))
    assert found.frame == 11
    found.add(0, 41, change(12, 11))
    assert found.frame == 12


def test_lag_counts_from_the_first_later_verdict() -> None:
    lag = Lag()
    for last, documents, now in ((4, 40, 100.0), (4, 40, 101.0), (6, 60, 102.0), (9, 90, 105.0)):
        lag.note(last, documents, now)
    assert lag.behind(-1, 106.0) == Behind(90, 6.0)
    assert lag.behind(5, 106.0) == Behind(50, 4.0)
    assert lag.behind(9, 106.0) == lag.behind(10, 110.0) == Behind(0, 0.0)
