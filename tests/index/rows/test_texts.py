"""The cache of texts that are read again."""

import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from stream_lsh.index.rows import texts
from stream_lsh.index.rows.texts import Texts, compress
from stream_lsh.index.store.rocksdb import Store


def test_cache_of_short_texts_takes_what_is_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts, "CACHED_BYTES", 1 << 18)
    rows = range(4000)
    store = Store(tmp_path / "db", sync=False)
    cache = Texts(store, 0, lambda _: 0)
    for row in rows:  # each in a commit of its own
        cache.add(compress(b"%d" % row, np.array([len(str(row))]), np.array([0])), {0: row})
    store.write(cache.take())
    tracemalloc.start()
    try:
        read = [bytes(cache.read([row], 1)[0]) for row in rows]
        del read[100:]
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
        store.close()
    assert read[99] == b"99"
    assert taken < 2 << 18
