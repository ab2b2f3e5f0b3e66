"""Sequenced frames: a frame with its place in the total order, and with its accepted documents.
docs/internals/formats.md has the sections."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stream_lsh.errors import FormatError
from stream_lsh.hashing.siphash import KEY_BYTES
from stream_lsh.settings.model import Settings
from stream_lsh.wire.envelope import NAMES, Sections, column, kind_of, pack, undefined, unpack
from stream_lsh.wire.source import numbers

VERSION = 2
_SEVERAL = b"Q"
_PLACE = struct.Struct(f"<qqqqq{KEY_BYTES}s")  # offset, predecessor, first, appended, shift, key


@dataclass(frozen=True, slots=True, eq=False)
class Sequenced:
    """A frame with its place in the total order.

    Attributes:
        offset: of the frame in the topic `signatures`.
        predecessor: offset of the accepted frame before it, -1 for the first.
        first: number of documents accepted before it.
        key: of the index.
        accepted: bool[n]; the other documents were accepted in an earlier frame.
        frame: as it was signed.
        decisions: about the shard's documents of the block before the last (`wire.decisions`), if a block begins in it.
        log: int64[n], stream times, with a window.
        appended: when the broker appended the frame to `signatures`, ms since 1970. The log has it, so whatever
            sequencer sends the frame, it is the same.
        shift: ms by which stream times are later than they are shown (`StreamTime.shift`).
    """

    offset: int
    predecessor: int
    first: int
    key: bytes
    accepted: NDArray[np.bool_] | None
    frame: memoryview
    decisions: bytes | memoryview = b""
    log: NDArray[np.int64] | None = None
    appended: int = 0
    shift: int = 0

    def encode(self, settings: Settings) -> bytes:
        accepted = b"" if self.accepted is None else self.accepted.astype(np.uint8)
        place = _PLACE.pack(self.offset, self.predecessor, self.first, self.appended, self.shift, self.key)
        log = b"" if self.log is None else self.log
        return pack(b"S", VERSION, settings.fingerprint, [place, self.decisions, log, accepted, self.frame])

    @classmethod
    def decode(cls, data: bytes | memoryview, settings: Settings) -> Sequenced:
        """Read a sequenced frame without decoding the frame in it.

        Raises:
            FormatError: it cannot be read; the message has the cause and the remedy.
        """
        sections = Sections(b"S", VERSION, settings.fingerprint, data)
        offset, predecessor, first, appended, shift, key = sections.numbers(_PLACE)
        decisions, times, mask, frame = sections.several(4)
        sections.end()
        if not settings.late:
            undefined(decisions, "sequenced frame", "decisions")
        if settings.window is None:
            undefined(times, "sequenced frame", "stream times")
        log = None if settings.window is None else column(times, np.int64)
        accepted = column(mask, np.uint8).astype(np.bool_) if len(mask) else None
        return cls(offset, predecessor, first, key, accepted, frame, decisions, log, appended, shift)

    def numbers(self, n: int) -> NDArray[np.int64]:
        """The numbers (seq) of the frame's n documents."""
        return numbers(self.offset, n)

    def places(self, n: int) -> NDArray[np.int64]:
        """The number of documents accepted before each of the frame's n documents. Segments are cut by it."""
        return places_in_log(self.first, self.accepted, n)


def join_frames(frames: Sequence[bytes], settings: Settings) -> bytes:
    """One record of encoded sequenced frames, in their order. A single frame is a record by itself."""
    return frames[0] if len(frames) == 1 else pack(_SEVERAL, VERSION, settings.fingerprint, frames)


def split_frames(data: bytes | memoryview, settings: Settings) -> Sequence[bytes | memoryview]:
    """The encoded sequenced frames of a record, in their order.

    Raises:
        FormatError: it cannot be read; the message has the cause and the remedy. A record of a single frame is not
            looked at.
    """
    if kind_of(data) != _SEVERAL:
        return [data]
    found = unpack(_SEVERAL, VERSION, settings.fingerprint, data)
    if not found:
        raise FormatError(f"a {NAMES[_SEVERAL]} is damaged: it has none; delete and rebuild it")
    return found


def frame_of(data: bytes | memoryview, settings: Settings) -> tuple[int, int]:
    """Offset and predecessor of a sequenced frame, without reading the rest.

    Raises:
        FormatError: it cannot be read.
    """
    offset, predecessor, *_ = Sections(b"S", VERSION, settings.fingerprint, data).numbers(_PLACE)
    return offset, predecessor


def places_in_log(first: int, accepted: NDArray[np.bool_] | None, n: int) -> NDArray[np.int64]:
    """The number of documents accepted before each of a frame's n documents, after `first` earlier ones. A document
    that is not accepted has the place of the last accepted one before it."""
    before: NDArray[np.int64] = np.maximum(np.cumsum(np.ones(n, np.int64) if accepted is None else accepted) - 1, 0)
    return first + before
