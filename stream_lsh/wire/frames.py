"""Frames: what the signers make of a micro-batch, and what the sequencer makes of a frame (docs/formats.md).

A frame says for each source partition in it from which position it continues and what the position after it is; the
sequencer gives it its place in the total order, and says which of its documents are accepted.

Sections of a frame ("F", version 2) of n documents, little endian:
 0 segments int64[s, 4]: source partition, from, to, first
 1 source partitions int32[n]; 2 offsets int64[n]; 3 ends of the ids uint32[n]; 4 ids; 5 event times int64[n];
 6 JSON with signed_at, rejected, headers; with a `source_field` two more here: ends of the sources uint32[n]; sources
 7 sizes uint32[n]; 8 fingerprints uint64[n, 2]; 9 signatures [n, K] of one byte a component, or more with few rows
10 texts: int64[t, 3], shard, documents and bytes of each compressed part; 11 places of the documents in the frame
   uint16; 12 ends of their texts uint32; 13 the compressed parts
14 actions uint8[n], if ids are updated: 0 it is a document, 1 its id is deleted; and 2 more if its time is not its own,
   but its record's; empty if all are 0

Sections of a sequenced frame ("S", version 2):
 0 offset int64, predecessor int64, first int64, the index's key (16 bytes)
 1 decisions, if several shards keep and a block begins in it: those on its shard's documents (`decisions`), else
   empty; 2 log times int64[n], if there is a window, else empty; 3 accepted uint8[n], or empty: all; 4 the frame
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
import orjson
from numpy.typing import NDArray

from stream_lsh.documents.columns import Columns, Rejection
from stream_lsh.documents.times import NO_TIME
from stream_lsh.errors import FormatError
from stream_lsh.families.signer import Signer
from stream_lsh.families.tuning import component_bytes
from stream_lsh.hashing.siphash import KEY_BYTES
from stream_lsh.index.batch import Sets, SignedBatch, batch_of, owners, text_frames
from stream_lsh.index.keys import Hashes, ends_of
from stream_lsh.index.layout import DELETION, SEQ
from stream_lsh.index.texts import TextFrame, decompress
from stream_lsh.settings import Settings
from stream_lsh.wire.envelope import Section, column, join, pack, split, undefined, unpack

VERSION = 2
ROW_BITS = 12
MOST_ROWS = 1 << ROW_BITS
"""Documents of a frame: a document's number is the frame's offset << ROW_BITS | its row."""
PARTITION, FROM, TO, FIRST = range(4)  # columns of segments
DELETE, STAMPED = 1, 2
"""Bits of an action: the id is deleted; the time is the record's."""
CONTINUES, STARTS, JUMPS = range(3)
"""Values of a segment's column FIRST: it follows another, nothing was read before it, what was before it is lost."""

Headers = list[tuple[str, bytes]]


class Record(Protocol):
    """What is used of a record of the documents topic. timestamp: ms since 1970, -1 if the record has none."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def timestamp(self) -> int: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> Sequence[tuple[str, bytes | None]]: ...


def header_bytes(headers: Iterable[tuple[str, bytes | None]]) -> int:
    """Bytes of a record's headers."""
    return sum([len(name) + len(value or b"") for name, value in headers])


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """Where the n documents of a frame came from, in columns, and what their verdicts have to say besides the matches.

    partitions int32[n], offsets int64[n]: places in the documents topic. ids: JSON text. times int64[n]: event times
    in ms, or NO_TIME. signed_at: ms since 1970. rejected: by row, refused in parsing. headers: by row, those that are
    passed through. sources: who the documents are from, as JSON text, b"" for nobody; empty without a `source_field`.
    """

    partitions: NDArray[np.int32]
    offsets: NDArray[np.int64]
    ids: list[bytes]
    times: NDArray[np.int64]
    signed_at: int
    rejected: dict[int, Rejection] = field(default_factory=dict)
    headers: dict[int, Headers] = field(default_factory=dict)
    sources: list[bytes] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.ids)

    @staticmethod
    def count(settings: Settings) -> int:
        """How many sections the columns have."""
        return 8 if settings.source_field is not None else 6

    def sections(self, settings: Settings) -> list[Section]:
        """The columns, to be packed; `count` of them."""
        named = join(self.sources) if settings.source_field is not None else ()
        facts = {
            "signed_at": self.signed_at,
            "rejected": {str(i): [r.reason, r.detail, r.size] for i, r in self.rejected.items()},
            "headers": {
                str(i): [[name, value.decode("latin-1")] for name, value in found] for i, found in self.headers.items()
            },
        }
        return [
            np.ascontiguousarray(self.partitions, np.int32), np.ascontiguousarray(self.offsets, np.int64),
            *join(self.ids), np.ascontiguousarray(self.times, np.int64), orjson.dumps(facts), *named,
        ]  # fmt: skip

    @classmethod
    def of(cls, sections: Sequence[memoryview]) -> Source:
        """What `sections` gave.

        Raises:
            FormatError: if the columns do not fit together.
        """
        partitions, offsets, ends, ids, times, facts, *named = sections
        names, sources = split(ends, ids), split(*named) if named else []
        n = len(names)
        if named and len(sources) != n:
            raise FormatError(f"a frame is damaged: it has {len(sources)} sources of {n} documents")
        found = _facts(facts)
        try:
            return cls(
                column(partitions, np.int32, n), column(offsets, np.int64, n), names, column(times, np.int64, n),
                found["signed_at"],
                {int(i): Rejection(*why) for i, why in found["rejected"].items()},
                {int(i): [(k, v.encode("latin-1")) for k, v in pairs] for i, pairs in found["headers"].items()},
                sources,
            )  # fmt: skip
        except (KeyError, TypeError, ValueError) as error:
            raise _unreadable(error) from None


def _facts(data: memoryview) -> dict[str, Any]:
    try:
        found: dict[str, Any] = orjson.loads(data)
        if not isinstance(found["signed_at"], int):
            raise TypeError("signed_at is no number")
        return found
    except (KeyError, TypeError, ValueError) as error:
        raise _unreadable(error) from None


def _unreadable(error: Exception) -> FormatError:
    return FormatError(f"a frame is damaged: its facts cannot be read ({error})")


@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """A micro-batch after signing.

    segments int64[s, 4]: PARTITION, FROM, TO (positions, TO exclusive) and FIRST. sizes uint32[n]: 0 = nothing to
    compare. fingerprints uint64[n, 2], signatures [n, K]. texts: compressed, one list a shard. deleted: the rows of
    those that only say that their id is deleted. stamped: where ids are updated, those whose time is not their own and
    says nothing of versions.
    Band keys are not carried: to compute them again (0.2 us) is cheaper than to send 8 bytes a band to every shard.
    """

    segments: NDArray[np.int64]
    source: Source
    sizes: NDArray[np.uint32]
    fingerprints: NDArray[np.uint64]
    signatures: NDArray[np.unsignedinteger[Any]]
    texts: tuple[list[TextFrame], ...]
    deleted: NDArray[np.int64]
    stamped: NDArray[np.int64]

    @classmethod
    def of(
        cls, signer: Signer, settings: Settings, columns: Columns, segments: NDArray[np.int64], source: Source
    ) -> Frame:
        """The frame of documents, signed; rejected ones have no size."""
        signed = signer.sign(columns.texts, columns.ends, columns.salts, want_shingles=False)
        sizes = signed.sizes
        sizes[list(columns.rejected)] = 0
        texts = text_frames(settings, columns, sizes, owners(columns.ids, settings.shards))
        deleted = np.array([i for i in columns.deleted if i not in columns.rejected], np.int64)
        stamped = np.array(columns.stamped if settings.updates else [], np.int64)
        return cls(segments, source, sizes, signed.fingerprints, signed.signatures, texts, deleted, stamped)

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
                b"".join([frame.payload for _, frame in texts]), actions,
            ],
        )  # fmt: skip

    @classmethod
    def decode(cls, data: bytes | memoryview, settings: Settings) -> Frame:
        """Read a frame.

        Raises:
            FormatError: naming what is wrong, and the remedy.
        """
        sections = _sections(data, settings)
        columns = 1 + Source.count(settings)
        source = Source.of(sections[1:columns])
        sizes, fingerprints, signatures, heads, documents, ends, payloads, acts = sections[columns:]
        n, k = len(source), settings.signing.signature_size
        kind = np.dtype(f"u{component_bytes(settings.signing.rows)}")
        actions = _actions(acts, n)
        return cls(
            column(sections[0], np.int64, width=4), source, column(sizes, np.uint32, n),
            column(fingerprints, np.uint64, n, 2), column(signatures, kind, n, k),
            _texts(column(heads, np.int64, width=3), documents, ends, payloads, settings.shards),
            np.flatnonzero(actions & DELETE), np.flatnonzero(actions & STAMPED),
        )  # fmt: skip


def _actions(section: memoryview, n: int) -> NDArray[np.uint8]:
    """Those of the n documents of a frame, or none."""
    actions = column(section, np.uint8, n if len(section) else 0)
    if int(actions.max(initial=0)) > DELETE | STAMPED:
        raise FormatError("a frame has actions that only newer versions write: upgrade this worker")
    return actions


def _sections(data: bytes | memoryview, settings: Settings) -> list[memoryview]:
    sections = unpack(b"F", VERSION, settings.fingerprint, data)
    if len(sections) != 9 + Source.count(settings):
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
    """What the sequencer looks at of a frame: its segments, and of its n documents partitions and offsets; times: where
    there is a window, the event times int64[n] that count for log time, of documents and of deletions; NO_TIME of what
    is rejected."""

    segments: NDArray[np.int64]
    partitions: NDArray[np.int32]
    offsets: NDArray[np.int64]
    times: NDArray[np.int64] | None = None

    @classmethod
    def of(cls, data: bytes | memoryview, settings: Settings) -> Places:
        """Those of a frame.

        Raises:
            FormatError: as `Frame.decode`.
        """
        sections = _sections(data, settings)
        segments, offsets = column(sections[0], np.int64, width=4), column(sections[2], np.int64)
        n, times = len(offsets), None
        if settings.window is not None:
            sizes = column(sections[1 + Source.count(settings)], np.uint32, n)
            times = column(sections[5], np.int64, n)
            if settings.max_ahead_ms is not None:
                times = np.minimum(times, _facts(sections[6])["signed_at"] + settings.max_ahead_ms)
            counts = sizes > 0
            counts[np.flatnonzero(_actions(sections[-1], n) & DELETE)] = True
            times = np.where(counts, times, NO_TIME)
        return cls(segments, column(sections[1], np.int32, n), offsets, times)


_PLACE = struct.Struct(f"<qqq{KEY_BYTES}s")  # offset, predecessor, first, key


@dataclass(frozen=True, slots=True, eq=False)
class Sequenced:
    """A frame with its place in the total order.

    offset: of the frame in the signatures topic. predecessor: offset of the accepted frame before it, -1 for the first.
    first: how many documents were accepted before it. key: of the index. accepted bool[n]: which documents count; the
    others were accepted in an earlier frame. frame: as it was signed. decisions: what was dropped of the shard's
    documents of the block before the last (`wire.decisions`), if a block begins in it. log: log times int64[n], if
    there is a window.
    """

    offset: int
    predecessor: int
    first: int
    key: bytes
    accepted: NDArray[np.bool_] | None
    frame: memoryview
    decisions: bytes | memoryview = b""
    log: NDArray[np.int64] | None = None

    def encode(self, settings: Settings) -> bytes:
        accepted = b"" if self.accepted is None else self.accepted.astype(np.uint8)
        place = _PLACE.pack(self.offset, self.predecessor, self.first, self.key)
        log = b"" if self.log is None else self.log
        return pack(b"S", VERSION, settings.fingerprint, [place, self.decisions, log, accepted, self.frame])

    @classmethod
    def decode(cls, data: bytes | memoryview, settings: Settings) -> Sequenced:
        """Read a sequenced frame; its frame is not looked into.

        Raises:
            FormatError: naming what is wrong, and the remedy.
        """
        sections = unpack(b"S", VERSION, settings.fingerprint, data)
        if len(sections) != 5 or len(sections[0]) != _PLACE.size:
            raise FormatError("a sequenced frame is damaged: it has no place")
        if not settings.late:
            undefined(sections[1], "sequenced frame", "decisions")
        log = None
        if settings.window is None:
            undefined(sections[2], "sequenced frame", "log times")
        else:
            log = column(sections[2], np.int64)
        offset, predecessor, first, key = _PLACE.unpack(sections[0])
        accepted = column(sections[3], np.uint8).astype(np.bool_) if len(sections[3]) else None
        return cls(offset, predecessor, first, key, accepted, sections[4], sections[1], log)

    def numbers(self, n: int) -> NDArray[np.int64]:
        """The numbers (seq) of the frame's n documents."""
        return numbers(self.offset, n)

    def places(self, n: int) -> NDArray[np.int64]:
        """How many documents were accepted before each of the frame's n; generations begin by that."""
        return places_in_log(self.first, self.accepted, n)


def places_in_log(first: int, accepted: NDArray[np.bool_] | None, n: int) -> NDArray[np.int64]:
    """How many documents were accepted before each of a frame's n, of which those are accepted, after `first` others.
    One that is not accepted has the place of the last one before it that is."""
    before: NDArray[np.int64] = np.maximum(np.cumsum(np.ones(n, np.int64) if accepted is None else accepted) - 1, 0)
    return first + before


def numbers(offset: int, n: int) -> NDArray[np.int64]:
    """The numbers (seq) of the n documents of the frame at an offset."""
    return (offset << ROW_BITS) + np.arange(n, dtype=np.int64)


class TextShingles:
    """Shingle sets of a frame's documents, made from its compressed texts when they are asked for; valid: bool[n]."""

    def __init__(self, frame: Frame, valid: NDArray[np.bool_], signer: Signer) -> None:
        n = len(valid)
        self._signer = signer
        self._valid = valid
        self._sets = Sets(np.empty(0, np.uint64), np.zeros(n + 1, np.int64), np.zeros(n, np.bool_))
        self._ahead = 1  # documents shingled at once: in a dense feed nearly all of them will be asked for
        self._part = np.full(n, -1)  # the compressed part that has a document's text
        self._parts = [part for parts in frame.texts for part in parts]
        for number, part in enumerate(self._parts):
            if int(part.documents.max(initial=0)) >= n:
                raise FormatError("a frame is damaged: it has texts of documents that are not in it")
            self._part[part.documents] = number
        if len(self._parts) and bool((self._part[valid] < 0).any()):
            raise FormatError("a frame is damaged: texts of its documents are missing")
        self._texts: dict[int, bytes] = {}

    def known(self) -> Sets:
        return self._sets

    def with_document(self, i: int) -> Sets:
        missing = i + np.flatnonzero(self._valid[i:] & ~self._sets.have[i:])[: self._ahead]
        self._ahead *= 2
        texts = [self._text(k) for k in missing.tolist()]
        self._add(missing, *self._signer.shingle(b"".join(texts), ends_of(texts)))
        return self._sets

    def _text(self, i: int) -> bytes:
        if i not in self._texts:
            part = self._parts[self._part[i]]
            self._texts.update(zip(part.documents.tolist(), decompress(part), strict=True))
        return self._texts.pop(i)

    def _add(self, documents: NDArray[np.int64], shingles: NDArray[np.uint64], offsets: NDArray[np.int64]) -> None:
        """Have the sets of more documents, offsets[k] to offsets[k + 1] of the k-th, ascending."""
        old, sizes, new = self._sets, np.diff(self._sets.offsets), np.zeros(len(self._valid), np.bool_)
        sizes[documents], new[documents] = np.diff(offsets), True
        mine = np.repeat(new, sizes)
        both = np.empty(len(mine), np.uint64)
        both[mine], both[~mine] = shingles, old.shingles
        self._sets = Sets(both, np.concatenate(([0], np.cumsum(sizes))), old.have | new)


def signed_batch(frame: Frame, sequenced: Sequenced, settings: Settings, hashes: Hashes, signer: Signer) -> SignedBatch:
    """The batch that a frame carries, ready for a shard; documents that are not accepted are not valid.

    hashes, signer: of the sequenced frame's key.

    Raises:
        FormatError: if columns do not fit together.
    """
    n, accepted, source = len(frame.source), sequenced.accepted, frame.source
    if accepted is not None and len(accepted) != n:
        raise FormatError(f"a sequenced frame is damaged: it accepts {len(accepted)} documents of {n}")
    # Copies, because numba compiles everything again for read-only arrays.
    sizes = frame.sizes.copy() if accepted is None else np.where(accepted, frame.sizes, np.uint32(0))
    times = source.times.copy()
    if settings.updates and settings.time_field is None:  # the place in the log says which version is the newer one
        times[:] = NO_TIME
    times[frame.stamped] = NO_TIME
    documents = batch_of(hashes, source.ids, frame.signatures.copy(), frame.fingerprints.copy(), sizes, times)
    documents.words[:, SEQ] = sequenced.numbers(n)
    deleted = frame.deleted if accepted is None else frame.deleted[accepted[frame.deleted]]
    documents.what[deleted] = DELETION
    if sequenced.log is not None:
        if len(sequenced.log) != n:
            raise FormatError(
                f"a sequenced frame is damaged: it has log times of {len(sequenced.log)} documents of {n}"
            )
        documents.log[:] = sequenced.log
    owner = owners(source.ids, settings.shards)
    return SignedBatch(source.ids, owner, documents, frame.texts, TextShingles(frame, sizes > 0, signer))
