"""Decisions: the results of the resolution, which shards learn later (docs/internals/formats.md).

The judge writes one record for each frame. A sequenced frame that begins a block carries, for each shard, the decisions
about its documents of the block before the last.

Sections ("D", version 2) of m new documents, little endian. The d documents of which more is said were dropped, or kept
in the group of the version before them.

- 0: offset, predecessor, documents, int64.
- 1: seqs int64[m]. 2: places in the log int64[m]. 3: kinds uint8[m], plus 128 if it was kept in such a group.
- 4: similarities float64[d]. 5: groups int64[d]. 6: shards uint16[d]. 7: ends of the ids uint32[d]. 8: ids, as JSON
  text.

Then, with updates:

- 9: deleted representatives: places in the log and groups, int64[g, 2].
- 10: possible representatives: seqs, places in the log from which on they are valid, and groups, int64[h, 3]. 11:
  uint8[h], 1 for the new representative.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from stream_lsh.errors import FormatError
from stream_lsh.index.resolution import Fates
from stream_lsh.index.rows.layout import NEAR, UNIQUE
from stream_lsh.settings.model import Settings
from stream_lsh.wire.envelope import Section, column, join, pack, split, unpack

VERSION = 2
_HEAD = struct.Struct("<qqq")  # offset, predecessor, documents
_KEPT_IN_GROUP = 128


@dataclass(frozen=True, slots=True, eq=False)
class Decisions:
    """Decisions about new documents.

    Attributes:
        offset, predecessor: of the frame, as in `Sequenced`; -1 for decisions of several frames.
        documents: number of documents of the log that have a verdict with these.
        fates: of the documents.
        shards: uint16[d], the shards that store the documents of `joined`.
        names: the ids that those were dropped for, b"" for a kept document.
        deleted: int64[g, 2], places in the log and groups of deleted representatives.
        representatives: possible representatives, by shard. `place` is where they begin to be valid, `kind` is UNIQUE
            for the chosen ones.
    """

    offset: int
    predecessor: int
    documents: int
    fates: Fates
    shards: NDArray[np.uint16]
    names: list[bytes]
    deleted: NDArray[np.int64] = field(default_factory=lambda: np.empty((0, 2), np.int64))
    representatives: Fates = field(default_factory=lambda: Fates.of(0))

    @property
    def joined(self) -> NDArray[np.int64]:
        """The places in `fates` of documents that were dropped, or kept in the group of the version before them."""
        return np.flatnonzero((self.fates.kind != UNIQUE) | (self.fates.group != self.fates.seq))

    def encode(self, settings: Settings) -> bytes:
        fates, joined = self.fates, self.joined
        kinds = fates.kind.astype(np.uint8)
        kinds[joined] |= np.where(kinds[joined] == UNIQUE, np.uint8(_KEPT_IN_GROUP), np.uint8(0))
        return pack(
            b"D", VERSION, settings.fingerprint,
            [
                _HEAD.pack(self.offset, self.predecessor, self.documents), fates.seq, fates.place, kinds,
                fates.similarity[joined], fates.group[joined], self.shards, *join(self.names),
                *(self._changes() if settings.updates else ()),
            ],
        )  # fmt: skip

    def _changes(self) -> list[Section]:
        representatives = self.representatives
        return [
            self.deleted,
            np.column_stack((representatives.seq, representatives.place, representatives.group)),
            (representatives.kind == UNIQUE).astype(np.uint8),
        ]

    @classmethod
    def decode(cls, data: bytes | memoryview, settings: Settings) -> Decisions:
        """Read decisions.

        Raises:
            FormatError: they cannot be read; the message has the cause and the remedy.
        """
        s = unpack(b"D", VERSION, settings.fingerprint, data)
        if len(s) != 9 + 3 * settings.updates or len(s[0]) != _HEAD.size:
            raise FormatError(f"decisions are damaged: they have {len(s)} parts")
        offset, predecessor, documents = _HEAD.unpack(s[0])
        seq = column(s[1], np.int64)
        kind = column(s[3], np.uint8, len(seq)).astype(np.int64)
        joined = np.flatnonzero(kind != UNIQUE)
        kind &= ~np.int64(_KEPT_IN_GROUP)
        similarity, group = np.zeros(len(seq)), seq.copy()
        similarity[joined] = column(s[4], np.float64, len(joined))
        group[joined] = column(s[5], np.int64, len(joined))
        fates = Fates(seq, column(s[2], np.int64, len(seq)), kind, similarity, group)
        names = split(s[7], s[8])
        if len(names) != len(joined):
            raise FormatError("decisions are damaged: their ids do not fit their documents")
        found = cls(offset, predecessor, documents, fates, column(s[6], np.uint16, len(joined)), names)
        if not settings.updates:
            return found
        representatives, chosen = column(s[10], np.int64, width=3), column(s[11], np.uint8, len(s[10]) // 24)
        seq, place, group = (np.ascontiguousarray(numbers) for numbers in representatives.T)
        may = Fates(seq, place, np.where(chosen > 0, UNIQUE, NEAR), np.zeros(len(seq)), group)
        return replace(found, deleted=column(s[9], np.int64, width=2), representatives=may)


def decisions_of_shard(decisions: Sequence[Decisions], shard: int, first: int, last: int) -> Decisions:
    """The decisions for one shard about the documents at the places [first, last) of the log: its own dropped
    documents, the groups of deleted representatives, and the representatives that are valid from such a place on."""
    parts, shards, names, deleted, representatives = [], [], [], [], []
    for decided in decisions:
        at = decided.joined
        places = decided.fates.place[at]
        mine = np.flatnonzero((decided.shards == shard) & (first <= places) & (places < last))
        parts.append(decided.fates.at(at[mine]))
        shards.append(decided.shards[mine])
        names += [decided.names[i] for i in mine.tolist()]
        there = decided.deleted[:, 0]
        deleted.append(decided.deleted[(first <= there) & (there < last)])
        there, chosen = decided.representatives.place, decided.representatives.kind == UNIQUE
        representatives.append(decided.representatives.at(np.flatnonzero(chosen & (first <= there) & (there < last))))
    return Decisions(
        -1, -1, last, Fates.joined([Fates.of(0), *parts]), np.concatenate([np.empty(0, np.uint16), *shards]), names,
        np.concatenate([np.empty((0, 2), np.int64), *deleted]), Fates.joined([Fates.of(0), *representatives]),
    )  # fmt: skip
