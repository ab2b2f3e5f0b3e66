"""Terms of texts for `tf-idf`, which groups texts about the same event into stories.

A term is a word, cut to its first characters where its script has capitals (a stem without a dictionary). In scripts
without spaces a term is two consecutive characters. Its weight is its frequency in the text (1 + log2 of the count,
Salton and Buckley 1988); words at the beginning count three times, names and numbers weigh more. A name is a word that
is written with a capital at least once. The index multiplies by the weight of the document frequency.

A term is one number: 23 bits of a hash; a bit for a name or number (always 0 in a text without capitals, where names
cannot be recognised); and its weight in eighths in the lowest 8 bits. The last term of each text is 0 and has no
weight. Its document frequency is the number of documents. The scope changes it like the other terms, so that document
frequencies are those among the documents of the scope, a language for example.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import orjson
from numpy.typing import NDArray

from stream_lsh.families.measure import STORY_KEYS, STORY_TERMS
from stream_lsh.families.signer import Signed, Signs
from stream_lsh.hashing.bits import SEED_BAND, SEED_MIX, bits_of, fold_multiply
from stream_lsh.hashing.kernels import njit
from stream_lsh.hashing.siphash import KEY_BYTES, siphash_slice
from stream_lsh.hashing.utf8 import decode
from stream_lsh.text.ascii import GROUP
from stream_lsh.text.preparation import prepared
from stream_lsh.text.settings import SigningSettings
from stream_lsh.text.shingles import hash_bytes, mixed, table_slots, whole_text
from stream_lsh.text.tokens import CONTINUOUS_START, is_visible, normalise, normalised_capacity
from stream_lsh.text.unicode import CASED, record_of, tables_for, unicode_data

LEAD, LEAD_COUNTS = 80, 3
"""Terms at the beginning of a text, where news summarises the event, and how often each counts."""
LISTED_TERMS = 6
"""Terms of a match that a verdict lists."""
STEM = 4
"""Characters of a word that count, where its script has capitals."""
TWICE = 2.0
"""Factor of the weight of names and numbers."""
UNIT = 8.0
"""Terms have weights in units of 1 / UNIT."""
TERM_BITS, NAME_BIT, WEIGHT_MASK = 23, np.uint64(1 << 8), np.uint64(0xFF)
TERM_SHIFT = np.uint64(9)
_TERM_MASK = np.uint64((1 << TERM_BITS) - 1)
_PLACE = np.int64(CONTINUOUS_START - 1)
_FRACTION = np.uint64(42)  # lower bits of a number's 52-bit fraction, which `log2` ignores
_MANTISSA = np.uint64((1 << 52) - 1)
# log2(1 + i/1024), rounded: the same on every machine.
_LOGS = np.round(np.log2(1 + (np.arange(1024) + 0.5) / 1024) * 2.0**20) / 2.0**20
_LOGS[0] = 0.0  # exact for powers of two


@njit
def log2(x):  # type: ignore[no-untyped-def]
    """The logarithm of a number that is at least 1, to three digits; the same on every machine."""
    bits = bits_of(x)
    return np.float64(np.int64(bits >> np.uint64(52)) - 1023) + _LOGS[np.int64((bits & _MANTISSA) >> _FRACTION)]


@njit(forceinline=True)
def _hash_of(norm, start, end):  # type: ignore[no-untyped-def]
    return mixed(hash_bytes(norm, start, end))


@njit
def _stem(norm, start, end, most):  # type: ignore[no-untyped-def]
    """Where the first characters of a word end, with the marks of the last one."""
    place, left = start, most
    while place < end and left > 0:
        place += 1
        while place < end and norm[place] & 0xC0 == 0x80:
            place += 1
        left -= 1
    return place


@njit
def _gather(  # type: ignore[no-untyped-def]
    norm, spans, bounds, kept, tables, flags, out, place, table, counts, slots, where
):
    """Append the distinct terms of the tokens spans[:bounds] to out[place:]. Returns the place behind them.

    kept: the text with its capitals, as (bytes, places, whether it has the same tokens); token i begins at places[2 *
    i]. table: uint64[slots], scratch: hash table of the terms' places in `out`. counts: float64, count of each term.
    where: uint32[., 2], begin and end of each term's first word in `norm`.
    """
    written, kept_spans, whole = kept
    pages, records = tables.pages, tables.records
    table[:slots] = np.uint64(0)
    mask, first, seen = np.uint64(slots - 1), place, 0
    before = np.int64(-1)  # begin of the token before, if it was a character of a script without spaces
    before_end, alone, capitals = np.int64(-1), False, False
    tokens = bounds >> 1
    for token in range(tokens + 1):
        name, number, hashed, more, second = False, False, np.uint64(0), False, np.uint64(0)
        start, end = np.int64(0), np.int64(0)
        second_at = second_end = pair_at = np.int64(0)
        continuous = False
        if token < tokens:
            start, end = np.int64(spans[2 * token]), np.int64(spans[2 * token + 1])
            continuous = start >> 31 != 0
            start &= _PLACE
        if before >= 0 and alone and not (continuous and start == before_end):
            second, more = _hash_of(norm, before, before_end), True  # a single such character is a term
            second_at, second_end = before, before_end
        if token < tokens and continuous:
            if before >= 0 and start == before_end:
                hashed, alone, pair_at = _hash_of(norm, before, end), False, before
            else:
                alone = True
            before, before_end = start, end
        elif token < tokens:
            before, alone = np.int64(-1), False
            point, size = decode(norm, start, end)
            digit = 0x30 <= point <= 0x39
            cased = flags[record_of(point, pages, records)] & CASED != 0
            if digit:
                number = True
                hashed = _hash_of(norm, start, end)
            elif cased or point == 0x5F:
                if end - start > size:  # a single letter is no term
                    hashed = _hash_of(norm, start, _stem(norm, start, end, STEM))
                    if whole:
                        at = np.int64(kept_spans[2 * token]) & _PLACE
                        other, _ = decode(written, at, np.int64(kept_spans[2 * token + 1]))
                        name = other != point
            else:
                hashed = _hash_of(norm, start, end)
        for which in range(2):
            value = second if which == 0 else hashed
            if value == 0 or (which == 0 and not more):
                continue
            term = max(value >> np.uint64(64 - TERM_BITS), np.uint64(1))
            slot = (term * SEED_MIX) >> np.uint64(40) & mask
            while table[slot] != 0 and out[first + np.int64(table[slot]) - 1] >> TERM_SHIFT != term:
                slot = (slot + np.uint64(1)) & mask
            if table[slot] == 0:
                table[slot] = np.uint64(place - first + 1)
                out[place] = term << TERM_SHIFT
                counts[place - first] = 0.0
                where[place - first, 0] = start if which == 1 else second_at
                where[place - first, 1] = end if which == 1 else second_end
                if which == 1 and continuous:
                    where[place - first, 0] = pair_at
                place += 1
            at_term = np.int64(table[slot]) - 1
            counts[at_term] += LEAD_COUNTS if seen < LEAD else 1
            if which == 1:
                out[first + at_term] |= np.uint64(name) << np.uint64(1) | np.uint64(number)
                capitals |= name
            seen += 1
    for k in range(first, place):
        weight = 1.0 + log2(counts[k - first]) * 0.6931471805599453
        known_by_name = out[k] & WEIGHT_MASK != 0
        if known_by_name:
            weight *= TWICE
        out[k] = (
            (out[k] >> TERM_SHIFT << TERM_SHIFT)
            | NAME_BIT * np.uint64(known_by_name and capitals)
            | np.uint64(min(255.0, weight * UNIT + 0.5))
        )
    return place


@njit(allocates=True)
def _sign(  # type: ignore[no-untyped-def]
    text, ends, longest, plain, plain_ends, tables, tables_plain, flags, key, sizes, fingerprints, terms, offsets
):
    # Scratch for one document, used again for the next.
    norm = np.empty(normalised_capacity(longest), dtype=np.uint8)
    spans = np.empty(longest + 2 + GROUP, dtype=np.uint32)
    other = np.empty(normalised_capacity(longest), dtype=np.uint8)
    other_spans = np.empty(longest + 2 + GROUP, dtype=np.uint32)
    most = table_slots(longest + 1)
    table, counts = np.empty(most, dtype=np.uint64), np.empty(longest + 2, dtype=np.float64)
    where = np.empty((longest + 2, 2), dtype=np.uint32)
    base, start, begin = np.int64(0), np.int64(0), np.int64(0)
    offsets[0] = 0
    for document in range(ends.shape[0]):
        end, stop = ends[document], plain_ends[document]
        size, bounds = normalise(text, start, end, tables, norm, spans)
        fingerprints[document, 0], fingerprints[document, 1] = siphash_slice(norm, 0, size, key)
        _, same = normalise(plain, begin, stop, tables_plain, other, other_spans)
        place = _gather(
            norm, spans, bounds, (other, other_spans, same == bounds), tables, flags, terms, base, table, counts,
            table_slots((bounds >> 1) + 1), where,
        )  # fmt: skip
        if place == base and is_visible(norm, size, tables):
            terms[place] = (whole_text(norm, size) >> np.uint64(64 - TERM_BITS)) << TERM_SHIFT | np.uint64(UNIT)
            place += 1
        if place > base:
            terms[place] = np.uint64(0)
            place += 1
        sizes[document] = place - base
        base = place
        offsets[document + 1] = place
        start, begin = end, stop
    return base


class TermSigner(Signs):
    """Signs documents in batches by their terms. Threads may share one.

    A signature is what a row has of a document: STORY_TERMS terms, the heaviest first. The index fills it in, because
    it depends on the documents before; here it is zero except for the scope. The scope changes terms, so that terms of
    documents in different scopes are equal by chance only.
    """

    def __init__(self, settings: SigningSettings, key: bytes = bytes(KEY_BYTES)) -> None:
        super().__init__(settings, key)
        self._tables, self._plain = tables_for(settings), tables_for(replace(settings, lower=False))
        self._flags = unicode_data().flags

    def _sign(self, texts: bytes, ends: NDArray[np.int64], *, want_shingles: bool, want_signatures: bool) -> Signed:
        """Terms are in the place of shingles."""
        n = len(ends)
        text, ends, longest, plain, plain_ends = prepared(texts, ends, self.settings)
        sizes, fingerprints = np.empty(n, np.uint32), np.empty((n, 2), np.uint64)
        offsets, terms = np.empty(n + 1, np.int64), np.empty(len(text) + n + 1, np.uint64)
        total = _sign(
            text, ends, longest, plain, plain_ends, self._tables, self._plain, self._flags, self.key, sizes,
            fingerprints, terms, offsets,
        )  # fmt: skip
        signatures = np.zeros((n, STORY_TERMS * want_signatures), np.uint32)
        return Signed(sizes, fingerprints, signatures, terms[: total * want_shingles], offsets)

    def _set_apart(self, signed: Signed, scopes: NDArray[np.uint64]) -> None:
        signed.fingerprints[:, 0] ^= scopes
        if len(signed.shingles):
            signed.shingles = scoped(signed.shingles, signed.offsets, scopes)
        signed.signatures[:, :1] = (scopes & _TERM_MASK)[:, None]


def scoped(terms: NDArray[np.uint64], offsets: NDArray[np.int64], scopes: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Terms of documents in these scopes; document i has terms[offsets[i]:offsets[i + 1]]."""
    return terms ^ np.repeat((scopes & _TERM_MASK) << TERM_SHIFT, np.diff(offsets))


class StoryWords:
    """Evidence of `tf-idf`: the heaviest terms of the matched row that the text has too. They are written in lower
    case, as the words where they are first in the text."""

    of_texts = False

    def __init__(self, settings: SigningSettings) -> None:
        self._settings = settings
        self._tables, self._flags = tables_for(settings), unicode_data().flags

    def __call__(
        self, text: bytes, others: Sequence[NDArray[np.uint32]], own: NDArray[np.uint64] | None = None
    ) -> list[bytes]:
        """Evidence for a text and the signatures of its matches, see `family.Explains`. The scope of these is the last
        of the text's own terms."""
        octets, ends, *_ = prepared(text, np.array([len(text)]), self._settings)
        size = int(ends[0])
        terms, where = np.empty(size + 2, np.uint64), np.empty((size + 2, 2), np.uint32)
        norm = np.empty(normalised_capacity(size), np.uint8)
        n = _words(octets, self._tables, self._flags, norm, terms, where)
        scope = own[-1:] if own is not None else np.uint64(0)
        places = dict(zip(((terms[:n] ^ scope) >> TERM_SHIFT).tolist(), where[:n].tolist(), strict=True))
        evidence = []
        for signature in others:
            shared = [places[term] for term in (signature >> np.uint32(TERM_SHIFT)).tolist() if term in places]
            words = [norm[a:b].tobytes().decode("utf-8", "replace") for a, b in shared[:LISTED_TERMS]]
            evidence.append(b',"terms":' + orjson.dumps(words))
        return evidence


@njit(allocates=True)
def _words(text, tables, flags, norm, terms, where):  # type: ignore[no-untyped-def]
    """The terms of one text, in `terms`, and where each is first in `norm`. Returns their number."""
    spans = np.empty(len(text) + 2 + GROUP, dtype=np.uint32)
    _, bounds = normalise(text, 0, len(text), tables, norm, spans)
    slots = table_slots((bounds >> 1) + 1)
    table, counts = np.empty(slots, dtype=np.uint64), np.empty(len(text) + 2, dtype=np.float64)
    return _gather(
        norm, spans, bounds, (norm, spans, False), tables, flags, terms, np.int64(0), table, counts, slots, where,
    )  # fmt: skip


@njit
def key_of_term(term, secret):  # type: ignore[no-untyped-def]
    """The key of documents that have this term among the heaviest. term: without its weight."""
    return fold_multiply(np.uint64(term) ^ secret ^ SEED_BAND, SEED_MIX)


@njit
def _keys(signatures, texts, secret, out):  # type: ignore[no-untyped-def]
    for i in range(out.shape[0]):
        for k in range(out.shape[1]):
            entry = np.uint64(signatures[i, k])
            if entry != 0:
                out[i, k] = key_of_term(entry >> TERM_SHIFT, secret)
            else:  # no further term: a key of its own, which is never looked up
                out[i, k] = fold_multiply(texts[i, 1] ^ secret, SEED_MIX + np.uint64(k))


def story_keys(signatures: NDArray[np.uint32], texts: NDArray[np.uint64], secret: np.uint64) -> NDArray[np.uint64]:
    """The keys uint64[n, STORY_KEYS] of documents: of their heaviest terms. texts: hashes [n, 2]."""
    out = np.empty((len(signatures), STORY_KEYS), np.uint64)
    _keys(np.ascontiguousarray(signatures), np.ascontiguousarray(texts), secret, out)
    return out
