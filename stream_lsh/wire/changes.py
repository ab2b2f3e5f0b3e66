"""Changes: what a frame has changed in a shard, as one record of the changelog (docs/formats.md)."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass

from stream_lsh.errors import FormatError
from stream_lsh.settings import Settings
from stream_lsh.wire.envelope import join, pack, split, unpack

VERSION = 1
_HEAD = struct.Struct("<qqqqq")  # shard, offset, predecessor, rows before and after


@dataclass(frozen=True, slots=True, eq=False)
class Change:
    """What a shard stored for a frame.

    offset, predecessor: of the frame, as in `Sequenced`. first, last: its rows before and after. values: by key of the
    store: rows, ids and texts. reply: the shard's answer, because it cannot be computed again once later frames are
    stored.
    """

    shard: int
    offset: int
    predecessor: int
    first: int
    last: int
    values: Mapping[bytes, bytes]
    reply: bytes

    def encode(self, settings: Settings) -> bytes:
        head = _HEAD.pack(self.shard, self.offset, self.predecessor, self.first, self.last)
        return pack(
            b"C", VERSION, settings.fingerprint,
            [head, *join(list(self.values)), *join(list(self.values.values())), self.reply],
        )  # fmt: skip

    @classmethod
    def decode(cls, data: bytes | memoryview, settings: Settings) -> Change:
        """Read a change.

        Raises:
            FormatError: naming what is wrong, and the remedy.
        """
        sections = unpack(b"C", VERSION, settings.fingerprint, data)
        if len(sections) != 6 or len(sections[0]) != _HEAD.size:
            raise FormatError(f"a change is damaged: it has {len(sections)} parts")
        keys, values = split(sections[1], sections[2]), split(sections[3], sections[4])
        if len(keys) != len(values):
            raise FormatError("a change is damaged: it has not as many values as keys")
        shard, offset, predecessor, first, last = _HEAD.unpack(sections[0])
        return cls(shard, offset, predecessor, first, last, dict(zip(keys, values, strict=True)), bytes(sections[5]))
