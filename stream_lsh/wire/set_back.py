"""Setting stream time back: a record in the topic signatures, whose place in the log is where it takes effect.
docs/internals/formats.md has the sections."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from stream_lsh.wire.envelope import Sections, pack

KIND, VERSION = b"T", 1
_ANY = "00" * 8  # instead of a fingerprint: an operator's command need not have the settings of the workers
_TIME = struct.Struct("<q")


@dataclass(frozen=True, slots=True)
class SetBack:
    """An operator says which time it is. time: ms since 1970."""

    time: int

    def encode(self) -> bytes:
        return pack(KIND, VERSION, _ANY, [_TIME.pack(self.time)])

    @classmethod
    def decode(cls, data: bytes | memoryview) -> SetBack:
        """Read a record.

        Raises:
            FormatError: it cannot be read; the message has the cause and the remedy.
        """
        sections = Sections(KIND, VERSION, _ANY, data)
        (time,) = sections.numbers(_TIME)
        sections.end()
        return cls(time)
