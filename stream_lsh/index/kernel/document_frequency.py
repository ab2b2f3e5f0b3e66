"""How rare terms are: of how many documents of the log each is, by a hash of it. What stories weigh terms by.

A function of the documents that were stored and count (`tf_idf`), in their order: whatever the batches, flushes and
restarts. Where there is a window an eighth of all counts goes whenever a segment begins, which is where an eighth
of the window ends.

The store has what it was at one commit, and what every commit since has added; when that is more than the whole, or
where a segment has begun with which something fades, the whole is written again. On Kafka each of these values is in
the change of its frame, too, the first one that a copy has is a whole one, and the last one says what all come to.

Nobody is named in it: which documents a count comes from cannot be told, so it stays when they are erased. But what a
commit of few documents has added says what words they have: where something is erased, all values become one.
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
"""Counters: 16 MB. The terms of a million posts are some 500,000."""
OWN_SLOTS = 512
BEFORE = 8
"""Documents that are thought to have been before the first one, with other terms: or else what the first two share
would say nothing."""
UNIT = 16  # that a document counts, so that what fades does so in small steps
BITMAP = 16  # words of the bitmap of a row's terms
_HEAD = struct.Struct("<BqqI")  # whole or added; segment, number of the value; counts
_WHOLE = b"\1"  # with which a whole one begins
_POWER = 0.8
# log2(x) ** 0.8 in steps of 1/64, rounded: the same on every machine. Terms that are twice as rare do not say twice as
# much: without it one misspelt word outweighs the name of the town.
_POWERS = np.round((np.arange(64 * 64) / 64) ** _POWER * 2.0**20) / 2.0**20
_MOST = np.uint32(0xFFFFFFFF - UNIT)


class DocumentFrequency(Struct):
    """The counts, of UNIT a document; and scratch for the document at hand, and for the rows that it is compared with.

    among: how many documents there are that the one at hand may match, and some. log: slots that were counted since the
    last commit, `logged` of them.
    own, own_weights: a hash table of the document's heaviest terms. norm, names: sums of the squares of their weights,
    of all and of names; pad: what is not looked at. keys: how many of the heaviest there are, up to STORY_KEYS, with
    the weights of these; rarest: their order, the rarest first. near: the signatures of rows, with their bitmaps,
    groups and similarities; apart: how far these are in time (ms); tellers: how many of them are of the document's
    story.
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
        """Nothing is known yet; candidates: rows that a document is compared with, 0 = of an index without stories."""
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
        """That of an index with these settings, whose signatures have so many words."""
        stories = settings.measure == "tf-idf"
        return cls.of(settings.max_candidates * stories, STORY_KEYS * stories, words)

    def enlarge(self) -> None:
        """Twice the room for what is counted."""
        self.log = np.concatenate((self.log, np.empty_like(self.log)))


@njit(forceinline=True)
def slot_of(term):  # type: ignore[no-untyped-def]
    """Where a term is counted."""
    return np.int64(term & np.uint64(SLOTS - 1))


@njit
def weigh_among(frequencies, every):  # type: ignore[no-untyped-def]
    """Weigh terms among the documents that have the term `every`."""
    frequencies.among = np.float64(frequencies.counts[slot_of(every)]) / UNIT + (2.0 + BEFORE)


@njit
def idf_of(frequencies, term, own):  # type: ignore[no-untyped-def]
    """How much a term says by being rare, seen from a document that has it (own = 1) or not (0): the logarithm of the
    documents for one that has it, the document at hand among them."""
    count = np.float64(frequencies.counts[slot_of(term)]) / UNIT + own
    return _POWERS[np.int64(64.0 * log2(max(1.0, frequencies.among / (count + 0.5))))]


@njit
def most_rare(frequencies):  # type: ignore[no-untyped-def]
    """That of a term that no document has had."""
    return _POWERS[np.int64(64.0 * log2(frequencies.among))]


@njit
def count(frequencies, terms, first, last, shift):  # type: ignore[no-untyped-def]
    """A document is stored, which has terms[first:last]; the caller has seen to room in the log."""
    for k in range(first, last):
        slot = slot_of(terms[k] >> shift)
        if frequencies.counts[slot] < _MOST:
            frequencies.counts[slot] += np.uint32(UNIT)
        frequencies.log[frequencies.logged] = np.uint32(slot)
        frequencies.logged += 1


class Counted:
    """The counts of a shard, and how they are kept.

    Args:
        trimmed: the changelog that the store comes from has lost its beginning: if there is no whole value, they begin
            with what is left.

    Raises:
        DamagedError: a value is missing, or damaged.
    """

    def __init__(self, store: Store, shard: int, frequencies: DocumentFrequency, *, trimmed: bool = False) -> None:
        self.frequencies = frequencies
        self.trimmed = trimmed
        self._shard = shard
        self._segment = -1  # the last one that began
        self._number = 0  # of the next value
        self._whole = 0  # bytes of the last whole one
        self._since = 0  # and of those since
        self._anew = True
        if len(frequencies.counts):
            self._restore(store)

    def begin(self, segment: int, fades: bool) -> None:
        """A segment begins; whether an eighth goes."""
        if not len(self.frequencies.counts) or segment == self._segment:
            return
        if fades and self._segment >= 0:
            counts = self.frequencies.counts
            counts -= (counts + np.uint32(7)) >> np.uint32(3)
            self.frequencies.logged = 0
            self._anew = True
        self._segment = segment

    def take(self) -> tuple[dict[bytes, bytes], list[Range]]:
        """The values that make the counts durable, and the ranges of keys that are needed no more."""
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
        # Neighbours are near, and most counts are equal, which takes a third when it is compressed.
        steps = np.diff(slots, prepend=np.uint32(0)).astype("<u4")
        value = head + zlib.compress(steps.tobytes() + counts.astype("<u4").tobytes(), 1)
        values = {self._key(self._number): value}
        self._number += 1
        self._whole, self._since = (len(value), 0) if whole else (self._whole, self._since + len(value))
        self._anew = False
        return values, ranges

    def folded(self) -> tuple[dict[bytes, bytes], list[Range]]:
        """As `take`, where nothing was counted since: all values as one, in place of the last one."""
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
                    f"{store.path}: what shard {self._shard} knows of how rare terms are is damaged; restore the "
                    "folder from a backup"
                ) from None

    def _add(self, number: int, value: bytes) -> None:
        """Take over a value: a whole one, or what was added to the one before."""
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
    """All values that a store has, as one, in place of the last one, and the ranges of keys that are needed no more.

    Raises:
        DamagedError: see `Counted`.
    """
    if next(store.rows_of(FREQUENCIES, shard, 0), None) is None:
        return {}, []
    return Counted(store, shard, DocumentFrequency.of(1, 0, 0), trimmed=trimmed).folded()


def superseded(values: dict[bytes, bytes]) -> list[Range]:
    """Take out of values that are to be stored what a later whole one of them says anyway; the ranges of keys of the
    store that are needed no more with it."""
    mine = sorted(key for key in values if key.startswith(FREQUENCIES))
    whole = next((key for key in reversed(mine) if values[key][:1] == _WHOLE), None)
    if whole is None:
        return []
    for key in mine[: mine.index(whole)]:
        del values[key]
    return [(rows_key(FREQUENCIES, parts_of(whole)[1], 0, 0), whole)]
