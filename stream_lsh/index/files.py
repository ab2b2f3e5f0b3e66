"""What all files of an index share: pages, checksums, names that are on the disk."""

from __future__ import annotations

import os
import resource
import zlib
from contextlib import suppress
from pathlib import Path

PAGE = 4096
_BLOCK = 1 << 20
_MOST_FILES = 1 << 16


def fill(file: int, at: int, view: memoryview) -> bool:
    """Read all of `view` from a position of a file (a descriptor); False if the file does not reach so far."""
    while view:
        got = os.preadv(file, [view], at)
        if not got:
            return False
        at += got
        view = view[got:]
    return True


def checksum(file: int, start: int, size: int) -> int | None:
    """CRC-32 of a part of a file (a descriptor); None if the file does not reach so far."""
    crc, block, end = 0, memoryview(bytearray(min(size, _BLOCK))), start + size
    for at in range(start, end, _BLOCK):
        part = block[: end - at]
        if not fill(file, at, part):
            return None
        crc = zlib.crc32(part, crc)
    return crc


def sync_folder(path: Path) -> None:
    """Make names given in a folder durable."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def make_folder(path: Path) -> None:
    """Make a folder, and those above it that are missing; their names are on the disk."""
    if path.is_dir():
        return
    make_folder(path.parent)
    path.mkdir(exist_ok=True)
    with suppress(PermissionError):  # the folder above may be somebody else's, who only lets us write into it
        sync_folder(path.parent)


def raise_limit() -> None:
    """Let this process open as many files as the system allows it to: an index has hundreds, and 1,024 is a usual
    limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
