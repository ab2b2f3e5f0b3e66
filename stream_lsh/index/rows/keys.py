"""The keys of a document's postings: of its bands or its sampled shingles, its text, and its id."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stream_lsh.families.bands import band_keys, part_keys
from stream_lsh.families.components import masks_of
from stream_lsh.families.measure import COUNT_BITS, PIECE_BITS, lookups
from stream_lsh.families.sampled import sampled
from stream_lsh.families.terms import story_keys
from stream_lsh.hashing.kernels import njit
from stream_lsh.hashing.siphash import key_words, siphash128, siphash_slice
from stream_lsh.index.rows.layout import FLAGS, ID, MASK, SIZE_BITS, TEXT, TIME, VALID
from stream_lsh.text.settings import SigningSettings

Keys = tuple[NDArray[np.uint64], NDArray[np.int64]]
"""Keys of n documents, concatenated, and their offsets int64[n + 1]. First the keys by which candidates are looked up,
then that of the text, then that of the id. There are as many look-up keys first as the signature has bands; a document
is posted under these, its text and its id."""

KEY_BITS = 39
"""High bits of a key that are kept, so many that a posting of 18 bands takes five or six bytes. A collision only costs
a comparison of heads: with a hundred million rows in a shard, one for every 14 documents. Rows that are found without a
comparison are checked by their own words."""
_LOWEST = np.uint64(1 << (64 - KEY_BITS))
_EQUAL = np.empty(0, np.int64)
_MASK = np.uint64(0xFFFFFFFFFFFFFFFF ^ ((1 << (64 - KEY_BITS)) - 1))


@njit(forceinline=True)
def posting_key(hashed):  # type: ignore[no-untyped-def]
    """A hash as a key: its high bits, and never 0, which marks an empty slot."""
    return max(hashed & _MASK, _LOWEST)


class Hashes:
    """The hashes of an index, keyed with its secret key (KEY_BYTES bytes). No two indexes have the same buckets."""

    def __init__(self, signing: SigningSettings, key: bytes) -> None:
        self._signing = signing
        self._key = key_words(key)
        self.samples = signing.sampling > 0
        self._masks = masks_of(signing)
        self.secret: np.uint64 = siphash128(b"bands", np.array([5]), self._key)[0, 0]

    def of_ids(self, ids: list[bytes]) -> NDArray[np.uint64]:
        """Hashes uint64[n, 2] of ids, given as JSON text."""
        return siphash128(b"".join(ids), ends_of(ids), self._key)

    def of_documents(
        self, ids: list[bytes], texts: NDArray[np.uint64], sizes: NDArray[np.uint32], times: NDArray[np.int64]
    ) -> tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.uint8]]:
        """Of n documents the hashes of the ids uint64[n, 2], the words of `layout.Batch`, and which are VALID.

        Args:
            texts: hashes [n, 2]. sizes: numbers of shingles, 0 = the document is not valid. times: event times.
        """
        n = len(ids)
        hashed, words, what = np.empty((n, 2), np.uint64), np.zeros((n, MASK), np.uint64), np.empty(n, np.uint8)
        data = np.frombuffer(b"".join(ids), np.uint8)
        _describe(data, ends_of(ids), self._key, texts, sizes, times, hashed, words, what)
        return hashed, words, what

    def sample(self, shingles: NDArray[np.uint64], scope: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """The sampled keys of one document.

        Args:
            scope: uint64[1], the hash of the scope.
        """
        offsets = np.array([0, len(shingles)])
        keys: NDArray[np.uint64]
        keys, _ = sampled(shingles, offsets, np.ascontiguousarray(scope), self.secret, self._signing.sampling)
        _as_keys(keys)
        return keys

    def keys(
        self, signatures: NDArray[Any], texts: NDArray[np.uint64], ids: NDArray[np.uint64], sets: Keys | None = None
    ) -> Keys:
        """The keys of documents.

        Args:
            signatures: [n, K].
            texts, ids: uint64[n, 2], hashes.
            sets: shingles and their offsets, where keys are sampled.
        """
        if self.samples:
            shingles, offsets = sets or (np.empty(0, np.uint64), np.zeros(len(ids) + 1, np.int64))
            scopes = np.ascontiguousarray(as_words(signatures)[:, 0])
            hashed, starts = sampled(shingles, offsets, scopes, self.secret, self._signing.sampling)
            return _laid_out(hashed, starts, texts, ids)
        if self._signing.measure == "tf-idf":
            bands = story_keys(signatures, texts, self.secret)
        elif len(self._masks):
            bands = part_keys(as_words(signatures), self._masks, 0, len(self._masks), self.secret)
        elif self._signing.measure == "levenshtein":
            first, pieces = COUNT_BITS // PIECE_BITS, lookups(int(self._signing.max_distance))
            bands = part_keys(as_words(signatures), self._masks, first, pieces, self.secret)
        else:
            bands = band_keys(signatures, self._signing.bands, self._signing.rows, self.secret)
        return _laid_out(bands.reshape(-1), None, texts, ids)


def ends_of(items: Sequence[bytes | memoryview]) -> NDArray[np.int64]:
    """The ends of byte strings in their concatenation."""
    return np.array([*accumulate(map(len, items))], np.int64)


def as_words(signatures: NDArray[Any]) -> NDArray[np.uint64]:
    """Signatures [n, K] as uint64[n, S], padded with zeros."""
    n, size = signatures.shape
    octets = size * signatures.itemsize
    if octets and not octets % 8 and signatures.flags.c_contiguous:
        return signatures.view(np.uint64)
    if octets % 8:
        padded = np.zeros((n, size + (-octets % 8) // signatures.itemsize), signatures.dtype)
        padded[:, :size] = signatures
        signatures = padded
    return np.ascontiguousarray(signatures).view(np.uint64).reshape(n, -(-octets // 8))


@njit
def _describe(data, ends, key, texts, sizes, times, hashed, words, what):  # type: ignore[no-untyped-def]
    start = np.int64(0)
    for i in range(len(ends)):
        hashed[i, 0], hashed[i, 1] = siphash_slice(data, start, ends[i], key)
        start = ends[i]
        words[i, TIME] = np.uint64(times[i])
        words[i, FLAGS] = np.uint64(sizes[i]) << SIZE_BITS
        for k in range(2):
            words[i, ID + k], words[i, TEXT + k] = hashed[i, k], texts[i, k]
        what[i] = VALID if sizes[i] > 0 else 0


@njit
def _as_keys(hashed):  # type: ignore[no-untyped-def]
    for k in range(len(hashed)):
        hashed[k] = posting_key(hashed[k])


def _laid_out(
    hashed: NDArray[np.uint64], starts: NDArray[np.int64] | None, texts: NDArray[np.uint64], ids: NDArray[np.uint64]
) -> Keys:
    """Concatenate each document's keys hashed[starts[i]:starts[i + 1]] with those of its text and id. Without `starts`
    all documents have as many."""
    n = len(ids)
    keys, offsets = np.empty(len(hashed) + 2 * n, np.uint64), np.empty(n + 1, np.int64)
    _lay_out(hashed, _EQUAL if starts is None else starts, texts, ids, keys, offsets)
    return keys, offsets


@njit
def _lay_out(hashed, starts, texts, ids, out, offsets):  # type: ignore[no-untyped-def]
    n, at, k = len(ids), np.int64(0), np.int64(0)
    offsets[0] = 0
    for i in range(n):
        end = starts[i + 1] if len(starts) else k + len(hashed) // n
        while k < end:
            out[at] = posting_key(hashed[k])
            at += 1
            k += 1
        out[at] = posting_key(texts[i, 0])
        out[at + 1] = posting_key(ids[i, 0])
        at += 2
        offsets[i + 1] = at
