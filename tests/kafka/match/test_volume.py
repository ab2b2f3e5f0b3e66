"""How large the needed part of a changelog is, without a changelog."""

from typing import Any

import numpy as np
import orjson
import pytest

from stream_lsh.index.rows.layout import DELETED, ERASED, FLAGS, SIZE_BITS
from stream_lsh.index.rows.row_file import packed
from stream_lsh.index.store.rocksdb import FREQUENCIES, IDS, ROWS, TEXTS, rows_key
from stream_lsh.kafka.match.volume import ROW_WEIGHT, Volume, amount_of
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.wire.bases import BEGINS, ENDS, HAS_ROWS, Mark

ROW_BYTES = 80


def values(*flags: int, texts: int = 0) -> dict[bytes, bytes]:
    rows = np.zeros((len(flags), ROW_BYTES // 8), np.uint64)
    rows[:, FLAGS] = flags
    found = {ROWS: packed(rows), IDS: b"i" * 20, TEXTS: b"t" * texts, FREQUENCIES: b"w" * 999}
    return {rows_key(kind, 0, 0, 0): value for kind, value in found.items()}


def sized(shingles: int, *flags: int) -> int:
    return sum(map(int, flags)) | shingles << int(SIZE_BITS)


def test_amount_of_a_record() -> None:
    found = values(sized(30), sized(5, ERASED), sized(0, DELETED), texts=100)
    size, rows, texts, weight, count = amount_of(found, 1234).tolist()
    assert (size, texts, weight, count) == (1234, 120, 30 + ROW_WEIGHT, 3)
    assert 3 * ROW_BYTES <= rows < 3 * ROW_BYTES + 20


def test_size_begins_with_the_last_snapshot_that_counts() -> None:
    volume = Volume(None, counts=True)
    change = amount_of(values(sized(30), texts=100), 1000)
    for _ in range(10):
        volume.change(change)
    before = volume.lives(0, 10, ROW_BYTES)
    assert volume.size == 10_000 and 10 * 200 < before < 10 * 230
    half = volume.lives(5 * (30 + ROW_WEIGHT), 10, ROW_BYTES)
    assert before - half == 5 * 120
    for ended in (False, True):  # what an interrupted one has is needed by no reader
        volume.snapshot(BEGINS, amount_of({}, 50), counts=False)
        volume.change(change)
        volume.snapshot(HAS_ROWS, amount_of(values(sized(30), sized(5, ERASED), texts=100), 500), counts=False)
        volume = Volume(orjson.loads(orjson.dumps(volume.facts)), counts=True)
        assert volume.lives(0, 99, 0) == pytest.approx(before * (1.2 if ended else 1.1))
        volume.snapshot(ENDS, amount_of({}, 50), counts=ended)
    assert volume.size == 50 + 1000 + 500 + 50
    assert volume.lives(0, 99, 0) == sum(change.tolist()[1:3]) + sum(
        amount_of(values(0, 0, texts=100), 0).tolist()[1:3]
    )


def test_size_begins_with_the_oldest_segment() -> None:
    volume = Volume(None, counts=True)
    for segments in ([0], [0, 1], [0, 1, 2], [1, 2]):
        volume.change(amount_of({}, 100))
        volume.follow(segments)
        volume = Volume(orjson.loads(orjson.dumps(volume.facts)), counts=True)
    assert volume.size == 200


def test_records_are_placed_in_their_order() -> None:
    """Some were read from the changelog instead, by a worker that had lost the shard for a moment."""
    volume, mark = Volume(None, counts=True), Mark(HAS_ROWS, 7, 0, 5, 0)
    for what, record in ((3, b"a"), (mark, b"bb"), (5, b"ccc"), (mark, b"dddd")):
        assert volume.made(what, {}, record) == record
    assert [int(volume.placed(what)[0]) for what in (mark, 5, mark, 9)] == [2, 3, 4, 0]


@pytest.mark.parametrize(
    ("given", "cleans"),
    [
        ({"on_conflict": "update"}, True), ({}, False), ({"on_conflict": "update", "min_cleanable_bytes": 0}, False),
        ({"on_conflict": "update", "compare_with": "all"}, False),
        ({"on_conflict": "update", "shards": 2, "decision_lag": 8192}, True),
    ],
)  # fmt: skip
def test_where_the_size_counts(given: dict[str, Any], cleans: bool) -> None:
    assert KafkaSettings(**{"time_field": "ts", **given}).cleans is cleans
