"""Signatures to band keys, and the mathematics of the banding technique (MMDS 3.4)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stream_lsh.hashing.bits import SEED_BAND, SEED_COMPONENT, SEED_MIX, fold_multiply
from stream_lsh.hashing.kernels import njit


@njit
def write_band_keys(signature, bands, rows, out):  # type: ignore[no-untyped-def]
    """Writes the keys of one signature to `out` (uint64[bands])."""
    for band in range(bands):
        key = SEED_BAND ^ (np.uint64(band + 1) * SEED_COMPONENT)
        for row in range(band * rows, band * rows + rows):
            key = fold_multiply(key ^ np.uint64(signature[row]), SEED_MIX)
        out[band] = key


@njit
def _write_all(signatures, bands, rows, out):  # type: ignore[no-untyped-def]
    for i in range(signatures.shape[0]):
        write_band_keys(signatures[i], bands, rows, out[i])


def band_keys(signatures: NDArray[np.uint16] | NDArray[np.uint32], bands: int, rows: int) -> NDArray[np.uint64]:
    """The keys of all bands: [n, K] signatures -> uint64[n, bands], the band's number mixed in (MMDS 3.4.1).

    Two documents meet in a bucket exactly where a key is the same; keys are uniform in all 64 bits.

    Raises:
        ValueError: if bands * rows is more than K.
    """
    if signatures.ndim != 2 or bands < 1 or rows < 1 or bands * rows > signatures.shape[1]:
        raise ValueError(f"{bands} bands of {rows} rows do not fit signatures of shape {signatures.shape}")
    out = np.empty((len(signatures), bands), dtype=np.uint64)
    _write_all(np.ascontiguousarray(signatures), bands, rows, out)
    return out
