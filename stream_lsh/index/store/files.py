"""What all files of an index share: pages, checksums, names that are on the disk, and who deletes them when."""

from __future__ import annotations

import fcntl
import os
import resource
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

PAGE = 4096
_BLOCK = 1 << 20
_MOST_FILES = 1 << 16


def disk_bytes(folder: Path) -> int:
    """Bytes that a folder's files take; it may be in use: what is renamed or deleted meanwhile is not counted."""
    total = 0
    for where, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                total += Path(where, name).lstat().st_size
    return total


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


@contextmanager
def looking(state: Path) -> Iterator[None]:
    """No file of an index is deleted inside: for a reader, from its look at what counts until it has opened that."""
    with _locked(state, fcntl.LOCK_SH) if state.is_dir() else nullcontext():
        yield


@contextmanager
def nobody_looking(state: Path) -> Iterator[bool]:
    """Whether files of an index may be deleted inside. Readers wait meanwhile; nobody waits for them."""
    with _locked(state, fcntl.LOCK_EX | fcntl.LOCK_NB) if state.is_dir() else nullcontext(True) as free:
        yield free


@contextmanager
def _locked(folder: Path, how: int) -> Iterator[bool]:
    file = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(file, how)
        except BlockingIOError:
            yield False
            return
        except OSError:  # a file system without locks: a reader that is too late tries again
            pass
        yield True
    finally:
        os.close(file)


def raise_limit() -> None:
    """Let this process open as many files as the system allows it to: an index has hundreds, and 1,024 is a usual
    limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
