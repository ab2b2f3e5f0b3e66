"""Frames: what the signers make of a micro-batch, and what the sequencer makes of a frame (docs/formats.md).

A frame says for each source partition in it from which position it continues and what the position after it is; the
sequencer gives it its place in the total order, and says which of its documents are accepted.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import orjson
from numpy.typing import NDArray

from stream_lsh.documents.columns import Rejection
from stream_lsh.errors import FormatError
from stream_lsh.families.bands import band_keys
from stream_lsh.families.signer import Signer
from stream_lsh.families.tuning import component_bytes
from stream_lsh.index.batch import Sets, SignedBatch, owners, shingle
from stream_lsh.index.buckets import all_keys
from stream_lsh.index.layout import Documents
from stream_lsh.index.texts import TextFrame, decompress
from stream_lsh.settings import Settings
from stream_lsh.wire.envelope import Section, column, join, pack, split, unpack

VERSION = 1
ROW_BITS = 12
MOST_ROWS = 1 << ROW_BITS
"""Documents of a frame: a document's number is the frame's offset << ROW_BITS | its row."""
PARTITION, FROM, TO, FIRST = range(4)  # columns of segments; FIRST: see kafka/sequence/order.py

Headers = Mapping[int, Sequence[tuple[str, bytes]]]


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """Where the n documents of a frame came from, in columns, and what their verdicts have to say besides the matches.

    partitions int32[n], offsets int64[n]: places in the documents topic. ids: JSON text. times int64[n]: event times
    in ms, or NO_TIME. signed_at: ms since 1970. rejected: by row, refused in parsing. headers: by row, those that are
    passed through.
    """

    partitions: NDArray[np.int32]
    offsets: NDArray[np.int64]
    ids: list[bytes]
    times: NDArray[np.int64]
    signed_at: int
    rejected: dict[int, Rejection] = field(default_factory=dict)
    headers: dict[int, list[tuple[str, bytes]]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.ids)

    def sections(self) -> list[Section]:
        """The columns, to be packed; `COUNT` of them."""
        facts = {
            "signed_at": self.signed_at,
            "rejected": {str(i): [r.reason, r.detail, r.size] for i, r in self.rejected.items()},
            "headers": {
                str(i): [[name, value.decode("latin-1")] for name, value in found] for i, found in self.headers.items()
            },
        }
        return [
            np.ascontiguousarray(self.partitions, np.int32), np.ascontiguousarray(self.offsets, np.int64),
            *join(self.ids), np.ascontiguousarray(self.times, np.int64), orjson.dumps(facts),
        ]  # fmt: skip

    COUNT = 6

    @classmethod
    def of(cls, sections: Sequence[memoryview]) -> Source:
        """What `sections` gave.

        Raises:
            FormatError: if the columns do not fit together.
        """
        partitions, offsets, ends, ids, times, facts = sections
        names = split(ends, ids)
        n = len(names)
        try:
            found = orjson.loads(facts)
            return cls(
                column(partitions, np.int32, n), column(offsets, np.int64, n), names, column(times, np.int64, n),
                found["signed_at"],
                {int(i): Rejection(*why) for i, why in found["rejected"].items()},
                {int(i): [(k, v.encode("latin-1")) for k, v in pairs] for i, pairs in found["headers"].items()},
            )  # fmt: skip
        except (orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
            raise FormatError(f"a frame is damaged: its facts cannot be read ({error})") from None


@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """A micro-batch after signing.

    segments int64[s, 4]: PARTITION, FROM, TO (positions, TO exclusive) and FIRST. sizes uint32[n]: 0 = nothing to
    compare. fingerprints uint64[n, 2], signatures [n, K]. texts: compressed, one list a shard.
    Band keys are not carried: to compute them again (0.2 us) is cheaper than to send 8 bytes a band to every shard.
    """

    segments: NDArray[np.int64]
    source: Source
    sizes: NDArray[np.uint32]
    fingerprints: NDArray[np.uint64]
    signatures: NDArray[np.uint16] | NDArray[np.uint32]
    texts: tuple[list[TextFrame], ...]

    @classmethod
    def of(cls, batch: SignedBatch, segments: NDArray[np.int64], source: Source) -> Frame:
        """The frame of a signed batch; rejected documents have no size."""
        documents = batch.documents
        sizes = np.where(documents.valid, documents.sizes, 0).astype(np.uint32)
        return cls(segments, source, sizes, documents.texts, documents.signatures, batch.frames)

    def encode(self, settings: Settings) -> bytes:
        texts = [(shard, frame) for shard, frames in enumerate(self.texts) for frame in frames]
        heads = [(shard, len(frame.documents), len(frame.payload)) for shard, frame in texts]
        return pack(
            b"F", VERSION, settings.fingerprint,
            [
                self.segments, *self.source.sections(), self.sizes, self.fingerprints, self.signatures,
                np.array(heads, np.int64),
                b"".join([frame.documents.astype(np.uint16).tobytes() for _, frame in texts]),
                b"".join([frame.ends.tobytes() for _, frame in texts]),
                b"".join([frame.payload for _, frame in texts]),
            ],
        )  # fmt: skip

    @classmethod
    def decode(cls, data: bytes | memoryview, settings: Settings) -> Frame:
        """Read a frame.

        Raises:
            FormatError: naming what is wrong, and the remedy.
        """
        sections = _sections(data, settings)
        source = Source.of(sections[1 : 1 + Source.COUNT])
        sizes, fingerprints, signatures, heads, documents, ends, payloads = sections[1 + Source.COUNT :]
        n, k = len(source), settings.signing.signature_size
        kind = np.dtype(f"u{component_bytes(settings.signing.rows)}")
        return cls(
            column(sections[0], np.int64, width=4), source, column(sizes, np.uint32, n),
            column(fingerprints, np.uint64, n, 2), column(signatures, kind, n, k),
            _texts(column(heads, np.int64, width=3), documents, ends, payloads, settings.shards),
        )  # fmt: skip


def _sections(data: bytes | memoryview, settings: Settings) -> list[memoryview]:
    sections = unpack(b"F", VERSION, settings.fingerprint, data)
    if len(sections) != 8 + Source.COUNT:
        raise FormatError(f"a frame is damaged: it has {len(sections)} parts")
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


def places(
    data: bytes | memoryview, settings: Settings
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int64]]:
    """Of a frame, only its segments, and partitions and offsets of its documents: all that the sequencer looks at.

    Raises:
        FormatError: as `Frame.decode`.
    """
    sections = _sections(data, settings)
    offsets = column(sections[2], np.int64)
    return column(sections[0], np.int64, width=4), column(sections[1], np.int32, len(offsets)), offsets


_PLACE = struct.Struct("<qq")  # offset, predecessor


@dataclass(frozen=True, slots=True, eq=False)
class Sequenced:
    """A frame with its place in the total order.

    offset: of the frame in the signatures topic. predecessor: offset of the accepted frame before it, -1 for the first.
    accepted bool[n]: which documents count; the others were accepted in an earlier frame. frame: as it was signed.
    """

    offset: int
    predecessor: int
    accepted: NDArray[np.bool_] | None
    frame: memoryview

    def encode(self, settings: Settings) -> bytes:
        accepted = b"" if self.accepted is None else self.accepted.astype(np.uint8)
        place = _PLACE.pack(self.offset, self.predecessor)
        return pack(b"S", VERSION, settings.fingerprint, [place, accepted, self.frame])

    @classmethod
    def decode(cls, data: bytes | memoryview, settings: Settings) -> Sequenced:
        """Read a sequenced frame; its frame is not looked into.

        Raises:
            FormatError: naming what is wrong, and the remedy.
        """
        sections = unpack(b"S", VERSION, settings.fingerprint, data)
        if len(sections) != 3 or len(sections[0]) != _PLACE.size:
            raise FormatError("a sequenced frame is damaged: it has no place")
        offset, predecessor = _PLACE.unpack(sections[0])
        accepted = column(sections[1], np.uint8).astype(np.bool_) if len(sections[1]) else None
        return cls(offset, predecessor, accepted, sections[2])

    def numbers(self, n: int) -> NDArray[np.int64]:
        """The numbers (seq) of the frame's n documents."""
        return numbers(self.offset, n)


def numbers(offset: int, n: int) -> NDArray[np.int64]:
    """The numbers (seq) of the n documents of the frame at an offset."""
    return (offset << ROW_BITS) + np.arange(n, dtype=np.int64)


class TextShingles:
    """Shingle sets of a frame's documents, made from its compressed texts when they are asked for."""

    def __init__(self, frame: Frame, signer: Signer) -> None:
        self._frame = frame
        self._signer = signer
        n = len(frame.source)
        self._have = np.zeros(n, np.bool_)
        self._sets: Sets = np.empty(0, np.uint64), np.zeros(n + 1, np.int64)

    def of(self, documents: NDArray[np.int64]) -> Sets:
        missing = documents[~self._have[documents]]
        if len(missing):
            self._have[missing] = True
            texts: list[bytes] = [b""] * len(self._have)
            for frames in self._frame.texts:
                for frame in frames:
                    if self._have[frame.documents].any():
                        for i, text in zip(frame.documents.tolist(), decompress(frame), strict=True):
                            if self._have[i]:
                                texts[i] = text
            ends = np.cumsum([len(text) for text in texts], dtype=np.int64)
            self._sets = shingle(self._signer, b"".join(texts), ends)
        return self._sets

    def known(self) -> Sets:
        return self._sets


def signed_batch(
    frame: Frame, accepted: NDArray[np.bool_] | None, settings: Settings, signer: Signer, offset: int
) -> SignedBatch:
    """The batch that a frame carries, ready for a shard; documents that are not accepted are not valid.

    Raises:
        FormatError: if columns do not fit together.
    """
    n = len(frame.source)
    if accepted is not None and len(accepted) != n:
        raise FormatError(f"a sequenced frame is damaged: it accepts {len(accepted)} documents of {n}")
    # Copies, because numba compiles everything again for read-only arrays.
    signatures, fingerprints = frame.signatures.copy(), frame.fingerprints.copy()
    valid = frame.sizes > 0
    if accepted is not None:
        valid &= accepted
    ids, owner = owners(frame.source.ids, settings.shards)
    documents = Documents(
        valid, np.zeros(n, np.bool_), ids, fingerprints,
        all_keys(band_keys(signatures, settings.signing.bands, settings.signing.rows), ids, fingerprints), signatures,
        np.array(frame.sizes), numbers(offset, n), np.array(frame.source.times),
    )  # fmt: skip
    return SignedBatch(frame.source.ids, owner, documents, frame.texts, TextShingles(frame, signer))
