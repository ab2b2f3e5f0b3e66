"""Restores the documents of a frame from the changes of all shards, for another number of shards. Pure.

The changes have the texts of stored documents. Redelivered and outdated documents were not stored. They keep their
place, so that segments are cut as before, and are rejected with that reason. Documents that were rejected before are
rejected again, as are those with which the engine fails now. Deletions are repeated.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream_lsh.documents.columns import NO_RANKS, Columns, Rejection
from stream_lsh.documents.engine_errors import isolating
from stream_lsh.documents.ranks import LOWEST
from stream_lsh.errors import FormatError
from stream_lsh.families.family import signer_of
from stream_lsh.index.rows import layout
from stream_lsh.index.rows.row_file import Shape, unpacked
from stream_lsh.index.rows.texts import texts_in
from stream_lsh.index.store.rocksdb import ROWS, TEXTS, parts_of
from stream_lsh.judging.verdicts import EMPTY, ID_REUSED
from stream_lsh.settings.model import Settings
from stream_lsh.wire.changes import Change
from stream_lsh.wire.frames import CONTINUES, STARTS
from stream_lsh.wire.replies import Reply, source_of
from stream_lsh.wire.source import MOST_ROWS, ROW_BITS, Source

REDELIVERED = Rejection("redelivered", "the id was there before with the same text, which is not stored twice")
OUTDATED = Rejection("outdated", "it was older than the known version of its id, and is not stored")
_WHY = {layout.REDELIVERED: REDELIVERED, layout.ID_REUSED: ID_REUSED, layout.OUTDATED: OUTDATED}


class Stored(NamedTuple):
    """What is stored of a document: its text, the first word of its fingerprint, its rank."""

    text: bytes = b""
    fingerprint: int = 0
    rank: float = LOWEST


_NOTHING = Stored()


def documents(changes: Sequence[Change], settings: Settings) -> tuple[Columns, Source]:
    """The accepted documents of a frame, and their source positions.

    Args:
        changes: one of each shard.
        settings: those of the old index; verify is exact.

    Raises:
        FormatError: the changes are unreadable, or do not fit together.
    """
    replies = [Reply.decode(change.reply, settings) for change in changes]
    source, accepted = source_of(replies)
    stored: dict[int, Stored] = {}
    for change in changes:
        stored.update(_stored(change, settings))
    why: dict[int, Rejection] = {}
    deletions: set[int] = set()
    for reply in replies:
        failed = reply.matches.failed
        why.update({i: failed[i] for i in failed if reply.matches.status[i] == layout.FAILED})
        for status, reason in _WHY.items():
            why.update(dict.fromkeys(np.flatnonzero(reply.matches.status == status).tolist(), reason))
        deletions.update(np.flatnonzero(reply.matches.status == layout.ID_DELETED).tolist())
    rows = list(range(len(source))) if accepted is None else np.flatnonzero(accepted).tolist()
    texts: list[bytes] = []
    rejected: dict[int, Rejection] = {}
    for place, i in enumerate(rows):
        texts.append(stored.get(i, _NOTHING).text)
        if i not in stored and i not in deletions:
            rejected[place] = source.rejected.get(i, why.get(i, EMPTY))
    source = source.at(rows)
    ends = np.cumsum(np.fromiter(map(len, texts), np.int64, len(texts)))
    deleted = [place for place, i in enumerate(rows) if i in deletions]
    best = settings.keep == "best"
    columns = Columns(
        source.ids, b"".join(texts), ends, source.times, rejected, source.sources, deleted=deleted,
        ranks=np.array([stored.get(i, _NOTHING).rank for i in rows], np.float64) if best else NO_RANKS,
    )  # fmt: skip
    if settings.match_within:
        hashed = np.array([stored.get(i, _NOTHING).fingerprint for i in rows], np.uint64)
        columns = _scoped(columns, hashed, settings, changes[0].key)
    return columns, replace(source, rejected=columns.rejected)


def _scoped(columns: Columns, hashed: NDArray[np.uint64], settings: Settings, key: bytes) -> Columns:
    """The documents with the hashes of the scopes that they were signed with: the difference between their stored
    fingerprints and those of the texts alone, or with `keep_per` of the texts and sources. (The values of
    `match_within` are not stored.) Documents with which signing fails are rejected."""
    signer = signer_of(settings.signing, key)
    if settings.keep_per is not None:
        hashed = hashed ^ columns.source_hashes(signer.key)

    def sign(begin: int, end: int, found: Mapping[int, Rejection]) -> Columns:
        part = columns.part(begin, end).rejecting(found)
        signed = signer.sign(part.texts, part.ends, want_shingles=False)
        return replace(part, scopes=hashed[begin:end] ^ signed.fingerprints[:, 0])

    return isolating(sign, len(columns))


def pieces(columns: Columns, source: Source, most: int) -> Iterator[tuple[Columns, Source]]:
    """The documents of a frame, split into frames of at most `most` documents."""
    for first in range(0, len(source), most):
        end = min(first + most, len(source))
        yield columns.part(first, end), source.at(range(first, end))


def nothing() -> tuple[Columns, Source]:
    """An empty frame, used to move positions forward."""
    none = np.empty(0, np.int64)
    return Columns([], b"", none, none), Source(none.astype(np.int32), none, [], none, 0)


def _stored(change: Change, settings: Settings) -> dict[int, Stored]:
    """What a shard has stored of the documents of a frame, by their places in the frame. Rows that are no documents are
    left out: the deletions and updates create them again.

    Raises:
        FormatError: rows or texts are damaged or missing.
    """
    places: dict[int, tuple[int, int, float]] = {}  # with the fingerprint and the rank, by row
    rank_at = Shape(settings).rank_at
    texts: dict[int, bytes] = {}
    count = 0
    for key, value in change.values.items():
        kind, _, _, first = parts_of(key)
        if kind == ROWS:
            try:
                found = unpacked(value)
            except (struct.error, ValueError) as error:
                raise FormatError(f"the rows of a change of shard {change.shard} are damaged ({error})") from None
            numbers = found[:, layout.SEQ].astype(np.int64)
            count += len(found)
            flags = found[:, layout.FLAGS]
            documents = np.flatnonzero(flags & np.uint64(layout.DELETED | layout.REPRESENTATIVE) == 0)
            ours, hashed = numbers & (MOST_ROWS - 1), found[:, layout.TEXT]
            ranks = found[:, rank_at].copy().view(np.float64) if rank_at else np.full(len(found), LOWEST)
            parts = (each[documents].tolist() for each in (ours, hashed, ranks))
            places.update(zip((first + documents).tolist(), zip(*parts, strict=True), strict=True))
            own = numbers[(flags & np.uint64(layout.REPRESENTATIVE) == 0) | (flags & np.uint64(layout.DELETED) != 0)]
            if (own >> ROW_BITS != change.offset).any():
                raise FormatError(f"a change of shard {change.shard} has rows of another frame than {change.offset}")
        elif kind == TEXTS:
            texts.update(enumerate(texts_in(value), first))
    if not places.keys() <= texts.keys() or count != change.last - change.first:
        raise FormatError(
            f"a change of shard {change.shard} has {count} rows and {len(texts)} texts for "
            f"{change.last - change.first} rows"
        )
    return {place: Stored(texts[row], word, rank) for row, (place, word, rank) in places.items()}


class Segments:
    """The segments of consecutive frames. positions: by source partition, the position after its last document."""

    def __init__(self) -> None:
        self.positions: dict[int, int] = {}

    def of(self, source: Source) -> NDArray[np.int64]:
        """The segments of the next frame, which has these documents."""
        ends = {
            partition: int(source.offsets[source.partitions == partition].max()) + 1
            for partition in np.unique(source.partitions).tolist()
        }
        begins = {p: int(source.offsets[source.partitions == p].min()) for p in ends.keys() - self.positions.keys()}
        return self.up_to(ends, begins)

    def up_to(self, ends: Mapping[int, int], begins: Mapping[int, int]) -> NDArray[np.int64]:
        """Segments up to these positions. begins: the start of each partition that was in no frame yet."""
        lines = []
        for partition, end in sorted(ends.items()):
            known = self.positions.get(partition)
            begin = begins.get(partition, end) if known is None else known
            lines.append((partition, begin, max(begin, end), STARTS if known is None else CONTINUES))
            self.positions[partition] = max(begin, end)
        return np.array(lines, np.int64).reshape(-1, 4)
