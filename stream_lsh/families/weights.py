"""Signatures of sets with weights: consistent weighted sampling (Ioffe, Improved consistent sampling, ICDM 2010).

A component is a hash of one element and of a level of its weight. It is equal in two sets with probability sum min /
sum max of their weights, the weighted Jaccard similarity. With weights of 1 that is the Jaccard similarity.

Random numbers are rounded quantiles from tables, and logarithms a series of plain operations in one order. A set then
has the same signature on every machine.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from stream_lsh.documents.fields import loaded
from stream_lsh.families.components import components_of
from stream_lsh.families.signer import Signed, Signs
from stream_lsh.families.sketch import random_words
from stream_lsh.hashing.bits import SEED_COMPONENT, SEED_MIX, SEED_ROUND, fold_multiply
from stream_lsh.hashing.kernels import njit
from stream_lsh.hashing.murmur import murmur128
from stream_lsh.hashing.siphash import KEY_BYTES, siphash128
from stream_lsh.text.settings import SigningSettings

_SAMPLES = np.uint64(0x3F84D5B5B5470918)  # start of the random numbers of components; indexes depend on it
_LEVELS = 1 << 16  # quantiles of a table
_GRAIN = 2.0**20  # random numbers are multiples of 1 / _GRAIN
_BISECTIONS = 60


class WeightsSigner(Signs):
    """Signs sets, given as the texts of `documents.weights`. Threads may share one.

    In place of shingles it returns the hash of each element and the bits of its weight, ordered by hash.
    """

    def __init__(self, settings: SigningSettings, key: bytes = bytes(KEY_BYTES)) -> None:
        super().__init__(settings, key)
        self._kind = components_of(settings).kind
        self._seeds = random_words(np.array(_SAMPLES), settings.signature_size)
        self._tables = tables()

    def _sign(self, texts: bytes, ends: NDArray[np.int64], *, want_shingles: bool, want_signatures: bool) -> Signed:
        """A text that is no set, such as an empty one, has the size 0."""
        ends = np.ascontiguousarray(ends, np.int64)
        words, offsets = parsed(texts, ends)
        sizes = (np.diff(offsets) // 2).astype(np.uint32)
        fingerprints = siphash128(texts, ends, self.key)
        signatures = np.zeros((len(ends), self.settings.signature_size * want_signatures), self._kind)
        if want_signatures:
            _sample(words, logarithms(words[1::2].view(np.float64)), offsets, self._seeds, *self._tables, signatures)
        if not want_shingles:
            words, offsets = np.empty(0, np.uint64), np.empty(0, np.int64)
        return Signed(sizes, fingerprints, signatures, words, offsets)


def parsed(texts: bytes, ends: NDArray[np.int64]) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Sets from texts that end at `ends`: hash and bits of the weight of each element, uint64, by hash within a set;
    and offsets int64[n + 1] in them."""
    elements, weights, counts, start = list[bytes](), list[float](), list[int](), 0
    for end in ends.tolist():
        found = _weights(texts[start:end])
        start = end
        elements += [element.encode("utf-8", "surrogatepass") for element in found]
        weights += found.values()
        counts.append(len(found))
    hashes = murmur128(b"".join(elements), np.cumsum(list(map(len, elements)), dtype=np.int64))[:, 0]
    order = np.lexsort((hashes, np.repeat(np.arange(len(counts)), counts)))
    words = np.empty((len(hashes), 2), np.uint64)
    words[:, 0] = hashes[order]
    words[:, 1] = np.array(weights, np.float64)[order].view(np.uint64)
    return words.reshape(-1), np.concatenate((np.zeros(1, np.int64), 2 * np.cumsum(counts, dtype=np.int64)))


def _weights(text: bytes) -> dict[str, float]:
    return loaded(text) if text[:1] == b"{" else {}


@njit
def _sample(words, logs, offsets, seeds, gammas, log_gammas, out):  # type: ignore[no-untyped-def]
    """The signatures of sets. For each element and component, with r and c from a Gamma(2, 1) and b uniform, its level
    is t = floor(ln w / r + b). The component is of the element with the least ln c - r (t - b) - r."""
    for i in range(out.shape[0]):
        begin, end = offsets[i] >> 1, offsets[i + 1] >> 1
        if begin == end:
            continue
        for k in range(out.shape[1]):
            least, chosen = np.inf, np.uint64(0)
            for e in range(begin, end):
                word = fold_multiply(words[2 * e] ^ seeds[k], SEED_ROUND)
                r, b = gammas[word & np.uint64(0xFFFF)], np.float64(word >> np.uint64(40)) / 16777216.0
                level = np.floor(logs[e] / r + b)
                value = log_gammas[word >> np.uint64(16) & np.uint64(0xFFFF)] - r * (level - b) - r
                if value < least:
                    least = value
                    chosen = fold_multiply(words[2 * e] ^ SEED_COMPONENT, np.uint64(np.int64(level)) ^ seeds[k])
            out[i, k] = fold_multiply(chosen, SEED_MIX)


@lru_cache(maxsize=1)
def tables() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Quantiles of a Gamma(2, 1), and their logarithms: float64[65536], rounded: the same on all machines."""
    wanted = (np.arange(_LEVELS) + 0.5) / _LEVELS
    low, high = np.zeros(_LEVELS), np.full(_LEVELS, 64.0)
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        under = 1 - (1 + middle) * np.exp(-middle) < wanted
        low, high = np.where(under, middle, low), np.where(under, high, middle)
    gammas = np.round(high * _GRAIN) / _GRAIN
    return gammas, np.array([round(math.log(x) * _GRAIN) for x in gammas.tolist()]) / _GRAIN


def logarithms(numbers: NDArray[np.float64]) -> NDArray[np.float64]:
    """Natural logarithms of positive numbers, nearly to the last bit, by plain operations only."""
    part, power = np.frexp(numbers)
    small = part < math.sqrt(0.5)
    part, power = np.where(small, 2 * part, part), power - small
    z = (part - 1) / (part + 1)
    square, series = z * z, np.zeros(len(numbers))
    for odd in range(21, 0, -2):
        series = series * square + 1 / odd
    return np.asarray(power * 0.6931471805599453 + 2 * z * series)
