"""What is in the files of a folder, whatever it is packed into."""

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import zstandard

MAGIC = zstandard.MAGIC_NUMBER.to_bytes(4, "little")


def contents(folder: Path) -> list[bytes]:
    """Every file below a folder as it is, and whatever can be decompressed that begins anywhere in one.

    It reads them again while their owner renames or deletes some.
    """
    while True:
        with suppress(FileNotFoundError):
            return unpacked_from(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


def unpacked_from(records: Iterable[bytes]) -> list[bytes]:
    """Byte strings as they are, and whatever can be decompressed that begins anywhere in one."""
    found = []
    for data in records:
        found.append(data)
        at = data.find(MAGIC)
        while at >= 0:
            with suppress(zstandard.ZstdError):
                found.append(zstandard.ZstdDecompressor().decompressobj().decompress(data[at:]))
            at = data.find(MAGIC, at + 1)
    return found
