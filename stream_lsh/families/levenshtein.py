"""Signatures of short texts for the measure `levenshtein`: keys of their pieces.

Of the d + 1 pieces of a text, d edits leave at least one whole (`measure.shifts`). A text is posted under its own
pieces, each with its number and the length of the text. It is looked up under each piece that a text within d edits can
have. No text within d edits is missed. The pieces are far longer than q-grams (MMDS 3.9.4), of which 3 d + 1 would be
needed.

A signature begins with COUNT_BITS that encode how often the text has which characters. An edit changes at most two of
them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stream_lsh.families.components import components_of
from stream_lsh.families.measure import COUNT_BITS, PIECE_BITS, shifts
from stream_lsh.families.signer import Signed, Signs, set_apart
from stream_lsh.families.sketch import random_words
from stream_lsh.hashing.bits import SEED_BAND, SEED_COMPONENT, SEED_LENGTH, SEED_MIX, SEED_TAIL, fold_multiply
from stream_lsh.hashing.kernels import njit
from stream_lsh.hashing.siphash import KEY_BYTES, siphash_slice
from stream_lsh.hashing.utf8 import decode
from stream_lsh.text.ascii import GROUP
from stream_lsh.text.preparation import prepared
from stream_lsh.text.settings import SigningSettings
from stream_lsh.text.tokens import is_visible, normalise, normalised_capacity
from stream_lsh.text.unicode import tables_for

CLASSES = 128
"""Classes of characters: those of ASCII have one each."""
LEVELS = COUNT_BITS // CLASSES
"""Bits of a class: as many are set as there are characters of it, or all."""
_FIRST = COUNT_BITS // PIECE_BITS


def searches(distance: int) -> NDArray[np.int64]:
    """The look-ups of a text: rows of (piece; how much longer the text is than the one that has the piece; by how much
    the piece has moved), its own pieces first: int64[lookups(distance), 3]."""
    own = [(piece, 0, 0) for piece in range(distance + 1)]
    lengths = range(-distance, distance + 1)
    all = [(i, longer, x) for i in range(distance + 1) for longer in lengths for x in shifts(i, longer, distance)]
    return np.array(own + [search for search in all if search not in own], np.int64)


@njit(allocates=True)
def _sign(  # type: ignore[no-untyped-def]
    text, ends, longest, tables, pieces, looked, key, sizes, fingerprints, signatures, points, offsets
):
    norm = np.empty(normalised_capacity(longest), np.uint8)
    spans = np.empty(longest + 2 + GROUP, np.uint32)
    hashes, powers = np.zeros(len(norm), np.uint64), np.ones(len(norm), np.uint64)
    for k in range(len(powers) - 1):
        powers[k + 1] = powers[k] * SEED_MIX
    start = place = np.int64(0)
    offsets[0] = 0
    for document in range(ends.shape[0]):
        size, _ = normalise(text, start, ends[document], tables, norm, spans)
        start = ends[document]
        first, fingerprints[document, 1] = siphash_slice(norm, 0, size, key)
        # The hash of a short text must differ from the hash of an equal id.
        fingerprints[document, 0] = first ^ SEED_TAIL
        n, at = np.int64(0), np.int64(0)
        if is_visible(norm, size, tables):
            while at < size:
                point, step = decode(norm, at, size)
                points[place + n] = np.uint64(point)
                at += step
                n += 1
        sizes[document], offsets[document + 1] = n, place + n
        if signatures.shape[1] > 0:
            signatures[document, :] = 0
            if n > 0:
                _count(points, place, n, signatures[document])
                for k in range(n):
                    hashes[k + 1] = hashes[k] * SEED_MIX + fold_multiply(points[place + k] ^ SEED_TAIL, SEED_MIX)
                _cut(n, hashes, powers, pieces, looked, fingerprints[document, 1], signatures[document])
        place += n
    return place


@njit
def _count(points, at, n, signature):  # type: ignore[no-untyped-def]
    for k in range(at, at + n):
        for level in range(LEVELS):
            bit = np.int64(points[k] & np.uint64(CLASSES - 1)) * LEVELS + level
            if signature[bit >> 5] >> np.uint32(bit & 31) & np.uint32(1) == 0:
                signature[bit >> 5] |= np.uint32(1) << np.uint32(bit & 31)
                break


@njit
def _cut(n, hashes, powers, pieces, looked, filler, signature):  # type: ignore[no-untyped-def]
    """The keys of a text of n characters, by `looked`. In the place of a key that it lacks or has already there is a
    hash of `filler`, which matches nothing."""
    for k in range(len(looked)):
        piece, length = looked[k, 0], n - looked[k, 1]
        first = length * piece // pieces
        size, at = length * (piece + 1) // pieces - first, first + looked[k, 2]
        value = filler ^ np.uint64(k + 1) * SEED_LENGTH
        # All empty pieces of a text are one key: a very short text meets all texts of about the same length.
        if length > 0 and at >= 0 and at + size <= n and (size > 0 or piece == 0):
            value = hashes[at + size] - hashes[at] * powers[size]
            value = fold_multiply(
                value ^ np.uint64(piece + 1) * SEED_COMPONENT, np.uint64(length) * SEED_BAND ^ SEED_TAIL
            )
        signature[_FIRST + k] = np.uint32(fold_multiply(value, SEED_MIX) >> np.uint64(32))


class EditSigner(Signs):
    """Signs short texts. Threads may share one. In place of shingles it returns the code points of the normalised
    text."""

    def __init__(self, settings: SigningSettings, key: bytes = bytes(KEY_BYTES)) -> None:
        super().__init__(settings, key)
        self._tables = tables_for(settings)
        self._looked = searches(int(settings.max_distance))
        self._columns = components_of(settings).columns

    def _sign(self, texts: bytes, ends: NDArray[np.int64], *, want_shingles: bool, want_signatures: bool) -> Signed:
        """Sizes are numbers of characters."""
        n = len(ends)
        text, ends, longest, *_ = prepared(texts, ends, self.settings)
        sizes, fingerprints = np.empty(n, np.uint32), np.empty((n, 2), np.uint64)
        words = np.empty((n, self._columns // 4 * want_signatures), np.uint32)
        points, offsets = np.empty(normalised_capacity(len(text)), np.uint64), np.empty(n + 1, np.int64)
        total = _sign(
            text, ends, longest, self._tables, self.settings.bands, self._looked, self.key, sizes, fingerprints, words,
            points, offsets,
        )  # fmt: skip
        if not want_shingles:
            total, offsets = 0, np.empty(0, np.int64)
        return Signed(sizes, fingerprints, words.astype("<u4").view(np.uint8), points[:total], offsets)

    def _set_apart(self, signed: Signed, scopes: NDArray[np.uint64]) -> None:
        # The scope changes all keys in the same way, because equal keys are in different places of two signatures.
        words = signed.signatures.view("<u4")
        words[:, _FIRST:] ^= random_words(scopes, _FIRST)[:, -1:].astype(np.uint32)
        set_apart(signed.signatures[:, : COUNT_BITS // 8], signed.fingerprints, scopes)
        signed.signatures[signed.sizes == 0] = 0
