"""Frames: signed batches of documents. docs/internals/formats.md has the sections.

For each source partition, a frame has the position that it continues from and the position after it. The sequencer
gives a frame its place in the total order, and decides which of its documents are accepted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream_lsh.documents.columns import NO_RANKS, Columns, Rejection
from stream_lsh.documents.engine_errors import isolating
from stream_lsh.documents.times import NO_TIME
from stream_lsh.errors import FormatError
from stream_lsh.families.components import components_of
from stream_lsh.families.family import Signs
from stream_lsh.index.batch import owners, ranks_of, text_frames
from stream_lsh.index.rows.texts import TextFrame
from stream_lsh.settings.model import Settings
from stream_lsh.wire.envelope import column, pack, undefined, unpack
from stream_lsh.wire.source import Headers, Source, facts_of, parsed_headers

VERSION = 2
PARTITION, FROM, TO, FIRST = range(4)  # columns of segments
DELETE, STAMPED = 1, 2
"""Bits of an action: the id is deleted; the time is that of the record."""
CONTINUES, STARTS, JUMPS = range(3)
"""Values of a segment's column FIRST: it follows another segment; nothing was read before it; what was before it is
lost."""


@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """A signed batch.

    Attributes:
        segments: int64[s, 4], PARTITION, FROM, TO (positions, TO exclusive) and FIRST.
        sizes: uint32[n], 0 = nothing to compare.
        fingerprints: uint64[n, 2].
        signatures: [n, K].
        texts: compressed, a list for each shard.
        deleted: places of the deletions.
        stamped: with updates, places of the documents without a time of their own; such a time does not order versions.
        ranks: float64[n], see `batch.ranks_of`; empty where rows have no rank.

    Band keys are not part of a frame: computing them again (0.2 us) is cheaper than sending 8 bytes a band to each
    shard.
    """

    segments: NDArray[np.int64]
    source: Source
    sizes: NDArray[np.uint32]
    fingerprints: NDArray[np.uint64]
    signatures: NDArray[np.unsignedinteger[Any]]
    texts: tuple[list[TextFrame], ...]
    deleted: NDArray[np.int64]
    stamped: NDArray[np.int64]
    ranks: NDArray[np.float64] = field(default_factory=lambda: NO_RANKS)

    @classmethod
    def of(
        cls, signer: Signs, settings: Settings, columns: Columns, segments: NDArray[np.int64], source: Source
    ) -> Frame:
        """Sign documents. Rejected ones have the size 0; so have those with which signing fails."""

        def sign(begin: int, end: int, found: Mapping[int, Rejection]) -> Frame:
            part = columns.part(begin, end).rejecting(found)
            signed = signer.sign(part.texts, part.ends, part.scope_hashes(signer.key), want_shingles=False)
            sizes = signed.sizes
            sizes[list(part.rejected)] = 0
            texts = text_frames(settings, part, sizes, owners(part.ids, settings.shards))
            deleted = np.array([i for i in part.deleted if i not in part.rejected], np.int64)
            stamped = np.array(part.stamped if settings.updates else [], np.int64)
            where = replace(source, rejected={**source.rejected, **found})
            ranks = ranks_of(settings, part)
            return cls(segments, where, sizes, signed.fingerprints, signed.signatures, texts, deleted, stamped, ranks)

        return isolating(sign, len(columns))

    def encode(self, settings: Settings) -> bytes:
        texts = [(shard, frame) for shard, frames in enumerate(self.texts) for frame in frames]
        heads = [(shard, len(frame.documents), len(frame.payload)) for shard, frame in texts]
        actions = np.zeros(len(self.source) if len(self.deleted) or len(self.stamped) else 0, np.uint8)
        actions[self.deleted] |= DELETE
        actions[self.stamped] |= STAMPED
        return pack(
            b"F", VERSION, settings.fingerprint,
            [
                self.segments, *self.source.sections(settings), self.sizes, self.fingerprints, self.signatures,
                np.array(heads, np.int64),
                b"".join([frame.documents.astype(np.uint16).tobytes() for _, frame in texts]),
                b"".join([frame.ends.tobytes() for _, frame in texts]),
                b"".join([frame.payload for _, frame in texts]), *([self.ranks] if settings.ranks else []), actions,
            ],
        )  # fmt: skip

    @classmethod
    def decode(cls, data: bytes | memoryview, settings: Settings) -> Frame:
        """Read a frame.

        Raises:
            FormatError: it cannot be read; the message has the cause and the remedy.
        """
        sections = _sections(data, settings)
        columns = 1 + Source.count(settings)
        source = Source.of(sections[1:columns])
        sizes, fingerprints, signatures, heads, documents, ends, payloads, *ranks, acts = sections[columns:]
        n, components = len(source), components_of(settings.signing)
        actions = _actions(acts, n)
        return cls(
            column(sections[0], np.int64, width=4), source, column(sizes, np.uint32, n),
            column(fingerprints, np.uint64, n, 2), column(signatures, components.kind, n, components.columns),
            _texts(column(heads, np.int64, width=3), documents, ends, payloads, settings.shards),
            np.flatnonzero(actions & DELETE), np.flatnonzero(actions & STAMPED),
            column(ranks[0], np.float64, n) if ranks else NO_RANKS,
        )  # fmt: skip


def _actions(section: memoryview, n: int) -> NDArray[np.uint8]:
    """The actions of the n documents of a frame, or none."""
    actions = column(section, np.uint8, n if len(section) else 0)
    if int(actions.max(initial=0)) > DELETE | STAMPED:
        raise FormatError("a frame has actions that only newer versions write: upgrade this worker")
    return actions


def _sections(data: bytes | memoryview, settings: Settings) -> list[memoryview]:
    sections = unpack(b"F", VERSION, settings.fingerprint, data)
    if len(sections) != 9 + settings.ranks + Source.count(settings):
        raise FormatError(f"a frame is damaged: it has {len(sections)} parts")
    if not settings.updates:
        undefined(sections[-1], "frame", "actions")
    return sections


def _texts(
    heads: NDArray[np.int64], documents: memoryview, ends: memoryview, payloads: memoryview, shards: int
) -> tuple[list[TextFrame], ...]:
    out: tuple[list[TextFrame], ...] = tuple([] for _ in range(shards))
    rows, bounds = column(documents, np.uint16), column(ends, np.uint32)
    at = place = 0
    for shard, n, size in heads.tolist():
        if not 0 <= shard < shards or at + n > len(rows) or place + size > len(payloads):
            raise FormatError("a frame is damaged: its texts do not fit its shards")
        payload = bytes(payloads[place : place + size])
        out[shard].append(TextFrame(rows[at : at + n].astype(np.int64), bounds[at : at + n], payload))
        at, place = at + n, place + size
    return out


class Places(NamedTuple):
    """What the sequencer reads of a frame.

    Attributes:
        segments: of the frame.
        partitions, offsets: of its n documents.
        times: with a window, int64[n], the event times of documents and deletions; NO_TIME for rejected ones, which do
            not count for stream time.
        signed_at: by the signer's clock, ms since 1970.
    """

    segments: NDArray[np.int64]
    partitions: NDArray[np.int32]
    offsets: NDArray[np.int64]
    times: NDArray[np.int64] | None = None
    signed_at: int = 0

    @classmethod
    def of(cls, data: bytes | memoryview, settings: Settings) -> Places:
        """Read them from a frame.

        Raises:
            FormatError: as `Frame.decode`.
        """
        sections = _sections(data, settings)
        segments, offsets = column(sections[0], np.int64, width=4), column(sections[2], np.int64)
        n, times = len(offsets), None
        if settings.keeps_time:
            sizes = column(sections[1 + Source.count(settings)], np.uint32, n)
            times = column(sections[5], np.int64, n)
            counts = sizes > 0
            counts[np.flatnonzero(_actions(sections[-1], n) & DELETE)] = True
            times = np.where(counts, times, NO_TIME)
        return cls(segments, column(sections[1], np.int32, n), offsets, times, facts_of(sections[6])["signed_at"])


def headers_of(data: bytes | memoryview, settings: Settings) -> dict[int, Headers]:
    """The headers in a frame, by place. Raises as `Frame.decode`."""
    return parsed_headers(facts_of(_sections(data, settings)[6]).get("headers"))
