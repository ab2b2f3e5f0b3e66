"""The block cache, which all stores of a process share."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from stream_lsh.index.store import column_families
from stream_lsh.index.store.rocksdb import IDS, Store, rows_key

SEGMENTS, VALUES, VALUE_BYTES = 8, 64, 8_192
LIMIT = 1 << 20


@pytest.fixture
def small_cache() -> Iterator[None]:
    before = column_families.cached_bytes()
    column_families.limit_cache(LIMIT)
    yield
    column_families.limit_cache(max(before, 32 << 20))


@pytest.mark.usefixtures("small_cache")
def test_memory_does_not_grow_with_segments(tmp_path: Path) -> None:
    """Ids of eight segments, half a megabyte each, are read: together the cached blocks stay below the limit."""
    noise = np.random.default_rng(1).bytes(VALUE_BYTES)
    store = Store(tmp_path / "db", sync=False)
    try:
        for segment in range(SEGMENTS):
            store.write({rows_key(IDS, 0, segment, row): noise for row in range(VALUES)})
        store.shorten(wait=True)
        held = []
        for segment in range(SEGMENTS):
            assert sum(len(value) for _, value in store.rows_of(IDS, 0, segment)) == VALUES * VALUE_BYTES
            held.append(column_families.cached_bytes())
    finally:
        store.close()
    assert held[0] > VALUES * VALUE_BYTES // 2  # the cache is used
    assert max(held) <= 2 * LIMIT
