"""Shingles (MMDS 3.2): from the places of tokens to distinct 64-bit hashes.

A token's hash is a folded multiplication of its bytes. A shingle's hash is a polynomial in the hashes of its tokens,
computed as a rolling hash and mixed once more; its cost does not depend on its length.
"""

from __future__ import annotations

import numpy as np

from stream_lsh.hashing.bits import (
    SEED_BAG,
    SEED_LENGTH,
    SEED_MIX,
    SEED_SHINGLE,
    SEED_TAIL,
    SEED_TOKEN,
    fold_multiply,
    load64,
)
from stream_lsh.hashing.kernels import njit
from stream_lsh.text.tokens import CONTINUOUS_START

MAX_K = 64  # tokens of a shingle: the length of the ring of token hashes
_FREE = np.uint64(0)
_NEXT = np.uint64(1)
_ONES = 0xFFFFFFFFFFFFFFFF
# Masks of two 8-byte words for the last 0..16 bytes of a token.
_FIRST = np.array([_ONES >> max(0, 64 - 8 * n) if n else 0 for n in range(17)], dtype=np.uint64)
_SECOND = np.array([_ONES >> (128 - 8 * n) if n > 8 else 0 for n in range(17)], dtype=np.uint64)
_PLACE = np.int64(CONTINUOUS_START - 1)


def powers() -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    """SEED_MIX ** i mod 2**64 for i in 0..MAX_K: the weights of the tokens in a shingle."""
    result = [pow(int(SEED_MIX), i, 1 << 64) for i in range(MAX_K + 1)]
    return np.array(result, dtype=np.uint64)


@njit
def hash_bytes(norm, start, end):  # type: ignore[no-untyped-def]
    """64-bit hash of norm[start:end]; norm must be readable for 16 bytes more."""
    size = end - start
    state = SEED_TOKEN ^ (np.uint64(size) * SEED_LENGTH)
    while size > 16:
        state = fold_multiply(load64(norm, start) ^ state, load64(norm, start + 8) ^ SEED_TAIL)
        start += 16
        size -= 16
    first = load64(norm, start) & _FIRST[size]
    second = load64(norm, start + 8) & _SECOND[size]
    return fold_multiply(first ^ state, second ^ SEED_TAIL)


@njit
def table_slots(count):  # type: ignore[no-untyped-def]
    """Slots of the hash table for up to `count` shingles: a power of two, a quarter full (half for large tables)."""
    factor = 4 if count <= 1 << 16 else 2
    slots = np.int64(16)
    while slots < count * factor:
        slots *= 2
    return slots


@njit
def distinct(shingles, start, end, table, slots):  # type: ignore[no-untyped-def]
    """Move the distinct hashes of shingles[start:end] to its front, in order of appearance. Returns the place behind
    them.

    table: uint64, scratch of at least `slots` (see `table_slots`).
    """
    table[:slots] = _FREE
    mask = np.uint64(slots - 1)
    place = start
    for i in range(start, end):
        shingle = shingles[i]
        slot = shingle & mask
        while table[slot] != _FREE and table[slot] != shingle:
            slot = (slot + _NEXT) & mask
        new = table[slot] == _FREE
        table[slot] = shingle
        shingles[place] = shingle
        place += np.int64(new)
    return place


@njit
def number_occurrences(shingles, start, end, table, counts, slots):  # type: ignore[no-untyped-def]
    """Make a set of a bag: the n-th repetition of a hash (n >= 1) becomes a hash of it and n; the first occurrence is
    kept.

    table: uint64, counts: uint32, scratch of at least `slots`.
    """
    table[:slots] = _FREE
    mask = np.uint64(slots - 1)
    for i in range(start, end):
        shingle = shingles[i]
        slot = shingle & mask
        while table[slot] != _FREE and table[slot] != shingle:
            slot = (slot + _NEXT) & mask
        if table[slot] == _FREE:
            table[slot] = shingle
            counts[slot] = 0
        else:
            counts[slot] += 1
            shingles[i] = mixed(fold_multiply(shingle ^ SEED_BAG, SEED_MIX) + np.uint64(counts[slot]))


@njit
def mixed(state):  # type: ignore[no-untyped-def]
    """The last step of a shingle's hash; never zero, which marks a free slot."""
    return max(fold_multiply(state ^ SEED_SHINGLE, SEED_MIX), _NEXT)


@njit
def shingle_tokens(norm, spans, bounds, k, continuous_k, weights, ring, out, place):  # type: ignore[no-untyped-def]
    """Append the shingles of the tokens spans[:bounds] to out[place:]. Returns the place behind them.

    A shingle begins at each token. It has the fewest tokens whose weights add up to k * continuous_k, where a word
    weighs continuous_k, and a character of a script without spaces weighs k. If all tokens weigh less, they are one
    shingle.

    weights: `powers()`; ring: uint64[MAX_K], scratch.
    """
    needed = k * continuous_k
    state = np.uint64(0)
    weight = np.int64(0)
    length = np.int64(0)
    first = np.int64(0)
    for token in range(bounds >> 1):
        start = np.int64(spans[2 * token])
        continuous = start >> 31
        # The lowest bit says how much a token weighs when it leaves the ring.
        hashed = hash_bytes(norm, start & _PLACE, np.int64(spans[2 * token + 1]))
        hashed = (hashed & ~_NEXT) | np.uint64(continuous)
        ring[token & (MAX_K - 1)] = hashed
        state = state * SEED_MIX + hashed
        length += 1
        weight += k if continuous else continuous_k
        while weight >= needed:
            out[place] = mixed(state)
            place += 1
            leaving = ring[first & (MAX_K - 1)]
            length -= 1
            state -= leaving * weights[length]
            weight -= k if leaving & np.uint64(1) else continuous_k
            first += 1
    if first == 0 and length > 0:
        out[place] = mixed(state)
        place += 1
    return place


@njit
def shingle_elements(norm, spans, bounds, out, place):  # type: ignore[no-untyped-def]
    """Append the hashes of the elements of a set, without empty ones, to out[place:]. Returns the place behind them."""
    for token in range(bounds >> 1):
        start = np.int64(spans[2 * token])
        end = np.int64(spans[2 * token + 1])
        if end > start:
            out[place] = mixed(hash_bytes(norm, start, end))
            place += 1
    return place


@njit
def _next_character(norm, place, size):  # type: ignore[no-untyped-def]
    place += 1
    while place < size and norm[place] & 0xC0 == 0x80:
        place += 1
    return place


@njit
def shingle_characters(norm, size, k, out, place):  # type: ignore[no-untyped-def]
    """Append the hashes of each k consecutive characters of norm[:size], or of all if they are fewer. Returns the place
    behind them."""
    start = np.int64(0)
    end = np.int64(0)
    for _ in range(k):
        if end < size:
            end = _next_character(norm, end, size)
    while True:
        out[place] = mixed(hash_bytes(norm, start, end))
        place += 1
        if end >= size:
            return place
        start = _next_character(norm, start, size)
        end = _next_character(norm, end, size)


@njit
def whole_text(norm, size):  # type: ignore[no-untyped-def]
    """The hash of the whole normalised text as one shingle, for texts without a token."""
    return mixed(hash_bytes(norm, 0, size))
