"""Signing of texts for `jaccard`: shingles and minhash signatures (MMDS 3.2, 3.3)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stream_lsh.errors import UsageError
from stream_lsh.families.sketch import random_words, round_seeds, sketch
from stream_lsh.families.tuning import component_bytes
from stream_lsh.hashing.kernels import njit
from stream_lsh.hashing.siphash import KEY_BYTES, key_words, siphash_slice
from stream_lsh.text.ascii import GROUP
from stream_lsh.text.preparation import prepared
from stream_lsh.text.settings import SigningSettings
from stream_lsh.text.shingles import (
    MAX_K,
    distinct,
    number_occurrences,
    powers,
    shingle_characters,
    shingle_elements,
    shingle_tokens,
    table_slots,
    whole_text,
)
from stream_lsh.text.tokens import is_visible, normalise, normalised_capacity
from stream_lsh.text.unicode import tables_for

_KINDS = ("words", "chars", "set")
_WORDS, _CHARS, _SET = range(3)


@dataclass(slots=True)
class Signed:
    """n signed documents, in columns.

    Attributes:
        sizes: uint32[n], number of distinct shingles (elements of the bag); 0 = nothing to compare.
        fingerprints: uint64[n, 2], SipHash of the normalised text in UTF-8, with the signer's key.
        signatures: unsigned integers [n, K], of `component_bytes`; zeros for an empty document. The scope is mixed into
            these and into the fingerprints.
        shingles: uint64, the distinct hashes, document by document, not sorted. Empty when not wanted.
        offsets: int64[n + 1], document i has shingles[offsets[i]:offsets[i + 1]]. Empty when not wanted.
    """

    sizes: NDArray[np.uint32]
    fingerprints: NDArray[np.uint64]
    signatures: NDArray[np.unsignedinteger[Any]]
    shingles: NDArray[np.uint64]
    offsets: NDArray[np.int64]


@njit(allocates=True)
def _sign(  # type: ignore[no-untyped-def]
    text, ends, longest, tables, kind, k, continuous_k, weights, bag, seeds, key, sizes, fingerprints, signatures,
    shingles, offsets,
):  # fmt: skip
    # Scratch for one document, used again for the next.
    norm = np.empty(normalised_capacity(longest), dtype=np.uint8)
    spans = np.empty(longest + 2 + GROUP, dtype=np.uint32)
    ring = np.empty(MAX_K, dtype=np.uint64)
    bins = np.empty(signatures.shape[1], dtype=np.uint64)
    most = table_slots(longest if kind == _CHARS else longest // 2 + 1)
    table = np.empty(most, dtype=np.uint64)
    counts = np.empty(most if bag else 0, dtype=np.uint32)
    wanted = offsets.shape[0] > 0
    base = np.int64(0)
    start = np.int64(0)
    if wanted:
        offsets[0] = 0
    for document in range(ends.shape[0]):
        end = ends[document]
        size, bounds = normalise(text, start, end, tables, norm, spans)
        fingerprints[document, 0], fingerprints[document, 1] = siphash_slice(norm, 0, size, key)
        place = base
        if kind == _SET:
            place = shingle_elements(norm, spans, bounds, shingles, place)
        elif kind == _WORDS and bounds > 0:
            place = shingle_tokens(norm, spans, bounds, k, continuous_k, weights, ring, shingles, place)
        elif is_visible(norm, size, tables):
            if kind == _CHARS:
                place = shingle_characters(norm, size, k, shingles, place)
            else:
                shingles[place] = whole_text(norm, size)
                place += 1
        if bag:
            number_occurrences(shingles, base, place, table, counts, table_slots(place - base))
        else:
            place = distinct(shingles, base, place, table, table_slots(place - base))
        sizes[document] = place - base
        if place > base and signatures.shape[1] > 0:
            sketch(shingles, base, place, seeds, bins, signatures[document])
        else:
            signatures[document, :] = 0
        if wanted:
            base = place
            offsets[document + 1] = place
        start = end
    return base


class Signs(ABC):
    """Signs documents, given as texts or as the texts that represent items. It has tables only: threads may share one.

    Args:
        key: of the fingerprints and of the scopes' hashes.

    Attributes:
        key: uint64[2].
    """

    def __init__(self, settings: SigningSettings, key: bytes = bytes(KEY_BYTES)) -> None:
        self.settings = settings
        self.key = key_words(key)

    def sign(
        self, texts: bytes, ends: NDArray[np.int64], scopes: NDArray[np.uint64] | None = None, *, want_shingles: bool,
        want_signatures: bool = True,
    ) -> Signed:  # fmt: skip
        """Sign n documents.

        Args:
            texts: the documents in UTF-8 (encoded with "surrogatepass"), concatenated.
            ends: int64[n], where each ends in `texts`; the first starts at 0.
            scopes: uint64[n], hashes of the scopes; documents of different scopes never match. None or empty = one
                scope.
            want_shingles: return the shingles' hashes; the scope does not change them.
            want_signatures: make signatures; otherwise they are [n, 0].

        Raises:
            ValueError: `ends` decreases or is outside `texts`, or a document is longer than LONGEST (1 GiB).
        """
        signed = self._sign(texts, ends, want_shingles=want_shingles, want_signatures=want_signatures)
        if scopes is not None and len(scopes):
            self._set_apart(signed, scopes)
        return signed

    @abstractmethod
    def _sign(self, texts: bytes, ends: NDArray[np.int64], *, want_shingles: bool, want_signatures: bool) -> Signed:
        """The same in one scope."""

    def _set_apart(self, signed: Signed, scopes: NDArray[np.uint64]) -> None:
        """Mix the scopes uint64[n] into the signatures and fingerprints."""
        set_apart(signed.signatures, signed.fingerprints, scopes)
        signed.signatures[signed.sizes == 0] = 0

    def shingle(self, texts: bytes, ends: NDArray[np.int64]) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
        """What documents are compared by: words, and offsets int64[n + 1] in them."""
        signed = self.sign(texts, ends, want_shingles=True, want_signatures=False)
        return signed.shingles, signed.offsets


class Signer(Signs):
    """Makes the shingles and signatures of texts, as `measure = "jaccard"` uses them: `Signer(Settings().signing)`.

    Raises:
        UsageError: no signature can be made with these settings.
    """

    def __init__(self, settings: SigningSettings, key: bytes = bytes(KEY_BYTES)) -> None:
        _check(settings)
        super().__init__(settings, key)
        self._tables = tables_for(settings)
        self._weights = powers()
        self._seeds = round_seeds(settings.signature_size)
        self._component = np.dtype(f"u{component_bytes(settings.rows)}")

    def _sign(self, texts: bytes, ends: NDArray[np.int64], *, want_shingles: bool, want_signatures: bool) -> Signed:
        settings, n = self.settings, len(ends)
        text, ends, longest, _, _ = prepared(texts, ends, settings)
        sizes = np.empty(n, dtype=np.uint32)
        fingerprints = np.empty((n, 2), dtype=np.uint64)
        signatures = np.empty((n, settings.signature_size * want_signatures), dtype=self._component)
        offsets = np.empty(n + 1 if want_shingles else 0, dtype=np.int64)
        # Room for as many as possible; memory that is never written costs nothing.
        room = longest if n < 2 or not want_shingles else int(ends[-1])
        shingles = np.empty(room + n + 1 if settings.kind == "chars" else room // 2 + n + 1, dtype=np.uint64)
        total = _sign(
            text, ends, longest, self._tables, _KINDS.index(settings.kind), settings.k, settings.continuous_k,
            self._weights, settings.bag, self._seeds, self.key, sizes, fingerprints, signatures, shingles, offsets,
        )  # fmt: skip
        kept = shingles[:total] if want_shingles else np.empty(0, dtype=np.uint64)  # a view keeps the whole array
        return Signed(sizes, fingerprints, signatures, kept, offsets)


def set_apart(
    signatures: NDArray[np.unsignedinteger[Any]], fingerprints: NDArray[np.uint64], scopes: NDArray[np.uint64]
) -> None:
    """Mix the scopes uint64[n] into signatures and fingerprints. Documents of one scope agree as before, documents of
    different scopes only by chance, even with the same text.

    A signature is XORed with bytes that only the scope determines. Two signatures then agree in as many components as
    before or, because these bytes are random, in no more than unrelated ones. The first word of a fingerprint is XORed
    with the scope, which can be computed back from text and key (`kafka.tools.restored`).
    """
    size, kind = signatures.shape[1], signatures.dtype.itemsize
    words = random_words(scopes, -(-size * kind // 8)).astype("<u8")  # the same components on every machine
    signatures ^= words.view(f"<u{kind}")[:, :size]
    fingerprints[:, 0] ^= scopes


def _check(settings: SigningSettings) -> None:
    if settings.kind not in _KINDS:
        raise UsageError(f"The kind of shingles is {settings.kind!r}; it must be one of {', '.join(_KINDS)}.")
    if settings.tokens not in ("unicode", "word"):
        raise UsageError(f"tokens is {settings.tokens!r}; it must be unicode or word.")
    if not (1 <= settings.k <= MAX_K and 1 <= settings.continuous_k <= MAX_K):
        raise UsageError(f"A shingle of {settings.k} or {settings.continuous_k} must lie between 1 and {MAX_K}.")
    if not 1 <= settings.signature_size <= 1 << 14:
        raise UsageError(f"signature_size is {settings.signature_size}; it must lie between 1 and {1 << 14}.")
    if min(settings.bands, settings.rows) < 1 or settings.bands * settings.rows > settings.signature_size:
        raise UsageError(
            f"{settings.bands} bands of {settings.rows} rows need a signature_size of {settings.bands * settings.rows},"
            f" not {settings.signature_size}; raise signature_size, or lower bands or rows."
        )
