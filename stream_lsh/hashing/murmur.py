"""MurmurHash3 x64 128 (Austin Appleby, public domain), seed 0: the same values as the package mmh3."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stream_lsh.hashing.bits import load64
from stream_lsh.hashing.kernels import njit

_C1 = np.uint64(0x87C37B91114253D5)
_C2 = np.uint64(0x4CF5AD432745937F)
_ADD1 = np.uint64(0x52DCE729)
_ADD2 = np.uint64(0x38495AB5)
_FIVE = np.uint64(5)
_MIX1 = np.uint64(0xFF51AFD7ED558CCD)
_MIX2 = np.uint64(0xC4CEB9FE1A85EC53)
_S33 = np.uint64(33)
_EIGHT = np.uint64(8)


@njit
def _rotate(value, left):  # type: ignore[no-untyped-def]
    return (value << left) | (value >> (np.uint64(64) - left))


@njit
def _finish(h):  # type: ignore[no-untyped-def]
    h = (h ^ (h >> _S33)) * _MIX1
    h = (h ^ (h >> _S33)) * _MIX2
    return h ^ (h >> _S33)


@njit
def murmur_slice(data, start, end):  # type: ignore[no-untyped-def]
    """Both halves of the hash of data[start:end] (uint8)."""
    h1 = np.uint64(0)
    h2 = np.uint64(0)
    place = start
    while place + 16 <= end:
        k1 = load64(data, place) * _C1
        k2 = load64(data, place + 8) * _C2
        h1 ^= _rotate(k1, np.uint64(31)) * _C2
        h1 = (_rotate(h1, np.uint64(27)) + h2) * _FIVE + _ADD1
        h2 ^= _rotate(k2, np.uint64(33)) * _C1
        h2 = (_rotate(h2, np.uint64(31)) + h1) * _FIVE + _ADD2
        place += 16
    k1 = np.uint64(0)
    k2 = np.uint64(0)
    for i in range(min(end, place + 8) - 1, place - 1, -1):
        k1 = (k1 << _EIGHT) | np.uint64(data[i])
    for i in range(end - 1, place + 7, -1):
        k2 = (k2 << _EIGHT) | np.uint64(data[i])
    h2 ^= _rotate(k2 * _C2, np.uint64(33)) * _C1
    h1 ^= _rotate(k1 * _C1, np.uint64(31)) * _C2
    length = np.uint64(end - start)
    h1 ^= length
    h2 ^= length
    h1 += h2
    h2 += h1
    h1 = _finish(h1)
    h2 = _finish(h2)
    h1 += h2
    h2 += h1
    return h1, h2


@njit
def _murmur_all(data, ends, out):  # type: ignore[no-untyped-def]
    start = np.int64(0)
    for i in range(ends.shape[0]):
        out[i, 0], out[i, 1] = murmur_slice(data, start, ends[i])
        start = ends[i]


def murmur128(buffer: bytes, ends: NDArray[np.int64]) -> NDArray[np.uint64]:
    """The 128-bit hash of each slice buffer[ends[i-1]:ends[i]] as uint64[n, 2], low half first.

    Equal to `mmh3.hash64(slice, seed=0, x64arch=True, signed=False)`.
    """
    out = np.empty((len(ends), 2), dtype=np.uint64)
    _murmur_all(np.frombuffer(buffer, dtype=np.uint8), np.asarray(ends, dtype=np.int64), out)
    return out
