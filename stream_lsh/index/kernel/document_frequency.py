"""Document frequencies: how many documents of the log have a term, counted by a hash of the term. `tf-idf` weighs terms
by them.

They are a function of the stored documents in their order, whatever the batches, flushes and restarts. With a window,
all counts lose an eighth whenever a segment begins, which is after an eighth of the window.

The store has the state at one commit, and the increments of each later commit. When these are larger than the state, or
a segment has begun, the whole state is written again. On Kafka each of these values is also in the change of its frame;
the first value of a replica is a whole state.

Counts do not name documents, and remain when documents are erased. The increments of a commit with few documents would
reveal their words: erasing replaces all values by one.
"""

from __future__ import annotations

import struct
import zlib
from typing import Self

import numpy as np

from stream_lsh.errors import DamagedError
from stream_lsh.families.measure import STORY_KEYS, STORY_TERMS
from stream_lsh.families.terms import log2
from stream_lsh.hashing.kernels import njit
from stream_lsh.hashing.structs import Halves, Number, Numbers, Real, Reals, Struct, Words, Words2
from stream_lsh.index.store.rocksdb import FREQUENCIES, Range, Store, parts_of, rows_key
from stream_lsh.settings.model import Settings

SLOTS = 1 << 22
"""Counters: 16 MB. A million posts have some 500,000 terms."""
OWN_SLOTS = 512
BEFORE = 8
"""Documents assumed before the first one, with other terms. Without them, terms that the first two documents share
would weigh nothing."""
UNIT = 16  # what a document counts: a multiple, so that counts can decay in small steps
BITMAP = 16  # words of the bitmap of a row's terms
_HEAD = struct.Struct("<BqqI")  # whole state or increments; segment, number of the value; number of counts
_WHOLE = b"\1"  # first byte of a whole state
_POWER = 0.8
# log2(x) ** 0.8 in steps of 1/64, rounded: the same on every machine. Without the exponent a misspelt word outweighs
# the name of the town.
_POWERS = np.round((np.arange(64 * 64) / 64) ** _POWER * 2.0**20) / 2.0**20
_MOST = np.uint32(0xFFFFFFFF - UNIT)


class DocumentFrequency(Struct):
    """The counts, UNIT for each document; and scratch for the current document and for the rows that it is compared
    with.

    Attributes:
        among: number of documents that the current one may match, and BEFORE more.
        log: slots counted since the last commit, the first `logged` of it.
        own, own_weights: a hash table of the document's heaviest terms.
        norm, names: sums of the squares of their weights: of all, of names.
        pad: the same of terms that are not stored.
        heaviest: the heaviest terms. The first `keys` of them, up to STORY_KEYS, are its keys, with `key_weights`.
        rarest: the order of the keys, the rarest first.
        near, bitmaps, groups, cosines: signatures of rows, their bitmaps, groups and similarities.
        apart: time between them and the document, in ms.
        tellers: number of rows of the document's story among them.
    """

    counts: Halves
    among: Real
    log: Halves
    logged: Number
    own: Words  # [OWN_SLOTS]
    own_weights: Reals
    norm: Real
    names: Real
    pad: Real
    heaviest: Words  # [STORY_TERMS]
    keys: Number
    key_weights: Numbers
    rarest: Numbers
    near: Words2  # [candidates, S]
    bitmaps: Words2  # [candidates, BITMAP]
    found: Numbers  # [candidates]
    groups: Numbers
    cosines: Reals
    apart: Reals
    order: Numbers
    chosen: Numbers
    tellers: Number

    @classmethod
    def of(cls, candidates: int, keys: int, words: int) -> Self:
        """Without counts.

        Args:
            candidates: rows that a document is compared with, 0 = not `tf-idf`.
            words: of a signature.
        """
        some = candidates > 0
        return cls(
            counts=np.zeros(SLOTS if some else 0, np.uint32), among=0.0,
            log=np.empty(1 << 16 if some else 0, np.uint32), logged=0,
            own=np.zeros(OWN_SLOTS * some, np.uint64), own_weights=np.zeros(OWN_SLOTS * some), norm=0.0, names=0.0,
            pad=0.0, heaviest=np.empty(STORY_TERMS * some, np.uint64), keys=0, key_weights=np.zeros(keys, np.int64),
            rarest=np.zeros(keys, np.int64),
            near=np.empty((candidates, words), np.uint64), bitmaps=np.empty((candidates, BITMAP), np.uint64),
            found=np.empty(candidates, np.int64), groups=np.empty(candidates, np.int64), cosines=np.empty(candidates),
            apart=np.empty(candidates),
            order=np.empty(candidates, np.int64), chosen=np.empty(candidates, np.int64), tellers=0,
        )  # fmt: skip

    @classmethod
    def of_shard(cls, settings: Settings, words: int) -> Self:
        """Of an index with these settings, whose signatures have this many words."""
        stories = settings.measure == "tf-idf"
        return cls.of(settings.max_candidates * stories, STORY_KEYS * stories, words)

    def enlarge(self) -> None:
        """Double the room of the log."""
        self.log = np.concatenate((self.log, np.empty_like(self.log)))


@njit(forceinline=True)
def slot_of(term):  # type: ignore[no-untyped-def]
    """The counter of a term."""
    return np.int64(term & np.uint64(SLOTS - 1))


@njit
def weigh_among(frequencies, every):  # type: ignore[no-untyped-def]
    """Set the number of documents to that of the documents with the term `every`."""
    frequencies.among = np.float64(frequencies.counts[slot_of(every)]) / UNIT + (2.0 + BEFORE)


@njit
def idf_of(frequencies, term, own):  # type: ignore[no-untyped-def]
    """The weight of a term by its document frequency: a power of the logarithm of the number of documents for each that
    has it. own: 1 if the current document has it, otherwise 0."""
    count = np.float64(frequencies.counts[slot_of(term)]) / UNIT + own
    return _POWERS[np.int64(64.0 * log2(max(1.0, frequencies.among / (count + 0.5))))]


@njit
def most_rare(frequencies):  # type: ignore[no-untyped-def]
    """The weight of a term that no document has."""
    return _POWERS[np.int64(64.0 * log2(frequencies.among))]


@njit
def count(frequencies, terms, first, last, shift):  # type: ignore[no-untyped-def]
    """Count the terms[first:last] of a stored document. There must be room in the log."""
    for k in range(first, last):
        slot = slot_of(terms[k] >> shift)
        if frequencies.counts[slot] < _MOST:
            frequencies.counts[slot] += np.uint32(UNIT)
        frequencies.log[frequencies.logged] = np.uint32(slot)
        frequencies.logged += 1


class Counted:
    """The document frequencies of a shard, and their values in the store.

    Args:
        trimmed: the changelog of this store has lost its beginning: without a whole state, counts begin with what is
            left.

    Raises:
        DamagedError: a value is missing or damaged.
    """

    def __init__(self, store: Store, shard: int, frequencies: DocumentFrequency, *, trimmed: bool = False) -> None:
        self.frequencies = frequencies
        self.trimmed = trimmed
        self._shard = shard
        self._segment = -1  # the latest segment
        self._number = 0  # of the next value
        self._whole = 0  # bytes of the last whole state
        self._since = 0  # bytes of the increments after it
        self._anew = True
        if len(frequencies.counts):
            self._restore(store)

    def begin(self, segment: int, fades: bool) -> None:
        """A segment begins. fades: all counts lose an eighth."""
        if not len(self.frequencies.counts) or segment == self._segment:
            return
        if fades and self._segment >= 0:
            counts = self.frequencies.counts
            counts -= (counts + np.uint32(7)) >> np.uint32(3)
            self.frequencies.logged = 0
            self._anew = True
        self._segment = segment

    def take(self) -> tuple[dict[bytes, bytes], list[Range]]:
        """The values that make the counts durable, and the ranges of keys that are obsolete with them."""
        frequencies = self.frequencies
        if not len(frequencies.counts):
            return {}, []
        ranges = list[Range]()
        if self._anew or self._since > max(self._whole, 1 << 20):
            slots = np.flatnonzero(frequencies.counts).astype(np.uint32)
            counts = frequencies.counts[slots]
            ranges.append((self._key(0), self._key(self._number)))
        else:
            slots, times = np.unique(frequencies.log[: int(frequencies.logged)], return_counts=True)
            counts = times.astype(np.uint32) * np.uint32(UNIT)
        whole, frequencies.logged = bool(ranges), 0
        head = _HEAD.pack(whole, self._segment, self._number, len(slots))
        # Steps are small, and most counts are equal: compressed they take a third.
        steps = np.diff(slots, prepend=np.uint32(0)).astype("<u4")
        value = head + zlib.compress(steps.tobytes() + counts.astype("<u4").tobytes(), 1)
        values = {self._key(self._number): value}
        self._number += 1
        self._whole, self._since = (len(value), 0) if whole else (self._whole, self._since + len(value))
        self._anew = False
        return values, ranges

    def folded(self) -> tuple[dict[bytes, bytes], list[Range]]:
        """As `take`, where nothing was counted since the last commit: one whole state in place of all values."""
        if not self._number:
            return {}, []
        self._number, self._anew = self._number - 1, True
        return self.take()

    def _key(self, number: int) -> bytes:
        return rows_key(FREQUENCIES, self._shard, 0, number)

    def _restore(self, store: Store) -> None:
        for number, value in store.rows_of(FREQUENCIES, self._shard, 0):
            try:
                self._add(number, value)
            except (struct.error, ValueError, IndexError, zlib.error):
                raise DamagedError(
                    f"{store.path}: the document frequencies of shard {self._shard} are damaged; restore the folder "
                    "from a backup"
                ) from None

    def _add(self, number: int, value: bytes) -> None:
        """Add a value: a whole state, or the increments after the value before."""
        whole, self._segment, named, n = _HEAD.unpack_from(value)
        begins = self.trimmed and not self._number
        if named != number or not (whole or begins or number == self._number):
            raise ValueError("out of order")
        data = zlib.decompress(value[_HEAD.size :])
        slots = np.cumsum(np.frombuffer(data, "<u4", n), dtype=np.uint32)
        counts = np.frombuffer(data, "<u4", n, 4 * n)
        if whole:
            self.frequencies.counts[:] = 0
        have = self.frequencies.counts
        have[slots] += np.minimum(counts, np.uint32(0xFFFFFFFF) - have[slots])
        self._number, self._anew = number + 1, False
        self._whole, self._since = (len(value), 0) if whole else (self._whole, self._since + len(value))


def folded(store: Store, shard: int, *, trimmed: bool) -> tuple[dict[bytes, bytes], list[Range]]:
    """One whole state in place of all values of a store, and the ranges of keys that are obsolete with it.

    Raises:
        DamagedError: see `Counted`.
    """
    if next(store.rows_of(FREQUENCIES, shard, 0), None) is None:
        return {}, []
    return Counted(store, shard, DocumentFrequency.of(1, 0, 0), trimmed=trimmed).folded()


def superseded(values: dict[bytes, bytes]) -> list[Range]:
    """Remove from values those before the last whole state. Returns the ranges of keys of the store that are obsolete
    with it."""
    mine = sorted(key for key in values if key.startswith(FREQUENCIES))
    whole = next((key for key in reversed(mine) if values[key][:1] == _WHOLE), None)
    if whole is None:
        return []
    for key in mine[: mine.index(whole)]:
        del values[key]
    return [(rows_key(FREQUENCIES, parts_of(whole)[1], 0, 0), whole)]
