"""Signatures of vectors and bit vectors (MMDS 3.7).

All sums are computed in one order: a vector has the same signature on every machine.
"""

from __future__ import annotations

import binascii
from functools import lru_cache
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stream_lsh.documents.items import length_of
from stream_lsh.families.components import components_of
from stream_lsh.families.measure import WIDTH
from stream_lsh.families.signer import Signed, Signs
from stream_lsh.families.sketch import random_words
from stream_lsh.hashing.kernels import njit
from stream_lsh.hashing.siphash import KEY_BYTES, siphash128
from stream_lsh.text.settings import SigningSettings

# Start of the random numbers of hyperplanes, lines and their offsets; indexes depend on them.
_PLANES, _LINES, _OFFSETS = (np.uint64(start) for start in (0x13198A2E03707344, 0xA4093822299F31D0, 0x082EFA98EC4E6C88))


class ItemSigner(Signs):
    """Signs documents that are vectors or bit vectors. Threads may share one.

    In place of shingles it returns the item: the numbers of a vector as the bits of float64, the words of a bit vector.
    """

    def __init__(self, settings: SigningSettings, key: bytes = bytes(KEY_BYTES)) -> None:
        super().__init__(settings, key)
        self._bits = settings.measure == "hamming"
        self._length = length_of("bits" if self._bits else "vector", settings.dimensions)
        self._layout = components_of(settings)

    def _sign(self, texts: bytes, ends: NDArray[np.int64], *, want_shingles: bool, want_signatures: bool) -> Signed:
        """A text that is no item with these dimensions, such as an empty one, has the size 0."""
        n, settings = len(ends), self.settings
        items, there = self._decode(texts, ends)
        fingerprints = siphash128(texts, np.ascontiguousarray(ends, np.int64), self.key)
        signatures = np.zeros((n, self._layout.columns * want_signatures), self._layout.kind)
        if want_signatures and len(items):
            signatures[there] = self._sketch(items)
        if settings.measure == "cosine":
            there = there[items.any(axis=1)] if len(items) else there
            items = items[items.any(axis=1)]
        sizes = np.zeros(n, np.uint32)
        sizes[there] = settings.dimensions
        signatures[sizes == 0] = 0
        words, offsets = np.empty(0, np.uint64), np.empty(0, np.int64)
        if want_shingles:
            words, counts = self._words(items).reshape(-1), np.zeros(n, np.int64)
            counts[there] = len(words) // max(1, len(items))
            offsets = np.concatenate(([0], np.cumsum(counts)))
        return Signed(sizes, fingerprints, signatures, words, offsets)

    def _decode(self, texts: bytes, ends: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """The items, float32[m, dimensions] or uint8[m, dimensions / 8], and the numbers of their documents."""
        decode = binascii.unhexlify if self._bits else binascii.a2b_base64
        starts = np.concatenate(([0], ends[:-1])) if len(ends) else ends
        kind, width = ("u1", self.settings.dimensions // 8) if self._bits else ("<f4", self.settings.dimensions)
        there, pieces, octets = [], [], width * np.dtype(kind).itemsize
        for i in np.flatnonzero(ends - starts == self._length).tolist():
            try:
                piece = decode(texts[int(starts[i]) : int(ends[i])])
            except (binascii.Error, ValueError):
                continue
            if len(piece) == octets:
                pieces.append(piece)
                there.append(i)
        items = np.frombuffer(b"".join(pieces), kind).reshape(len(pieces), width)
        return items.astype(items.dtype.newbyteorder("=")), np.array(there, np.int64)

    def _words(self, items: NDArray[Any]) -> NDArray[np.uint64]:
        if not self._bits:
            return items.astype(np.float64).view(np.uint64)
        padded = np.zeros((len(items), -(-items.shape[1] // 8) * 8), np.uint8)
        padded[:, : items.shape[1]] = items
        return padded.view("<u8").astype(np.uint64)

    def _sketch(self, items: NDArray[Any]) -> NDArray[Any]:
        """Signatures [m, columns] of items."""
        settings, size = self.settings, self.settings.signature_size
        if self._bits:
            return self._padded(items)
        out = np.empty((len(items), size), np.float32)
        if settings.measure == "cosine":
            # The length does not matter, and must not overflow a sum.
            longest = np.abs(items).max(axis=1, keepdims=True)
            unit = items / np.where(longest > 0, longest, np.float32(1))
            _project(unit, planes(settings.dimensions, size), np.zeros(size, np.float32), out)
            return self._padded(np.packbits(out >= 0, axis=1, bitorder="little"))
        scaled = items.astype(np.float64) / (WIDTH * settings.max_distance)
        places = np.empty((len(items), size), np.float64)
        _project(scaled, lines(settings.dimensions, size), offsets_of(size), places)
        # Places 256 buckets apart (or 2^16, or 2^32) count as equal: the other rows of a band separate such vectors.
        return np.mod(np.floor(places), 2.0**self._layout.bits).astype(self._layout.kind)

    def _padded(self, octets: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Append zeros, where the scope is mixed in."""
        padded = np.zeros((len(octets), self._layout.columns), np.uint8)
        padded[:, : octets.shape[1]] = octets
        return padded


@njit
def _project(items, directions, offsets, out):  # type: ignore[no-untyped-def]
    """Inner products of m items with the directions [dimensions, K], each summed in the order of the dimensions."""
    for i in range(items.shape[0]):
        for k in range(out.shape[1]):
            out[i, k] = offsets[k]
        for d in range(items.shape[1]):
            x = items[i, d]
            for k in range(out.shape[1]):
                out[i, k] += x * directions[d, k]


@lru_cache(maxsize=4)
def planes(dimensions: int, size: int) -> NDArray[np.float32]:
    """Normals of `size` random hyperplanes: float32[dimensions, size], normally distributed.

    Normals of 1 and -1 (MMDS 3.7.3) do not suffice for a vector with few large numbers: half of them separate (1, 1, 0,
    ...) from its neighbours, however near these are.
    """
    return _normal(_PLANES, dimensions, size).astype(np.float32)


@lru_cache(maxsize=4)
def lines(dimensions: int, size: int) -> NDArray[np.float64]:
    """Directions of `size` random lines, normally distributed: float64[dimensions, size]."""
    return _normal(_LINES, dimensions, size)


def _normal(start: np.uint64, dimensions: int, size: int) -> NDArray[np.float64]:
    """Normally distributed random numbers, each one of 65,536 quantiles: float64[dimensions, size]."""
    words = random_words(random_words(np.array(start), dimensions), size) >> np.uint64(48)
    return _quantiles()[words.astype(np.int64)]


@lru_cache(maxsize=1)
def _quantiles() -> NDArray[np.float64]:
    """65,536 quantiles of the normal distribution, rounded: the same on all machines."""
    return np.round([NormalDist().inv_cdf((k + 0.5) / 65536) * 2.0**20 for k in range(65536)]) / 2.0**20


def offsets_of(size: int) -> NDArray[np.float64]:
    """Where the buckets of `size` lines begin, in widths: float64[size], 0 to 1."""
    return (random_words(np.array(_OFFSETS), size) >> np.uint64(11)).astype(np.float64) / 2.0**53
