"""A posting of a run: a key's bits behind those that its entry in the directory has, and below them the row.

In memory it is a uint64, in a file as many whole bytes as it needs. With 18 bands these are 5 where at most a fifth of
the rows are dropped, otherwise 5 or 6. Merges keep that: with four times as many rows a row takes two bits more, and a
key behind its entry two bits less.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stream_lsh.hashing.bits import load64, store64
from stream_lsh.hashing.kernels import njit
from stream_lsh.index.rows.keys import KEY_BITS

WORD = 8  # bytes of a posting in memory
_ENTRY_KEYS = 32  # most keys of an entry of the directory, on average
_FEWEST_BITS = KEY_BITS - 32  # of the directory: with at most 2^31 rows a posting is less than 2^63
_LOW_BITS, _WORD_BITS = np.uint64(64 - KEY_BITS), np.uint64(64)
_ONE, _BYTE_BITS = np.uint64(1), np.uint64(8)


def directory_bits(n: int) -> int:
    """High bits of a key that give its entry in a directory of n keys."""
    return max(_FEWEST_BITS, (max(n, _ENTRY_KEYS) // _ENTRY_KEYS - 1).bit_length())


def row_bits(rows: int) -> int:
    """Low bits of a posting that are one of so many rows."""
    return max(1, (rows - 1).bit_length())


def posting_bytes(n: int, rows: int) -> int:
    """Bytes of each of n postings of so many rows in a file."""
    return -(-(KEY_BITS - directory_bits(n) + row_bits(rows)) // 8)


def packed(postings: NDArray[np.uint64], octets: int) -> NDArray[np.uint8]:
    """Postings uint64[n] as the bytes uint8[n * octets] of a file."""
    out = np.empty(len(postings) * octets + WORD, np.uint8)
    _pack(postings, octets, out)
    return out[:-WORD]


def unpacked(data: NDArray[np.uint8], octets: int) -> NDArray[np.uint64]:
    """The inverse, of the bytes behind the first word of `data`."""
    out = np.empty((len(data) - WORD) // octets, np.uint64)
    unpack(data, np.int64(WORD), len(out), octets, out)
    return out


@njit
def _pack(postings, octets, out):  # type: ignore[no-untyped-def]
    for i in range(len(postings)):  # the next one overwrites what is behind this one
        store64(out, octets * i, postings[i])


@njit
def unpack(data, at, n, octets, out):  # type: ignore[no-untyped-def]
    """Load n postings that begin at data[at]. Each is loaded with the bytes before it. `out` may be the memory of
    `data`, if the postings are at its end."""
    above = _WORD_BITS - _BYTE_BITS * np.uint64(octets)
    for k in range(n):
        out[k] = load64(data, at + octets * (k + 1) - WORD) >> above


@njit(forceinline=True)
def first_posting(key, bits, row_bits):  # type: ignore[no-untyped-def]
    """The least posting of a key, of row 0, in a run with so many bits of directory and row."""
    return key << np.uint64(bits) >> (np.uint64(bits) + _LOW_BITS) << np.uint64(row_bits)


@njit(forceinline=True)
def row_of(posting, row_bits):  # type: ignore[no-untyped-def]
    """The row of a posting."""
    return np.int64(posting & ((_ONE << np.uint64(row_bits)) - _ONE))


@njit
def take_apart(directory, entry, start, postings, bits, row_bits, first, keys, rows):  # type: ignore[no-untyped-def]
    """Keys and rows of the postings from position `start` on, the first of which is in `entry` of the directory. first:
    what rows are counted from."""
    for i in range(len(postings)):
        while np.int64(directory[entry + 1]) <= start + i:
            entry += 1
        keys[i] = np.uint64(entry) << np.uint64(64 - bits) | postings[i] >> np.uint64(row_bits) << _LOW_BITS
        rows[i] = np.uint32(first + row_of(postings[i], row_bits))
