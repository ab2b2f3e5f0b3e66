"""Setting stream time back: a record in the topic signatures, whose place in the log is where it takes effect.
docs/internals/formats.md has the sections."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from stream_lsh.settings.model import Settings
from stream_lsh.wire.envelope import Sections, pack

KIND, VERSION = b"T", 1
_TIME = struct.Struct("<q")


@dataclass(frozen=True, slots=True)
class SetBack:
    """An operator says which time it is. time: ms since 1970."""

    time: int

    def encode(self, settings: Settings) -> bytes:
        return pack(KIND, VERSION, settings.fingerprint, [_TIME.pack(self.time)])

    @classmethod
    def decode(cls, data: bytes | memoryview, settings: Settings) -> SetBack:
        """Read a record.

        Raises:
            FormatError: it cannot be read; the message has the cause and the remedy.
        """
        sections = Sections(KIND, VERSION, settings.fingerprint, data)
        (time,) = sections.numbers(_TIME)
        sections.end()
        return cls(time)
