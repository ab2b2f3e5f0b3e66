"""Keys of the bands of a signature (MMDS 3.4)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from stream_lsh.hashing.bits import SEED_BAND, SEED_COMPONENT, SEED_MIX, fold_multiply
from stream_lsh.hashing.kernels import njit


@njit
def _write_all(signatures, bands, rows, secret, out):  # type: ignore[no-untyped-def]
    for i in range(signatures.shape[0]):
        for band in range(bands):
            key = _begin(band, secret)
            for row in range(band * rows, band * rows + rows):
                key = fold_multiply(key ^ np.uint64(signatures[i, row]), SEED_MIX)
            out[i, band] = key


@njit(forceinline=True)
def _begin(band, secret):  # type: ignore[no-untyped-def]
    return secret ^ SEED_BAND ^ (np.uint64(band + 1) * SEED_COMPONENT)


@njit
def key_of_band(words, at, band, rows, bits, secret):  # type: ignore[no-untyped-def]
    """The key of one band of the signature that begins at words[at], with components of `bits` bits."""
    per_word, key = 64 // bits, _begin(band, secret)
    mask = np.uint64((1 << bits) - 1)
    for row in range(band * rows, band * rows + rows):
        component = words[at + row // per_word] >> np.uint64(row % per_word * bits) & mask
        key = fold_multiply(key ^ component, SEED_MIX)
    return key


@njit
def key_of_mask(words, at, band, masks, secret):  # type: ignore[no-untyped-def]
    """The key of one band of the signature that begins at words[at]: of the bits set in masks[band]."""
    key = _begin(band, secret)
    for w in range(masks.shape[1]):
        if masks[band, w] != 0:
            key = fold_multiply(key ^ (words[at + w] & masks[band, w]), SEED_MIX)
    return key


@njit
def key_of_piece(words, at, piece, secret):  # type: ignore[no-untyped-def]
    """The key of the 32 bits number `piece` of the signature that begins at words[at]. It does not depend on
    `piece`."""
    bits = words[at + (piece >> 1)] >> np.uint64(32 * (piece & 1)) & np.uint64(0xFFFFFFFF)
    return fold_multiply(_begin(0, secret) ^ bits, SEED_MIX)


@njit
def _write_parts(words, masks, first, secret, out):  # type: ignore[no-untyped-def]
    size = len(words) // max(1, len(out))
    for i in range(out.shape[0]):
        for band in range(out.shape[1]):
            if len(masks):
                out[i, band] = key_of_mask(words, i * size, band, masks, secret)
            else:
                out[i, band] = key_of_piece(words, i * size, first + band, secret)


def part_keys(
    words: NDArray[np.uint64], masks: NDArray[np.uint64], first: int, keys: int, secret: np.uint64 | int = 0
) -> NDArray[np.uint64]:
    """As `band_keys`, for signatures uint64[n, S]. Key j is made of the bits set in masks[j], uint64[keys, S]; without
    masks it is in the signature: its 32 bits number first + j."""
    out = np.empty((len(words), keys), np.uint64)
    _write_parts(np.ascontiguousarray(words).reshape(-1), masks, first, np.uint64(secret), out)
    return out


def band_keys(signatures: NDArray[Any], bands: int, rows: int, secret: np.uint64 | int = 0) -> NDArray[np.uint64]:
    """The keys of all bands: [n, K] signatures -> uint64[n, bands], with the band's number mixed in (MMDS 3.4.1).

    Two documents share a bucket exactly where a key is equal. Keys are uniform in all 64 bits. `secret`: of the index;
    without it the key of a band cannot be computed.

    Raises:
        ValueError: bands * rows is more than K.
    """
    if signatures.ndim != 2 or bands < 1 or rows < 1 or bands * rows > signatures.shape[1]:
        raise ValueError(f"{bands} bands of {rows} rows do not fit signatures of shape {signatures.shape}")
    out = np.empty((len(signatures), bands), dtype=np.uint64)
    _write_all(np.ascontiguousarray(signatures), bands, rows, np.uint64(secret), out)
    return out
