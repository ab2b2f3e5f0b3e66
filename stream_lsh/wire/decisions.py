"""Decisions: what became of documents, where several shards have to say so and learn it later (docs/formats.md).

The judge writes one for each frame; a sequenced frame with which a block begins carries, for each shard, those on what
it has dropped of the block before the last.

Sections ("D", version 2) of m new documents, d of which were dropped, little endian:
 0 offset, predecessor, documents, int64
 1 seqs int64[m]; 2 places in the log int64[m]; 3 kinds uint8[m]
 4 similarities float64[d]; 5 groups int64[d]; 6 shards uint16[d]; 7 ends of the ids uint32[d]; 8 ids, as JSON text
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stream_lsh.errors import FormatError
from stream_lsh.index.layout import UNIQUE
from stream_lsh.index.settling import Fates
from stream_lsh.settings import Settings
from stream_lsh.wire.envelope import column, join, pack, split, unpack

VERSION = 2
_HEAD = struct.Struct("<qqq")  # offset, predecessor, documents


@dataclass(frozen=True, slots=True, eq=False)
class Decisions:
    """What became of new documents.

    offset, predecessor: of the frame, as in `Sequenced`; -1 where they are of several. documents: how many of the log
    have their verdict with them. fates: of the documents. shards uint16[d], names: of the d that were dropped, whose
    rows they are, and the ids of what they were dropped for.
    """

    offset: int
    predecessor: int
    documents: int
    fates: Fates
    shards: NDArray[np.uint16]
    names: list[bytes]

    @property
    def dropped(self) -> NDArray[np.int64]:
        """The places in `fates` of those that were dropped."""
        return np.flatnonzero(self.fates.kind != UNIQUE)

    def encode(self, settings: Settings) -> bytes:
        fates, dropped = self.fates, self.dropped
        return pack(
            b"D", VERSION, settings.fingerprint,
            [
                _HEAD.pack(self.offset, self.predecessor, self.documents), fates.seq, fates.place,
                fates.kind.astype(np.uint8), fates.similarity[dropped], fates.group[dropped], self.shards,
                *join(self.names),
            ],
        )  # fmt: skip

    @classmethod
    def decode(cls, data: bytes | memoryview, settings: Settings) -> Decisions:
        """Read decisions.

        Raises:
            FormatError: naming what is wrong, and the remedy.
        """
        s = unpack(b"D", VERSION, settings.fingerprint, data)
        if len(s) != 9 or len(s[0]) != _HEAD.size:
            raise FormatError(f"decisions are damaged: they have {len(s)} parts")
        offset, predecessor, documents = _HEAD.unpack(s[0])
        seq = column(s[1], np.int64)
        kind = column(s[3], np.uint8, len(seq)).astype(np.int64)
        dropped = np.flatnonzero(kind != UNIQUE)
        similarity, group = np.zeros(len(seq)), seq.copy()
        similarity[dropped] = column(s[4], np.float64, len(dropped))
        group[dropped] = column(s[5], np.int64, len(dropped))
        fates = Fates(seq, column(s[2], np.int64, len(seq)), kind, similarity, group)
        names = split(s[7], s[8])
        if len(names) != len(dropped):
            raise FormatError("decisions are damaged: they have not as many ids as documents that were dropped")
        return cls(offset, predecessor, documents, fates, column(s[6], np.uint16, len(dropped)), names)


def dropped_of(decisions: Sequence[Decisions], shard: int, first: int, last: int) -> Decisions:
    """What a shard has dropped of the documents at the places [first, last) of the log."""
    parts, shards, names = [], [], []
    for decided in decisions:
        at = decided.dropped
        places = decided.fates.place[at]
        mine = np.flatnonzero((decided.shards == shard) & (first <= places) & (places < last))
        parts.append(decided.fates.at(at[mine]))
        shards.append(decided.shards[mine])
        names += [decided.names[i] for i in mine.tolist()]
    return Decisions(
        -1, -1, last, Fates.joined([Fates.of(0), *parts]), np.concatenate([np.empty(0, np.uint16), *shards]), names
    )
