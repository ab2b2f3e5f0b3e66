"""The Bloom filter of a run. A key sets four bits of one word, which is given by its high bits."""

from __future__ import annotations

import numpy as np

from stream_lsh.hashing.kernels import njit

_BITS = 10  # per key: under 2 % of other keys pass


def filter_words(n: int) -> int:
    """Words of the filter of n keys."""
    return max(1, n * _BITS // 64)


@njit(forceinline=True)
def filter_word(key, words):  # type: ignore[no-untyped-def]
    return np.int64(((key >> np.uint64(32)) * words) >> np.uint64(32))


@njit(forceinline=True)
def filter_mask(key):  # type: ignore[no-untyped-def]
    """Four bits of a word of the filter, by a hash of the key."""
    one, low = np.uint64(1), np.uint64(63)
    mixed = (key >> np.uint64(16)) * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(40)
    mask = (one << (mixed & low)) | (one << ((mixed >> np.uint64(6)) & low))
    return mask | (one << ((mixed >> np.uint64(12)) & low)) | (one << ((mixed >> np.uint64(18)) & low))
