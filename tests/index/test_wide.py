"""Nothing wraps at 2^32: rows, postings, places in files, blocks of memory. Files are sparse: they cost nothing."""

import os
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.feeds import nasty
from support.indexes import fed, once, opened

from stream_lsh.errors import UsageError
from stream_lsh.index import index as module
from stream_lsh.index.kernel.candidates import best, nominate
from stream_lsh.index.kernel.row_access import word
from stream_lsh.index.kernel.work import Scratch
from stream_lsh.index.postings.bloom_filter import filter_mask, filter_word, filter_words
from stream_lsh.index.postings.bucket import passing, read
from stream_lsh.index.postings.memtable import POOL_WORDS, Memtable, append, find, newest, posted
from stream_lsh.index.postings.posting import directory_bits, first_posting, packed, posting_bytes
from stream_lsh.index.postings.run import Run
from stream_lsh.index.rows.deleted_rows import DeletedRows
from stream_lsh.index.rows.keys import KEY_BITS
from stream_lsh.index.rows.layout import MASK, SEQ, Rows
from stream_lsh.index.rows.row_file import RowFile, Shape
from stream_lsh.index.segments.manifest import BATCH
from stream_lsh.index.shard import Shard
from stream_lsh.index.store.files import PAGE
from stream_lsh.index.store.rocksdb import IDS, Store, rows_key
from stream_lsh.settings.checks import MOST_POSTINGS
from stream_lsh.settings.model import Settings

HUGE = 2**32


@pytest.mark.parametrize(("compare_with", "base"), [("kept", HUGE - 100), ("all", 2**40 - 400)])
def test_a_shard_with_rows_beyond_32_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compare_with: str, base: int
) -> None:
    """Flushed, merged and opened again, it gives the answers of one whose rows begin at 0."""
    settings = Settings(compare_with=compare_with, memtable_documents=16, segment_documents=110)
    documents = nasty(41, 300)
    whole = once(documents, settings, tmp_path / "small")
    monkeypatch.setattr(module, "Shard", partial(Shard, base=base))
    found: list[dict[str, Any]] = []
    while len(found) < len(documents):
        at = len(found)
        with opened(settings, tmp_path / "large") as index:
            found += fed(index, documents[at : at + 130], at, 20)
            index.commit({})
            assert index.shards[0].count > base
    assert found == whole


@pytest.mark.parametrize("room", [4, 64])
def test_a_run_with_as_many_postings_as_there_can_be(tmp_path: Path, room: int) -> None:
    """Its last entries are read at the right places: from the file, at once or by bisection, and by `between`."""
    entries, many = 1 << directory_bits(MOST_POSTINGS), 20
    directory = np.zeros(entries + 1, np.uint32)
    directory[-3:] = MOST_POSTINGS - many, MOST_POSTINGS - many, MOST_POSTINGS
    directory[1:-3] = MOST_POSTINGS - many
    filter = np.full(8, 2**64 - 1, np.uint64)
    low = 64 - KEY_BITS
    keys = np.array([((1 << KEY_BITS) - 9 + k // 5) << low for k in range(many)], np.uint64)
    rows = np.array([2**27 - many + k for k in range(many)], np.uint32)
    path = tmp_path / "run"
    with path.open("wb") as file:
        file.truncate(PAGE + posting_bytes(MOST_POSTINGS, 2**27) * MOST_POSTINGS)
    fd = os.open(path, os.O_RDWR)
    try:
        run = Run(0, 0, 2**27, MOST_POSTINGS, filter, directory, None, path, os.dup(fd), PAGE)
        values = np.array([first_posting(key, run.bits, run.row_bits) for key in keys], np.uint64) + rows
        os.pwrite(fd, packed(values, run.octets).tobytes(), PAGE + run.octets * (MOST_POSTINGS - many))
        table = run.line(2**39)[None]
        memory = Memtable.of(16)
        for key in np.unique(keys):
            out = np.empty(16, np.int64)
            wanted = [2**39 + row for row in rows[keys == key].tolist()][::-1]
            hits = np.empty((1, (len(table) + 63) >> 6), np.uint64)
            passing(np.array([key]), table, hits)
            for limit, first in ((16, 0), (3, 2**39), (16, wanted[0]), (16, wanted[len(wanted) // 2])):
                seen, most = [row for row in wanted if row >= first], np.int64(limit)
                got = read(key, find(memory, key), hits, 0, table, memory, first, most, np.empty(room, np.uint64), out)
                assert (out[: got[0]].tolist(), got[1]) == (seen[:limit], len(seen) > limit)
        found_keys, found_rows = run.between(MOST_POSTINGS - many + 3, MOST_POSTINGS)
        assert found_keys.tolist() == keys[3:].tolist() and found_rows.tolist() == rows[3:].tolist()
        assert run.position(int(keys[5])) == MOST_POSTINGS - many + 5
        assert run.position(1 << 64) == MOST_POSTINGS
    finally:
        os.close(fd)


@pytest.mark.parametrize("n", [MOST_POSTINGS, 2**31 + 12345, 2**27, 1])
def test_the_filter_s_words_are_those_of_the_keys_in_order(n: int) -> None:
    """Chunks of a merge are cut at the smallest key of a word."""
    words, bits = filter_words(n), directory_bits(n)
    assert words * 64 >= n * 9 and words < HUGE
    assert bits <= 32 and n >> bits <= 64
    for chance in (0.0, 0.1, 0.37, 0.5, 0.99999, 1.0):
        number = min(int(chance * words), words - 1)
        bound = -(-(number << 32) // words) << 32
        assert filter_word(np.uint64(bound), np.uint64(words)) == number
        if bound:
            assert filter_word(np.uint64(bound - 1), np.uint64(words)) == number - 1
    assert filter_word(np.uint64(2**64 - 1), np.uint64(words)) == words - 1
    assert 1 <= int(filter_mask(np.uint64(2**64 - 1))).bit_count() <= 4


def test_rows_behind_two_to_the_32_bytes(tmp_path: Path) -> None:
    """Written, summed and read by Python and by the kernel, at the last rows that a segment can have."""
    settings = Settings()
    shape, flushed = Shape(settings), settings.documents_of_a_segment - 50
    path = tmp_path / "rows"
    RowFile(path, shape, 0).close()
    os.truncate(path, PAGE + 8 * shape.width * flushed)
    rows = np.random.default_rng(1).integers(0, 1 << 64, (50, shape.width), np.uint64)
    file = RowFile(path, shape, flushed)
    try:
        crc = file.append(rows)
        assert path.stat().st_size == PAGE + 8 * shape.width * (flushed + 50)
        assert np.array_equal(file.read(flushed, flushed + 50), rows)
        assert file.checksum(flushed, flushed + 50) == crc
        first = 2**39
        kernel = Rows(
            base=first + flushed + 50, total=first + flushed + 50, recent=np.zeros((1, shape.width), np.uint64),
            segments=np.array([[0, -1, 0], [first, file.file, file.start]]), signature_at=shape.signature_at,
            read=np.empty(shape.width, np.uint64), begin=np.empty(MASK, np.uint64), known=-1,
            kept=first + flushed + 50, ring=np.empty(16, np.uint64), notes=np.empty(1, np.uint8), log_at=shape.log_at,
            seen=first, seen_log=-1, guides=first, deleted_rows=DeletedRows.of(first),
        )  # fmt: skip
        for k in (0, 1, 49):
            assert word(kernel, first + flushed + k, SEQ) == rows[k, SEQ]
            assert word(kernel, first + flushed + k, np.int64(shape.width - 1)) == rows[k, -1]
    finally:
        file.close()


def test_candidates_of_any_row_are_ranked_by_agreement_then_newest() -> None:
    scratch = Scratch.of(8, 0, 1024, 0, 128)
    chance = np.random.default_rng(3)
    rows = np.unique(np.concatenate((chance.integers(0, 2**40, 900), [0, HUGE - 1, HUGE, HUGE + 1, 2**40 - 1])))
    agreements = chance.integers(0, 129, len(rows))
    for row, agreement in zip(rows, agreements, strict=True):
        nominate(row, agreement, scratch)
    found = [best(scratch) for _ in rows]
    assert scratch.candidates == 0
    pairs = sorted(zip(agreements.tolist(), rows.tolist(), strict=True), reverse=True)
    assert [(int(row), int(agreement)) for row, agreement in found] == [(row, agreement) for agreement, row in pairs]


def test_values_of_rows_and_segments_beyond_32_bits(tmp_path: Path) -> None:
    store = Store(tmp_path / "db", sync=False)
    try:
        places = [(0, 0), (0, HUGE - 10), (0, HUGE), (0, 2**40), (HUGE - 1, 2**40 + 5)]
        store.write({rows_key(IDS, 7, number, row): b"%d" % row for number, row in places})
        for number, row in places:
            for later in (0, 9):
                assert store.holding(IDS, 7, number, row + later) == (row, b"%d" % row)
    finally:
        store.close()


def test_blocks_of_memory_up_to_the_last_word(tmp_path: Path) -> None:
    """The pool of the largest segment has 2^32 words: blocks at its end are found, read and sorted."""
    memory = Memtable.of(1000)
    memory.pool = np.memmap(tmp_path / "pool", np.uint32, "w+", shape=(HUGE,))
    memory.used = used = HUGE - POOL_WORDS * 900
    memory.first = HUGE + 7
    keys = [np.uint64(k << 40) for k in (1, 2, 3)]
    expected: dict[int, list[int]] = {int(key): [] for key in keys}
    for row in range(900):
        key = keys[row % 3 if row % 7 else 0]
        append(memory, find(memory, key), key, 2**27 - 900 + row)
        expected[int(key)].append(2**27 - 900 + row)
    assert used < memory.used <= HUGE
    out = np.empty(1000, np.int64)
    for key in keys:
        rows = expected[int(key)]
        assert posted(memory, find(memory, key), key) == len(rows)
        for limit in (1, 5, 1000):
            n = newest(memory, find(memory, key), key, limit, out)
            assert out[:n].tolist() == [HUGE + 7 + row for row in rows[: -limit - 1 : -1]]
    found = memory.sorted()
    assert found[0].tolist() == [key for key, rows in expected.items() for _ in rows]
    assert found[1].tolist() == [row for rows in expected.values() for row in rows]


@pytest.mark.parametrize("bands", [1, 18, 200, 1024])
def test_settings_keep_postings_and_blocks_below_two_to_the_32(bands: int) -> None:
    """A document has a posting a band and three more; a posting takes four words of memory at the most."""
    sizes = {"bands": bands, "rows": 1, "signature_size": bands}
    most = Settings(**sizes, memtable_documents=16).documents_of_a_segment
    assert most * (bands + 3) <= MOST_POSTINGS and most <= 2**27
    assert Settings(**sizes, segment_documents=most).documents_of_a_segment == most
    with pytest.raises((UsageError, ValueError), match="segment_documents"):
        Settings(**sizes, segment_documents=most + 1)
    largest = min(4194304, MOST_POSTINGS // (POOL_WORDS * (bands + 3)) - BATCH)
    assert Settings(**sizes, memtable_documents=largest).memtable_documents == largest
    assert POOL_WORDS * (largest + BATCH) * (bands + 3) + 1 <= HUGE
    with pytest.raises((UsageError, ValueError), match="memtable_documents"):
        Settings(**sizes, memtable_documents=largest + 1)
