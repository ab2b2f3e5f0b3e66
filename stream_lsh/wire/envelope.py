"""The envelope of all binary records on Kafka: kind, version, settings, and sections (docs/internals/formats.md).

Little endian: "SLSH", a letter for the kind, the version (uint8), the number of sections (uint16), the settings'
fingerprint (8 bytes), the length of each section (uint32), and the sections. Each section is padded to 8 bytes, so that
columns can be read in place.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stream_lsh.errors import ForeignError, FormatError

MAGIC = b"SLSH"
_HEADER = struct.Struct("<4scBH8s")
OLDER = "start under a new topic_prefix and feed the documents again, or have stream-lsh kafka reindex do it"
"""What to do about records of an older version, from which an index cannot continue."""
NAMES = {
    b"F": "frame", b"S": "sequenced frame", b"R": "reply", b"C": "change", b"B": "snapshot record", b"D": "decision",
    b"M": "membership", b"T": "change of stream time", b"Q": "record of sequenced frames", b"P": "part",
}  # fmt: skip

Section = bytes | memoryview | NDArray[Any]


def pack(kind: bytes, version: int, fingerprint: str, sections: Sequence[Section]) -> bytes:
    """A record of these sections; arrays are written as their bytes."""
    parts: list[bytes | memoryview] = [_HEADER.pack(MAGIC, kind, version, len(sections), bytes.fromhex(fingerprint))]
    views = [memoryview(s).cast("B") if isinstance(s, bytes) else _bytes_of(s) for s in sections]
    lengths = struct.pack(f"<{len(views)}I", *[len(view) for view in views])
    parts += (lengths, bytes(-(_HEADER.size + len(lengths)) % 8))
    for view in views:
        parts += (view, bytes(-len(view) % 8))
    return b"".join(parts)


def _bytes_of(section: memoryview | NDArray[Any]) -> memoryview:
    if isinstance(section, np.ndarray):
        # An empty array has no view of its bytes.
        return np.ascontiguousarray(section).data.cast("B") if section.size else memoryview(b"")
    return section.cast("B")


def unpack(kind: bytes, version: int, fingerprint: str, data: bytes | memoryview) -> list[memoryview]:
    """The sections of a record.

    Raises:
        ForeignError: it is no record, or of a kind that belongs into another topic.
        FormatError: unknown kind, another version, other settings, or a wrong length; the message has the remedy.
    """
    name = NAMES[kind]
    view = memoryview(data)
    if len(view) < _HEADER.size or view[:4] != MAGIC:
        raise ForeignError(
            f"a record is no {name} of stream_lsh; something else writes to this topic: "
            "stop it, or use another topic_prefix"
        )
    _, found_kind, found_version, count, made_with = _HEADER.unpack_from(view)
    if found_kind != kind:
        error = ForeignError if found_kind in NAMES else FormatError  # an unknown kind may be of a later version
        raise error(
            f"a record is a {NAMES.get(found_kind, repr(found_kind))} instead of a {name}; "
            "two topics have the same name: check topic_prefix"
        )
    if found_version != version:
        raise FormatError(
            f"a {name} has version {found_version}, this worker reads {version}: "
            f"{'upgrade this worker' if found_version > version else OLDER}"
        )
    if made_with.hex() != fingerprint:
        raise FormatError(
            f"a {name} was made with other settings (fingerprint {made_with.hex()}, here {fingerprint}): use the same "
            "settings for all workers of a topic_prefix, or rebuild under another one with stream-lsh kafka reindex"
        )
    at = _HEADER.size + 4 * count
    if len(view) < at:
        raise _damaged(name)
    lengths = struct.unpack_from(f"<{count}I", view, _HEADER.size)
    at += -at % 8
    sections = []
    for length in lengths:
        sections.append(view[at : at + length])
        at += length + -length % 8
    if at != len(view):
        raise _damaged(name)
    return sections


class Sections:
    """The sections of a record, read one after another. Every method raises FormatError if there is no further section,
    or if it has another length."""

    def __init__(self, kind: bytes, version: int, fingerprint: str, data: bytes | memoryview) -> None:
        """Raises as `unpack`."""
        self._name = NAMES[kind]
        self._all = unpack(kind, version, fingerprint, data)
        self._read = 0

    @property
    def left(self) -> int:
        """Number of sections that are not read yet."""
        return len(self._all) - self._read

    def several(self, count: int) -> list[memoryview]:
        """The next `count` sections."""
        if self.left < count:
            raise self._wrong()
        self._read += count
        return self._all[self._read - count : self._read]

    def next(self) -> memoryview:
        """The next section."""
        return self.several(1)[0]

    def numbers(self, layout: struct.Struct) -> tuple[Any, ...]:
        """The next section, by a struct."""
        section = self.next()
        if len(section) != layout.size:
            raise self._wrong()
        return layout.unpack(section)

    def column(self, kind: Any, n: int | None = None, width: int = 0) -> NDArray[Any]:
        """The next section, see `column`."""
        return column(self.next(), kind, n, width)

    def texts(self) -> list[bytes]:
        """The byte strings of the next two sections, see `join`."""
        return split(*self.several(2))

    def values(self) -> dict[bytes, bytes]:
        """The values by key of the next four sections, see `join_values`."""
        keys, values = self.texts(), self.texts()
        if len(keys) != len(values):
            raise FormatError(f"a {self._name} is damaged: its values do not fit its keys")
        return dict(zip(keys, values, strict=True))

    def end(self) -> None:
        """Check that all sections are read."""
        if self.left:
            raise self._wrong()

    def _wrong(self) -> FormatError:
        return FormatError(f"a {self._name} is damaged: it has {len(self._all)} parts; delete and rebuild it")


def kind_of(data: bytes | memoryview) -> bytes | None:
    """The letter of a record, None if it is not ours."""
    ours = len(data) >= _HEADER.size and bytes(data[:4]) == MAGIC
    return bytes(data[4:5]) if ours else None


def undefined(section: memoryview, name: str, what: str) -> None:
    """Refuse a section that is reserved for later versions.

    Raises:
        FormatError: it is not empty.
    """
    if len(section):
        raise FormatError(f"a {name} has {what}, which only newer versions write: upgrade this worker")


def column(section: memoryview, kind: Any, n: int | None = None, width: int = 0) -> NDArray[Any]:
    """A section as an array [n] or [n, width], read-only and in place.

    Raises:
        FormatError: it has another number of values.
    """
    try:
        values = np.frombuffer(section, kind)
    except ValueError:
        raise _damaged("record") from None
    if n is not None and len(values) != n * (width or 1):
        raise _damaged("record")
    return values.reshape(-1, width) if width else values


def join(items: Sequence[bytes]) -> tuple[NDArray[np.uint32], bytes]:
    """Byte strings as two sections: their ends, and their bytes."""
    return np.cumsum([len(item) for item in items], dtype=np.int64).astype(np.uint32), b"".join(items)


def split(ends: memoryview, data: memoryview) -> list[bytes]:
    """The byte strings of two sections of `join`."""
    bounds = column(ends, np.uint32).tolist()
    joined = bytes(data)
    if bounds and bounds[-1] != len(joined):
        raise _damaged("record")
    return [joined[a:b] for a, b in zip([0, *bounds], bounds, strict=False)]


def join_values(values: Mapping[bytes, bytes]) -> Sequence[Section]:
    """Values by key as four sections: ends of the keys, keys, ends of the values, values."""
    return *join(list(values)), *join(list(values.values()))


def _damaged(name: str) -> FormatError:
    return FormatError(f"a {name} is damaged: its sections have other lengths than stated; delete and rebuild it")
