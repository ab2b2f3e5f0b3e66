from collections import defaultdict

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_lsh.index.postings.memtable import (
    EMPTY,
    POOL_WORDS,
    Memtable,
    append,
    empty,
    find,
    newest,
    newest_before,
    oldest,
    posted,
    since,
)
from stream_lsh.index.rows.keys import KEY_BITS, posting_key

ROOM = 400


def post(memory: Memtable, key: int, row: int) -> None:
    append(memory, np.int64(np.uint64(key) >> memory.shift), np.uint64(key), row)


# Keys of few high bits meet in the same home slots, so that probing happens all the time.
keys = st.integers(0, 30).flatmap(lambda low: st.integers(0, 7).map(lambda high: (high << 61) + ((low + 1) << 16)))
# Whoever knows the hashes can have all of them in the last slots.
last_keys = st.integers(1, 200).map(lambda low: 2**64 - (low << 16))
# Those that find no room there stand among the keys of the first slots.
first_keys = st.integers(0, 20).map(lambda high: (high << 54) + (1 << 16))
posts = st.lists(keys | last_keys | first_keys, max_size=300)


@settings(max_examples=60, deadline=None)
@given(posts, st.integers(1, 12), st.integers(0, 2**33))
def test_buckets_are_read_from_either_end(given_keys: list[int], limit: int, first: int) -> None:
    memory = Memtable.of(ROOM)
    memory.first = first
    expected: dict[int, list[int]] = defaultdict(list)
    for row, key in enumerate(given_keys):
        post(memory, key, row)
        expected[key].append(first + row)
    out = np.empty(ROOM, np.int64)
    for key, rows in expected.items():
        slot = find(memory, np.uint64(key))
        assert not empty(memory, slot) and posted(memory, slot, np.uint64(key)) == len(rows)
        for most in (0, limit, ROOM):
            n = newest(memory, slot, np.uint64(key), most, out)
            assert out[:n].tolist() == rows[::-1][:most]
            for skipped in (0, 1, len(rows) // 2, len(rows)):
                n = oldest(memory, slot, np.uint64(key), skipped, most, out)
                assert out[:n].tolist() == rows[skipped:][:most]
        for row in (0, first, *rows, rows[-1] + 1):
            later = [other for other in rows if other >= row]
            assert since(memory, slot, np.uint64(key), row) == len(later)
            for most in (1, limit, ROOM):
                n = newest_before(memory, slot, np.uint64(key), row, most, out)
                assert out[:n].tolist() == [other for other in rows if other < row][::-1][:most]
    for key in range(1 << 16, 1 << 20, 1 << 16):
        if key not in expected:
            slot = find(memory, np.uint64(key))
            assert empty(memory, slot)
            assert posted(memory, slot, np.uint64(key)) == newest(memory, slot, np.uint64(key), ROOM, out) == 0
            assert oldest(memory, slot, np.uint64(key), 0, ROOM, out) == since(memory, slot, np.uint64(key), 0) == 0


@settings(max_examples=60, deadline=None)
@given(posts, st.integers(1, 60))
def test_sorted_is_by_key_then_row(given_keys: list[int], at_once: int) -> None:
    memory = Memtable.of(ROOM, 1)
    assert len(memory.slots) < len(Memtable.of(ROOM).slots)
    for row, key in enumerate(given_keys):
        if row % at_once == 0:
            memory.reserve_slots(at_once)
        post(memory, key, row)
    found_keys, found_rows = memory.sorted()
    pairs = list(zip(found_keys.tolist(), found_rows.tolist(), strict=True))
    assert pairs == sorted((key, row) for row, key in enumerate(given_keys))
    memory.clear()
    assert len(memory.sorted()[0]) == 0


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 300), max_size=20))
def test_there_is_room_for_as_many_postings_as_were_asked_for(sizes: list[int]) -> None:
    """However they are spread over buckets: the pool is never written beyond its end, some slots stay empty."""
    memory = Memtable.of(sum(sizes) or 1)
    row = 0
    for number, size in enumerate(sizes, 1):
        for _ in range(size):
            post(memory, number << 56, row)
            row += 1
    assert memory.used <= len(memory.pool) == POOL_WORDS * (sum(sizes) or 1) + 1
    assert (memory.slots[:, 0] == EMPTY).any()
    assert len(memory.sorted()[0]) == sum(sizes) == memory.postings


@given(st.integers(0, 2**64 - 1))
def test_a_key_is_the_hash_s_high_bits_and_never_empty(hashed: int) -> None:
    key = int(posting_key(np.uint64(hashed)))
    assert key % 2 ** (64 - KEY_BITS) == 0 and key != EMPTY
    assert key >> (64 - KEY_BITS) == max(1, hashed >> (64 - KEY_BITS))
