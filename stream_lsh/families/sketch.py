"""Fast Similarity Sketching: signatures in O(n + K log K) that estimate the Jaccard similarity as K independent
minhashes would.

Dahlgaard, Knudsen, Thorup: Fast Similarity Sketching, FOCS 2017. In round i < K each shingle is put into a random bin
with the value (i, random); in round K + j each shingle is put into bin j. A bin keeps its least value, and the rounds
end when all bins have one. The second half makes the estimate unbiased for the smallest sets.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from stream_lsh.hashing.bits import SEED_COMPONENT, SEED_MIX, SEED_ROUND, fold_multiply
from stream_lsh.hashing.kernels import njit

_EMPTY = np.uint64(0xFFFFFFFFFFFFFFFF)
_VALUE = np.uint64((1 << 48) - 1)
_HALF = np.uint64(32)
_ROUND = np.uint64(48)


def random_words(start: NDArray[np.uint64], count: int) -> NDArray[np.uint64]:
    """The first numbers of splitmix64 (Steele et al. 2014) from each start: uint64[..., count]."""
    steps = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    state: NDArray[np.uint64] = start[..., np.newaxis] + steps
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))


def round_seeds(size: int) -> NDArray[np.uint64]:
    """A random 64-bit number for each of the 2 * size rounds, started from pi.

    Starts are almost equivalent: of 40 that were tried, 37 find all pairs of 0.5 and more in the first 40,000 posts,
    and three, zero among them, miss one of the 474 (docs/explanation/defaults.md). Indexes depend on it: it must never
    change.
    """
    return random_words(np.array(0x243F6A8885A308D3, np.uint64), 2 * size)


@njit
def sketch(shingles, start, end, seeds, bins, out):  # type: ignore[no-untyped-def]
    """Write the signature of the set shingles[start:end] (distinct, at least one) to `out`.

    Args:
        shingles: uint64.
        seeds: `round_seeds(K)`.
        bins: uint64[K], scratch.
        out: uint8[K], uint16[K] or uint32[K], which gets the low bits of a hash of each bin's least value.
    """
    size = bins.shape[0]
    bins[:] = _EMPTY
    wide = np.uint64(size)
    filled: Any = 0
    for number in range(size):
        seed = seeds[number]
        base = np.uint64(number) << _ROUND
        for i in range(start, end):
            hashed = fold_multiply(shingles[i] ^ seed, SEED_ROUND)
            chosen = np.int64(((hashed >> _HALF) * wide) >> _HALF)
            old = bins[chosen]
            filled += np.int64(old == _EMPTY)
            bins[chosen] = min(old, base | (hashed & _VALUE))
        if filled == size:
            break
    if filled < size:
        for own in range(size):
            if bins[own] == _EMPTY:
                seed = seeds[size + own]
                base = np.uint64(size + own) << _ROUND
                smallest = _EMPTY
                for i in range(start, end):
                    smallest = min(smallest, fold_multiply(shingles[i] ^ seed, SEED_ROUND) & _VALUE)
                bins[own] = base | smallest
    for place in range(size):
        out[place] = fold_multiply(bins[place] ^ SEED_COMPONENT, SEED_MIX)
