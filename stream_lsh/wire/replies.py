"""Replies: the matches of one shard for a frame. docs/internals/formats.md has the sections.

Each id is a name, which other sections give by its number.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from stream_lsh.errors import FormatError
from stream_lsh.families.measure import EXPLAINED
from stream_lsh.index.matches import Matches
from stream_lsh.index.rows.ids import Ids
from stream_lsh.index.rows.layout import NO_GROUP, REDELIVERED, REMOVED_COLUMNS, REPLACED_SINCE
from stream_lsh.settings.model import Settings
from stream_lsh.wire.envelope import Section, Sections, column, join, pack
from stream_lsh.wire.source import Source, parsed_rejections, plain_rejections

VERSION = 2
_HEAD = struct.Struct("<qqqq")  # shard, offset, predecessor, shift

_Representatives = dict[int, tuple[int, int]]
"""Source partitions and offsets by seq."""
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
        log: int64[n], stream times of the frame's documents, with `source` and a window; shift: of them, as in
            `Sequenced`.
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
    shift: int = 0

    def encode(self, settings: Settings) -> bytes:
        m = self.matches
        source = [] if self.source is None else self.source.sections(settings)
        source += [] if self.source is None or self.log is None else [self.log]
        accepted: Section = b"" if self.accepted is None else self.accepted.astype(np.uint8)
        known, of = m.known >= 0, m.of >= 0
        facts = m.same_text | m.effect << 1 if settings.late else m.same_text
        groups: Section = m.group if (m.group != NO_GROUP).any() else b""
        again: list[Section] = [m.of_seq[known]] if settings.late else []
        return pack(
            b"R", VERSION, settings.fingerprint,
            [
                _HEAD.pack(self.shard, self.offset, self.predecessor, self.shift), *join(self.names),
                m.document.astype(np.uint16), m.row.astype(np.uint32), m.seq, m.similarity,
                facts.astype(np.uint8), m.status.astype(np.uint8), m.kind.astype(np.uint8),
                *_sparse(known, m.known.astype(np.uint32)),
                *_sparse(of, m.of.astype(np.uint32)), m.of_seq[of],
                *_sparse(m.of_similarity != 0, m.of_similarity), groups,
                *_sparse(m.more != 0, m.more), *_sparse(m.not_compared != 0, m.not_compared), accepted, *again,
                *(self._replaced() if settings.updates else ()),
                *(self._representatives() if settings.updates and settings.late else ()),
                *([m.held] if settings.superseded_late else ()),
                *(join(m.evidence.tolist()) if settings.measure in EXPLAINED else ()),
                orjson.dumps(plain_rejections(m.failed)) if m.failed else b"", *source,
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
        sections = Sections(b"R", VERSION, settings.fingerprint, data)
        shard, offset, predecessor, shift = sections.numbers(_HEAD)
        names = sections.texts()
        document = sections.column(np.uint16).astype(np.int64)
        m = len(document)
        row, seq = _named(sections.column(np.uint32, m), names), sections.column(np.int64, m)
        similarity, facts_of_matches = sections.column(np.float64, m), sections.column(np.uint8, m).astype(np.int64)
        status = sections.column(np.uint8).astype(np.int64)
        n = len(status)
        kind = sections.column(np.uint8, n).astype(np.int64)
        again, known = _sparse_of(sections, n, np.uint32, -1)
        matched, of = _sparse_of(sections, n, np.uint32, -1)
        of_seq = np.full(n, -1)
        of_seq[matched] = sections.column(np.int64, len(matched))
        _, of_similarity = _sparse_of(sections, n, np.float64, 0.0)
        given = sections.next()
        groups = column(given, np.int64, n) if len(given) else np.full(n, NO_GROUP)
        _, more = _sparse_of(sections, n, np.int64, 0)
        _, not_compared = _sparse_of(sections, n, np.int64, 0)
        counts = sections.next()
        if settings.late:
            of_seq[again] = sections.column(np.int64, len(again))
        removed, possible, representatives = (
            np.full((n, REMOVED_COLUMNS), -1),
            np.empty((0, 4), np.int64),
            _Representatives(),
        )
        if settings.updates:
            _read_replaced(sections, removed, names, representatives)
            if settings.late:
                possible = _read_representatives(sections, n, names, representatives)
        held = sections.column(np.int64, m, 2) if settings.superseded_late else None
        evidence = sections.texts() if settings.measure in EXPLAINED else []
        failed = parsed_rejections(facts) if len(facts := sections.next()) else {}
        source = Source.of(sections.several(Source.count(settings))) if sections.left else None
        log = sections.column(np.int64, n) if source is not None and settings.window is not None else None
        sections.end()
        if (
            (m and int(document.max()) >= n)
            or (evidence and len(evidence) != m)
            or (source is not None and len(source) != n)
            or max(failed, default=-1) >= n
        ):
            raise _inconsistent()
        if held is None:  # of the oldest match with a known row, which is all that is read
            held = np.column_stack((row, groups[document]))
        matches = Matches(
            document=document, row=row, seq=seq, similarity=similarity, same_text=facts_of_matches & 1 != 0,
            effect=facts_of_matches >> 1,
            held=held, status=status,
            known=_named(known, names), row_of=np.full(n, -1), kind=kind, of=_named(of, names), of_seq=of_seq,
            of_similarity=of_similarity, group=groups,
            more=more, not_compared=not_compared, removed=removed, representatives=possible,
            evidence=np.array(evidence, np.object_), failed=failed,
        )  # fmt: skip
        accepted = column(counts, np.uint8, n).astype(np.bool_) if len(counts) else None
        return cls(shard, offset, predecessor, matches, names, source, accepted, representatives, log, shift)


def _read_replaced(
    sections: Sections, removed: NDArray[np.int64], names: Sequence[bytes], representatives: _Representatives
) -> None:
    """Decode the sections of `Reply._replaced` into `removed`. Adds the places of the representatives."""
    at = _places(sections.next(), len(removed))
    removed[at, 0], removed[at, 4] = sections.column(np.int64, len(at), 2).T
    flags = sections.column(np.uint8, len(at)).astype(np.int64)
    removed[at, 1], removed[at, 5] = flags & 1, flags >> 1
    new = _places(sections.next(), len(removed))
    removed[new, 2] = _named(sections.column(np.uint32, len(new)), names)
    facts = sections.column(np.int64, len(new), 3)
    removed[new, 3] = facts[:, 0]
    representatives.update(zip(facts[:, 0].tolist(), map(tuple, facts[:, 1:].tolist()), strict=True))


def _read_representatives(
    sections: Sections, n: int, names: Sequence[bytes], representatives: _Representatives
) -> NDArray[np.int64]:
    """Decode the sections of `Reply._representatives`, as in `Matches.representatives`. Adds their places."""
    documents = _places(sections.next(), n)
    named = _named(sections.column(np.uint32, len(documents)), names)
    facts = sections.column(np.int64, len(documents), 4)
    representatives.update(zip(facts[:, 1].tolist(), map(tuple, facts[:, 2:].tolist()), strict=True))
    return np.column_stack((documents, facts[:, 0], named, facts[:, 1]))


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

    names: Sequence[Sequence[bytes]]

    def id_of(self, shard: int, row: int) -> bytes:
        return self.names[shard][row]

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
    shard, offset, predecessor, _ = Sections(b"R", VERSION, settings.fingerprint, data).numbers(_HEAD)
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


def _sparse_of(sections: Sections, n: int, kind: Any, nothing: float) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """The places of the documents that have a value, and a value for each of n documents, else `nothing`."""
    places = _places(sections.next(), n)
    out = np.full(n, nothing)
    out[places] = sections.column(kind, len(places))
    return places, out


def _named(numbers: NDArray[Any], names: Sequence[bytes]) -> NDArray[np.int64]:
    """Numbers of names, none of them beyond the last."""
    found = numbers.astype(np.int64)
    if int(found.max(initial=-1)) >= len(names):
        raise _inconsistent()
    return found


def _inconsistent() -> FormatError:
    return FormatError("a reply is damaged: its columns do not fit together")
