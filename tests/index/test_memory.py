from __future__ import annotations

from collections import defaultdict

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_lsh.index.memory import COUNT, HEAD, MIDDLE, Memory, append, find


def post(memory: Memory, key: int, row: int, half: int) -> None:
    slot = np.int64(np.uint64(key) >> memory.shift)
    append(
        memory.keys,
        memory.entries,
        memory.rows,
        memory.following,
        memory.used,
        slot,
        np.uint64(key),
        np.uint32(row),
        np.int64(half),
    )


def chain(memory: Memory, node: int) -> list[int]:
    rows = []
    while node >= 0:
        rows.append(int(memory.rows[node]))
        node = int(memory.following[node])
    return rows


# Keys of few high bits meet in the same home slots, so that probing happens all the time.
keys = st.integers(0, 30).flatmap(lambda low: st.integers(0, 7).map(lambda high: (high << 61) + low + 1))
# Whoever knows the hashes can have all of them in the last slots.
last_keys = st.integers(1, 200).map(lambda low: 2**64 - low)
# Those that find no room there stand among the keys of the first slots.
first_keys = st.integers(0, 20).map(lambda high: (high << 54) + 1)


@settings(max_examples=60, deadline=None)
@given(st.lists(keys | last_keys | first_keys, max_size=300), st.integers(1, 4))
def test_buckets_hold_what_was_posted_oldest_first(posted: list[int], half: int) -> None:
    memory = Memory.of(400)
    expected: dict[int, list[int]] = defaultdict(list)
    for row, key in enumerate(posted):
        post(memory, key, row, half)
        expected[key].append(row)
    for key, rows in expected.items():
        entry = memory.entries[find(memory.keys, memory.shift, np.uint64(key))]
        assert entry[COUNT] == len(rows)
        assert chain(memory, int(entry[HEAD])) == rows
        # A bucket is read from its middle on for the newest half.
        assert chain(memory, int(entry[MIDDLE])) == rows[-half:]


@settings(max_examples=60, deadline=None)
@given(st.lists(keys | last_keys | first_keys, max_size=300))
def test_sorted_is_by_key_then_row(posted: list[int]) -> None:
    memory = Memory.of(400)
    for row, key in enumerate(posted):
        post(memory, key, row, 2)
    found_keys, found_rows = memory.sorted()
    pairs = list(zip(found_keys.tolist(), found_rows.tolist(), strict=True))
    assert pairs == sorted((key, row) for row, key in enumerate(posted))
    memory.clear()
    assert len(memory.sorted()[0]) == 0
