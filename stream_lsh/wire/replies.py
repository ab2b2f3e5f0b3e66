"""Replies: the matches of one shard for a frame (docs/internals/formats.md).

Sections of a reply ("R", version 2) to a frame of n documents, with m matches, little endian. Each id is a name, which
other sections give by its number.

- 0: shard, offset, predecessor, int64.
- 1: ends of the names, uint32. 2: names, as JSON text. An empty name means that there is no such id.
- 3: matches, in the order of the documents: place of the document in the frame, uint16[m]. 4: name, uint32[m]. 5: seq,
  int64[m]. 6: similarity, float64[m]. 7: whether the text is the same, uint8[m].
- 8: status, uint8[n]. 9: kind, uint8[n].
- 10: known ids: places of the documents, uint16. 11: for a redelivered document the name of its oldest match, uint32.
- 12: oldest matches: places, uint16. 13: names, uint32. 14: seqs, int64.
- 15: similarity with the oldest match, where it is not 0: places, uint16. 16: float64.
- 17: group, int64[n], or empty if there is none.
- 18: matches that are not listed: places, uint16. 19: their number, int64. 20: what was not compared: places, uint16.
  21: int64.
- 22: accepted, uint8[n], or empty. 23, with several shards and `kept`: seqs of the known ids, int64.

Then, with updates:

- deleted or replaced versions: places, uint16; seqs and groups, int64[g, 2]; uint8, 1 if it was a representative, plus
  2 if the new version is similar to it.
- new representatives: places, uint16; names, uint32; seqs, source partitions and offsets, int64[h, 3].

Then, with updates, several shards and `kept`, possible representatives: place of the document that begins the block,
uint16; names, uint32; groups, seqs, source partitions and offsets, int64[h, 4].

Then, if the measure has evidence, that of each match: ends, uint32[m]; JSON.

Then, if it is this shard's turn to send them, the columns of the frame's documents, and with a window their stream
times, int64[n].
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stream_lsh.errors import FormatError
from stream_lsh.families.measure import EXPLAINED
from stream_lsh.index.matches import Matches
from stream_lsh.index.rows.ids import Ids
from stream_lsh.index.rows.layout import NO_GROUP, REDELIVERED, REMOVED_COLUMNS, REPLACED_SINCE
from stream_lsh.settings.model import Settings
from stream_lsh.wire.envelope import Section, column, join, pack, split, unpack
from stream_lsh.wire.source import Source

VERSION = 2
_HEAD = struct.Struct("<qqq")  # shard, offset, predecessor
_COLUMNS, _MORE, _REPRESENTATIVES = 23, 6, 3

Sparse = tuple[NDArray[np.uint16], NDArray[Any]]
"""Places in the frame, ascending, and a value for each."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A shard's matches for a frame.

    Attributes:
        offset, predecessor: of the frame, as in `Sequenced`.
        matches: with numbers of `names` instead of rows, in `row`, `of`, `removed` and `representatives`. For a
            redelivered document `known` is the number of its oldest match, and with several shards and `kept` `of_seq`
            is its own number. `row_of` is not set.
        source, accepted: the frame's documents, from the shard whose turn it is (`carries`), otherwise None.
        representatives: source partition and offset of new representatives, by their seqs.
        log: int64[n], stream times of the frame's documents, with `source` and a window.
    """

    shard: int
    offset: int
    predecessor: int
    matches: Matches
    names: list[bytes]
    source: Source | None
    accepted: NDArray[np.bool_] | None
    representatives: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    log: NDArray[np.int64] | None = None

    def encode(self, settings: Settings) -> bytes:
        m = self.matches
        source = [] if self.source is None else self.source.sections(settings)
        source += [] if self.source is None or self.log is None else [self.log]
        accepted: Section = b"" if self.accepted is None else self.accepted.astype(np.uint8)
        known, of = m.known >= 0, m.of >= 0
        groups: Section = m.group if (m.group != NO_GROUP).any() else b""
        again: list[Section] = [m.of_seq[known]] if settings.late else []
        return pack(
            b"R", VERSION, settings.fingerprint,
            [
                _HEAD.pack(self.shard, self.offset, self.predecessor), *join(self.names),
                m.document.astype(np.uint16), m.row.astype(np.uint32), m.seq, m.similarity,
                m.same_text.astype(np.uint8), m.status.astype(np.uint8), m.kind.astype(np.uint8),
                *_sparse(known, m.known.astype(np.uint32)),
                *_sparse(of, m.of.astype(np.uint32)), m.of_seq[of],
                *_sparse(m.of_similarity != 0, m.of_similarity), groups,
                *_sparse(m.more != 0, m.more), *_sparse(m.not_compared != 0, m.not_compared), accepted, *again,
                *(self._replaced() if settings.updates else ()),
                *(self._representatives() if settings.updates and settings.late else ()),
                *(join(m.evidence.tolist()) if settings.measure in EXPLAINED else ()), *source,
            ],
        )  # fmt: skip

    def _replaced(self) -> list[Section]:
        """The sections of deleted and replaced versions and of the new representatives."""
        seqs, was_representative, names, representative_seqs, groups, like = self.matches.removed.T
        at, representatives = np.flatnonzero(seqs >= 0), np.flatnonzero(names >= 0)
        return [
            at.astype(np.uint16), np.column_stack((seqs[at], groups[at])),
            ((was_representative > 0) + 2 * (like > 0))[at].astype(np.uint8),
            representatives.astype(np.uint16), names[representatives].astype(np.uint32),
            np.column_stack((representative_seqs[representatives], self._places(representative_seqs[representatives]))),
        ]  # fmt: skip

    def _representatives(self) -> list[Section]:
        """The sections of possible representatives."""
        documents, groups, names, seqs = self.matches.representatives.T
        return [
            documents.astype(np.uint16),
            names.astype(np.uint32),
            np.column_stack((groups, seqs, self._places(seqs))),
        ]

    def _places(self, representatives: NDArray[np.int64]) -> NDArray[np.int64]:
        """Source partitions and offsets int64[h, 2] of representatives."""
        return np.array([self.representatives[seq] for seq in representatives.tolist()], np.int64).reshape(-1, 2)

    @classmethod
    def decode(cls, data: bytes | memoryview, settings: Settings) -> Reply:
        """Read a reply.

        Raises:
            FormatError: it cannot be read; the message has the cause and the remedy.
        """
        s = unpack(b"R", VERSION, settings.fingerprint, data)
        replaced_at = _COLUMNS + settings.late
        evidence_at = replaced_at + (_MORE + _REPRESENTATIVES * settings.late) * settings.updates
        columns = evidence_at + 2 * (settings.measure in EXPLAINED)
        behind = columns + Source.count(settings)  # where the documents' columns end
        if len(s) not in (columns, behind + (settings.window is not None)) or len(s[0]) != _HEAD.size:
            raise FormatError(f"a reply is damaged: it has {len(s)} parts")
        shard, offset, predecessor = _HEAD.unpack(s[0])
        names = split(s[1], s[2])
        document = column(s[3], np.uint16).astype(np.int64)
        status = column(s[8], np.uint8).astype(np.int64)
        m, n = len(document), len(status)
        of_seq = np.full(n, -1)
        of_seq[_places(s[12], n)] = column(s[14], np.int64, len(s[12]) // 2)
        if settings.late:
            of_seq[_places(s[10], n)] = column(s[_COLUMNS], np.int64, len(s[10]) // 2)
        removed, possible, representatives = (
            np.full((n, REMOVED_COLUMNS), -1),
            np.empty((0, 4), np.int64),
            dict[int, tuple[int, int]](),
        )
        if settings.updates:
            representatives = _read_replaced(s[replaced_at : replaced_at + _MORE], removed, names)
        if settings.updates and settings.late:
            possible = _read_representatives(s[replaced_at + _MORE : evidence_at], n, names, representatives)
        evidence = split(*s[evidence_at:columns]) if columns > evidence_at else []
        matches = Matches(
            document=document, row=_named(column(s[4], np.uint32, m), names), seq=column(s[5], np.int64, m),
            similarity=column(s[6], np.float64, m), same_text=column(s[7], np.uint8, m).astype(np.bool_),
            status=status, known=_named(_dense(s[10], s[11], n, np.uint32, -1), names), row_of=np.full(n, -1),
            kind=column(s[9], np.uint8, n).astype(np.int64),
            of=_named(_dense(s[12], s[13], n, np.uint32, -1), names), of_seq=of_seq,
            of_similarity=_dense(s[15], s[16], n, np.float64, 0.0),
            group=column(s[17], np.int64, n) if len(s[17]) else np.full(n, NO_GROUP),
            more=_dense(s[18], s[19], n, np.int64, 0), not_compared=_dense(s[20], s[21], n, np.int64, 0),
            removed=removed, representatives=possible, evidence=np.array(evidence, np.object_),
        )  # fmt: skip
        accepted = column(s[22], np.uint8, n).astype(np.bool_) if len(s[22]) else None
        source = Source.of(s[columns:behind]) if len(s) > columns else None
        if (
            (m and int(document.max()) >= n)
            or (evidence and len(evidence) != m)
            or (source is not None and len(source) != n)
        ):
            raise _inconsistent()
        log = column(s[behind], np.int64, n) if len(s) > behind else None
        return cls(shard, offset, predecessor, matches, names, source, accepted, representatives, log)


def _read_replaced(
    sections: Sequence[memoryview], removed: NDArray[np.int64], names: Sequence[bytes]
) -> dict[int, tuple[int, int]]:
    """Decode the sections of `Reply._replaced` into `removed`. Returns the representatives' places by seq."""
    at, representatives = _places(sections[0], len(removed)), _places(sections[3], len(removed))
    removed[at, 0], removed[at, 4] = column(sections[1], np.int64, len(at), 2).T
    flags = column(sections[2], np.uint8, len(at)).astype(np.int64)
    removed[at, 1], removed[at, 5] = flags & 1, flags >> 1
    where = column(sections[5], np.int64, len(representatives), 3)
    removed[representatives, 2], removed[representatives, 3] = (
        _named(column(sections[4], np.uint32, len(representatives)), names),
        where[:, 0],
    )
    return dict(zip(where[:, 0].tolist(), map(tuple, where[:, 1:].tolist()), strict=True))


def _read_representatives(
    sections: Sequence[memoryview], n: int, names: Sequence[bytes], representatives: dict[int, tuple[int, int]]
) -> NDArray[np.int64]:
    """Decode the sections of `Reply._representatives`, as in `Matches.representatives`. Adds their places to
    `representatives`."""
    documents = _places(sections[0], n)
    facts = column(sections[2], np.int64, len(documents), 4)
    representatives.update(zip(facts[:, 1].tolist(), map(tuple, facts[:, 2:].tolist()), strict=True))
    return np.column_stack(
        (documents, facts[:, 0], _named(column(sections[1], np.uint32, len(documents)), names), facts[:, 1])
    )


def source_of(replies: Sequence[Reply]) -> tuple[Source, NDArray[np.bool_] | None]:
    """The documents of the frame of these replies, and which of them are accepted (None: all).

    Raises:
        FormatError: the replies do not fit together.
    """
    source = next((reply.source for reply in replies if reply.source is not None), None)
    if source is None or any(len(reply.matches.status) != len(source) for reply in replies):
        raise FormatError(
            f"the replies to the frame at offset {replies[0].offset} do not fit together; workers of different "
            "versions or settings answer: use the same for all, or rebuild with `stream-lsh kafka reindex`"
        )
    return source, next((reply.accepted for reply in replies if reply.accepted is not None), None)


@dataclass(frozen=True, slots=True)
class ReplyNames:
    """The names in the replies of all shards, in their order, for a judgement (`judging.verdicts.Names`)."""

    replies: Sequence[Reply]

    def id_of(self, shard: int, row: int) -> bytes:
        return self.replies[shard].names[row]

    first_of = id_of


def named(matches: Matches, ids: Ids) -> tuple[Matches, list[bytes]]:
    """A shard's matches with numbers of names instead of rows, and these names. ids: of the shard's rows."""
    found: dict[bytes, int] = {}

    def number(name: bytes) -> int:
        return found.setdefault(name, len(found))

    of, known, removed, later = (
        column.copy() for column in (matches.of, matches.known, matches.removed, matches.representatives)
    )
    representatives = removed[:, 2]
    rows = np.concatenate((matches.row, of[of >= 0], representatives[representatives >= 0], later[:, 2]))
    distinct, places = np.unique(rows, return_inverse=True)
    numbers = np.array([number(ids.read(row)) for row in distinct.tolist()], np.int64)[places.reshape(-1)]
    counts = len(matches.row), (of >= 0).sum(), (representatives >= 0).sum()
    mine, of[of >= 0], representatives[representatives >= 0], later[:, 2] = np.split(numbers, np.cumsum(counts))
    for i in np.flatnonzero(known >= 0).tolist():
        again = matches.status[i] == REDELIVERED and matches.of[i] != REPLACED_SINCE
        known[i] = number(ids.named(int(known[i]))[1] if again else b"")
    return replace(matches, row=mine, of=of, known=known, removed=removed, representatives=later), list(found)


def head(data: bytes | memoryview, settings: Settings) -> tuple[int, int, int]:
    """Shard, offset and predecessor of a reply.

    Raises:
        FormatError: as `Reply.decode`.
    """
    sections = unpack(b"R", VERSION, settings.fingerprint, data)
    if len(sections[0]) != _HEAD.size:
        raise FormatError("a reply is damaged: it has no place")
    shard, offset, predecessor = _HEAD.unpack(sections[0])
    return shard, offset, predecessor


def carries(shard: int, offset: int, shards: int) -> bool:
    """Whether it is this shard's turn to send the documents' columns with its reply."""
    return offset % shards == shard


def _sparse(where: NDArray[np.bool_], values: NDArray[Any]) -> Sparse:
    at = np.flatnonzero(where)
    return at.astype(np.uint16), values[at]


def _places(section: memoryview, n: int) -> NDArray[np.int64]:
    """Places in a frame of n documents."""
    places = column(section, np.uint16).astype(np.int64)
    if int(places.max(initial=-1)) >= n:
        raise _inconsistent()
    return places


def _dense(at: memoryview, values: memoryview, n: int, kind: Any, nothing: float) -> NDArray[Any]:
    """A value for each of n documents, `nothing` where there is none."""
    places = _places(at, n)
    out = np.full(n, nothing)
    out[places] = column(values, kind, len(places))
    return out


def _named(numbers: NDArray[Any], names: Sequence[bytes]) -> NDArray[np.int64]:
    """Numbers of names, none of them beyond the last."""
    found = numbers.astype(np.int64)
    if int(found.max(initial=-1)) >= len(names):
        raise _inconsistent()
    return found


def _inconsistent() -> FormatError:
    return FormatError("a reply is damaged: its columns do not fit together")
