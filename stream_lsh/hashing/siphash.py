"""SipHash with 128 bits of output (Aumasson, Bernstein: SipHash, a fast short-input PRF, 2012): keyed hashes.

Without the key two texts with the same hash cannot be constructed, and a bucket cannot be filled on purpose.
SipHash-1-3, as in the dictionaries of Python and Rust.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from stream_lsh.hashing.bits import load64
from stream_lsh.hashing.kernels import njit

KEY_BYTES = 16
ROUNDS, LAST_ROUNDS = 1, 3  # SipHash-1-3
_I0, _I1 = np.uint64(0x736F6D6570736575), np.uint64(0x646F72616E646F6D)
_I2, _I3 = np.uint64(0x6C7967656E657261), np.uint64(0x7465646279746573)
_LONG, _FIRST_HALF, _SECOND_HALF = np.uint64(0xEE), np.uint64(0xEE), np.uint64(0xDD)
_EIGHT, _BYTE = np.uint64(8), np.uint64(0xFF)


def key_words(key: bytes) -> NDArray[np.uint64]:
    """A key of KEY_BYTES bytes as kernels take it: uint64[2].

    Raises:
        ValueError: it has another length.
    """
    if len(key) != KEY_BYTES:
        raise ValueError(f"a key has {KEY_BYTES} bytes, not {len(key)}")
    return np.frombuffer(key, "<u8").astype(np.uint64)


@njit(forceinline=True)
def _left(value, by):  # type: ignore[no-untyped-def]
    return (value << np.uint64(by)) | (value >> np.uint64(64 - by))


@njit
def _rounds(v0, v1, v2, v3, count):  # type: ignore[no-untyped-def]
    for _ in range(count):
        v0 += v1
        v1 = _left(v1, 13) ^ v0
        v0 = _left(v0, 32)
        v2 += v3
        v3 = _left(v3, 16) ^ v2
        v0 += v3
        v3 = _left(v3, 21) ^ v0
        v2 += v1
        v1 = _left(v1, 17) ^ v2
        v2 = _left(v2, 32)
    return v0, v1, v2, v3


@njit
def siphash_slice(data, start, end, key, rounds=ROUNDS, last_rounds=LAST_ROUNDS):  # type: ignore[no-untyped-def]
    """Both halves of the hash of data[start:end] (uint8) under a key uint64[2]."""
    v0, v1, v2, v3 = key[0] ^ _I0, key[1] ^ _I1 ^ _LONG, key[0] ^ _I2, key[1] ^ _I3
    place = start
    while place + 8 <= end:
        word = load64(data, place)
        v3 ^= word
        v0, v1, v2, v3 = _rounds(v0, v1, v2, v3, rounds)
        v0 ^= word
        place += 8
    word = np.uint64(0)
    for i in range(end - 1, place - 1, -1):
        word = (word << _EIGHT) | np.uint64(data[i])
    word |= (np.uint64(end - start) & _BYTE) << np.uint64(56)
    v3 ^= word
    v0, v1, v2, v3 = _rounds(v0, v1, v2, v3, rounds)
    v0 ^= word
    v2 ^= _FIRST_HALF
    v0, v1, v2, v3 = _rounds(v0, v1, v2, v3, last_rounds)
    low = v0 ^ v1 ^ v2 ^ v3
    v1 ^= _SECOND_HALF
    v0, v1, v2, v3 = _rounds(v0, v1, v2, v3, last_rounds)
    return low, v0 ^ v1 ^ v2 ^ v3


@njit
def _hash_all(data, ends, key, rounds, last_rounds, out):  # type: ignore[no-untyped-def]
    start = np.int64(0)
    for i in range(ends.shape[0]):
        out[i, 0], out[i, 1] = siphash_slice(data, start, ends[i], key, rounds, last_rounds)
        start = ends[i]


def siphash128(
    buffer: bytes, ends: NDArray[np.int64], key: NDArray[np.uint64], rounds: Any = ROUNDS, last: Any = LAST_ROUNDS
) -> NDArray[np.uint64]:
    """The hash of each slice buffer[ends[i-1]:ends[i]] under a key uint64[2], as uint64[n, 2], low half first."""
    out = np.empty((len(ends), 2), dtype=np.uint64)
    _hash_all(np.frombuffer(buffer, dtype=np.uint8), np.asarray(ends, dtype=np.int64), key, rounds, last, out)
    return out
