"""Decisions: the results of the resolution, which shards learn later. docs/internals/formats.md has the sections.

The judge writes one record for each frame. A sequenced frame that begins a block carries, for each shard, the decisions
about its documents of the block before the last.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from stream_lsh.errors import FormatError
from stream_lsh.index.resolution import NO_SUPERSEDED, Resolution, States
from stream_lsh.index.rows.layout import NEAR, UNIQUE
from stream_lsh.settings.model import Settings
from stream_lsh.wire.envelope import Section, Sections, join, pack

VERSION = 2
_HEAD = struct.Struct("<qqq")  # offset, predecessor, documents
_KEPT_IN_GROUP = 128


@dataclass(frozen=True, slots=True, eq=False)
class Decisions:
    """Decisions about new documents.

    Attributes:
        offset, predecessor: of the frame, as in `Sequenced`; -1 for decisions of several frames.
        documents: number of documents of the log that have a verdict with these.
        states: of the documents.
        shards: uint16[d], the shards that store the documents of `joined`.
        names: the ids that those were dropped for, b"" for a kept document.
        deleted: int64[g, 2], places in the log and groups of deleted representatives.
        representatives: possible representatives, by shard. `place` is where they begin to be valid, `kind` is UNIQUE
            for the chosen ones.
        superseded: int64[s, 4], with `keep`, as in `Resolution`.
    """

    offset: int
    predecessor: int
    documents: int
    states: States
    shards: NDArray[np.uint16]
    names: list[bytes]
    deleted: NDArray[np.int64] = field(default_factory=lambda: np.empty((0, 2), np.int64))
    representatives: States = field(default_factory=lambda: States.of(0))
    superseded: NDArray[np.int64] = field(default_factory=lambda: NO_SUPERSEDED)

    @property
    def joined(self) -> NDArray[np.int64]:
        """The places in `states` of documents that were dropped, or kept in the group of the version before them."""
        return np.flatnonzero((self.states.kind != UNIQUE) | (self.states.group != self.states.seq))

    def encode(self, settings: Settings) -> bytes:
        states, joined = self.states, self.joined
        kinds = states.kind.astype(np.uint8)
        kinds[joined] |= np.where(kinds[joined] == UNIQUE, np.uint8(_KEPT_IN_GROUP), np.uint8(0))
        return pack(
            b"D", VERSION, settings.fingerprint,
            [
                _HEAD.pack(self.offset, self.predecessor, self.documents), states.seq, states.place, kinds,
                states.similarity[joined], states.group[joined], self.shards, *join(self.names),
                *(self._changes() if settings.updates else ()),
                *([self.superseded] if settings.superseded_late else ()),
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
        sections = Sections(b"D", VERSION, settings.fingerprint, data)
        offset, predecessor, documents = sections.numbers(_HEAD)
        seq = sections.column(np.int64)
        place = sections.column(np.int64, len(seq))
        kind = sections.column(np.uint8, len(seq)).astype(np.int64)
        joined = np.flatnonzero(kind != UNIQUE)
        kind &= ~np.int64(_KEPT_IN_GROUP)
        similarity, group = np.zeros(len(seq)), seq.copy()
        similarity[joined] = sections.column(np.float64, len(joined))
        group[joined] = sections.column(np.int64, len(joined))
        shards, names = sections.column(np.uint16, len(joined)), sections.texts()
        if len(names) != len(joined):
            raise FormatError("decisions are damaged: their ids do not fit their documents")
        found = cls(offset, predecessor, documents, States(seq, place, kind, similarity, group), shards, names)
        if settings.updates:
            deleted, representatives = sections.column(np.int64, width=2), sections.column(np.int64, width=3)
            chosen = sections.column(np.uint8, len(representatives))
            seq, place, group = (np.ascontiguousarray(numbers) for numbers in representatives.T)
            may = States(seq, place, np.where(chosen > 0, UNIQUE, NEAR), np.zeros(len(seq)), group)
            found = replace(found, deleted=deleted, representatives=may)
        if settings.superseded_late:
            found = replace(found, superseded=sections.column(np.int64, width=4))
        sections.end()
        return found


def restored(keep: str, known: Sequence[Decisions]) -> Resolution:
    """The resolution that has made these decisions, from the first document on that is provisional. keep: as in the
    settings."""
    found = Resolution(keep)
    if known:
        states = States.joined([states for d in known for states in (d.states, d.representatives)])
        found.restore(states, superseded=np.concatenate([d.superseded for d in known]))
    return found


def decisions_of_shard(decisions: Sequence[Decisions], shard: int, first: int, last: int) -> Decisions:
    """The decisions for one shard about the documents at the places [first, last) of the log: its own dropped
    documents, the groups of deleted representatives, the representatives that are valid from such a place on, and its
    superseded documents."""
    parts, shards, names, deleted, representatives, superseded = [], [], [], [], [], []
    for decided in decisions:
        at = decided.joined
        places = decided.states.place[at]
        mine = np.flatnonzero((decided.shards == shard) & (first <= places) & (places < last))
        parts.append(decided.states.at(at[mine]))
        shards.append(decided.shards[mine])
        names += [decided.names[i] for i in mine.tolist()]
        there = decided.deleted[:, 0]
        deleted.append(decided.deleted[(first <= there) & (there < last)])
        there = decided.superseded[:, 0]
        superseded.append(decided.superseded[(first <= there) & (there < last) & (decided.superseded[:, 2] == shard)])
        there, chosen = decided.representatives.place, decided.representatives.kind == UNIQUE
        representatives.append(decided.representatives.at(np.flatnonzero(chosen & (first <= there) & (there < last))))
    return Decisions(
        -1, -1, last, States.joined([States.of(0), *parts]), np.concatenate([np.empty(0, np.uint16), *shards]), names,
        np.concatenate([np.empty((0, 2), np.int64), *deleted]), States.joined([States.of(0), *representatives]),
        np.concatenate([NO_SUPERSEDED, *superseded]),
    )  # fmt: skip
