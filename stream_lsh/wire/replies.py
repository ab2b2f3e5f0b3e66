"""Replies: what one shard answers to a frame (docs/formats.md)."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stream_lsh.errors import FormatError
from stream_lsh.index.shard import Matches
from stream_lsh.settings import Settings
from stream_lsh.wire.envelope import column, join, pack, split, unpack
from stream_lsh.wire.frames import Source

VERSION = 1
_HEAD = struct.Struct("<qqq")  # shard, offset, predecessor
_COLUMNS = 12


@dataclass(frozen=True, slots=True, eq=False)
class Reply:
    """A shard's matches for a frame.

    offset, predecessor: of the frame, as in `Sequenced`. matches: `row` counts the matches, so that the id of match m
    is older_ids[m]; `row_of` says nothing. source, accepted: the frame's documents, from the shard whose turn it is
    (`carries`), else None.
    """

    shard: int
    offset: int
    predecessor: int
    matches: Matches
    older_ids: list[bytes]
    source: Source | None
    accepted: NDArray[np.bool_] | None

    def encode(self, settings: Settings) -> bytes:
        m = self.matches
        source = [] if self.source is None else self.source.sections()
        accepted = b"" if self.accepted is None else self.accepted.astype(np.uint8)
        return pack(
            b"R", VERSION, settings.fingerprint,
            [
                _HEAD.pack(self.shard, self.offset, self.predecessor),
                m.document.astype(np.uint16), m.seq, m.similarity, m.same_text.astype(np.uint8), *join(self.older_ids),
                m.status, *_sparse(m.more), accepted, np.array([len(source)], np.uint8), *source,
            ],
        )  # fmt: skip

    @classmethod
    def decode(cls, data: bytes | memoryview, settings: Settings) -> Reply:
        """Read a reply.

        Raises:
            FormatError: naming what is wrong, and the remedy.
        """
        sections = unpack(b"R", VERSION, settings.fingerprint, data)
        if len(sections) not in (_COLUMNS, _COLUMNS + Source.COUNT) or len(sections[0]) != _HEAD.size:
            raise FormatError(f"a reply is damaged: it has {len(sections)} parts")
        shard, offset, predecessor = _HEAD.unpack(sections[0])
        document = column(sections[1], np.uint16).astype(np.int64)
        m = len(document)
        status = column(sections[7], np.uint8)
        n = len(status)
        matches = Matches(
            document, np.arange(m), column(sections[2], np.int64, m), column(sections[3], np.float64, m),
            column(sections[4], np.uint8, m).astype(np.bool_), status, np.full(n, -1, np.int64),
            _dense(sections[8], sections[9], n),
        )  # fmt: skip
        source = Source.of(sections[_COLUMNS:]) if len(sections) > _COLUMNS else None
        accepted = column(sections[10], np.uint8, n).astype(np.bool_) if len(sections[10]) else None
        older = split(sections[5], sections[6])
        if len(older) != m or (m and int(document.max()) >= n) or (source is not None and len(source) != n):
            raise FormatError("a reply is damaged: its columns do not fit together")
        return cls(shard, offset, predecessor, matches, older, source, accepted)


def head(data: bytes | memoryview, settings: Settings) -> tuple[int, int, int]:
    """Of a reply, only its shard, offset and predecessor.

    Raises:
        FormatError: as `Reply.decode`.
    """
    sections = unpack(b"R", VERSION, settings.fingerprint, data)
    if len(sections[0]) != _HEAD.size:
        raise FormatError("a reply is damaged: it has no place")
    shard, offset, predecessor = _HEAD.unpack(sections[0])
    return shard, offset, predecessor


def carries(shard: int, offset: int, shards: int) -> bool:
    """Whether it is this shard's turn to send the documents' columns along with its reply."""
    return offset % shards == shard


def _sparse(values: NDArray[np.int64]) -> tuple[NDArray[np.uint16], NDArray[np.int64]]:
    at = np.flatnonzero(values)
    return at.astype(np.uint16), values[at]


def _dense(at: memoryview, values: memoryview, n: int) -> NDArray[np.int64]:
    out = np.zeros(n, np.int64)
    places = column(at, np.uint16)
    if len(places) and int(places.max()) >= n:
        raise FormatError("a reply is damaged: its columns do not fit together")
    out[places] = column(values, np.int64, len(places))
    return out
