"""What all files of an index share: pages, checksums, durable names, and the lock that guards their deletion."""

from __future__ import annotations

import fcntl
import os
import resource
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

from stream_lsh.index.store.errors import refused

PAGE = 4096
_BLOCK = 1 << 20
_MOST_FILES = 1 << 16


def is_index(folder: Path, *, strict: bool = True) -> bool:
    """Whether there is an index in a folder. strict: raise StoreError if this user may not look; else there is none."""
    try:
        return (folder / "db" / "CURRENT").exists()
    except OSError as error:
        if not strict:
            return False
        raise refused(folder, error) from None


def disk_bytes(folder: Path) -> int:
    """Bytes that a folder's files take. The folder may be in use: files renamed or deleted meanwhile are not
    counted."""
    total = 0
    for where, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                total += Path(where, name).lstat().st_size
    return total


def fill(file: int, at: int, view: memoryview) -> bool:
    """Read all of `view` from a position of a file (a descriptor). False if the file is too short."""
    while view:
        got = os.preadv(file, [view], at)
        if not got:
            return False
        at += got
        view = view[got:]
    return True


def checksum(file: int, start: int, size: int) -> int | None:
    """CRC-32 of a part of a file (a descriptor); None if the file is too short."""
    crc, block, end = 0, memoryview(bytearray(min(size, _BLOCK))), start + size
    for at in range(start, end, _BLOCK):
        part = block[: end - at]
        if not fill(file, at, part):
            return None
        crc = zlib.crc32(part, crc)
    return crc


def sync_folder(path: Path) -> None:
    """Make the names in a folder durable."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def append(file: int, data: bytes) -> None:
    """Write to the end of a file (a descriptor); on the disk when it returns."""
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]
    os.fsync(file)


def replace_file(path: Path, data: bytes) -> None:
    """Write a file; on the disk when it returns. A reader, and a crash, see the old contents or the new ones."""
    writing = path.with_name(path.name + ".writing")
    with writing.open("wb", buffering=0) as file:
        append(file.fileno(), data)
    writing.replace(path)
    sync_folder(path.parent)


def make_folder(path: Path) -> None:
    """Make a folder and its missing parents; their names are durable."""
    if path.is_dir():
        return
    make_folder(path.parent)
    path.mkdir(exist_ok=True)
    with suppress(PermissionError):  # the parent may belong to another user and be writable only
        sync_folder(path.parent)


@contextmanager
def looking(state: Path) -> Iterator[None]:
    """Lock of a reader: no file of an index is deleted inside. Held from reading the manifest until all its files are
    open."""
    with _locked(state, fcntl.LOCK_SH) if state.is_dir() else nullcontext():
        yield


@contextmanager
def deletion_lock(state: Path) -> Iterator[bool]:
    """Lock for deleting files of an index: yields whether they may be deleted. Readers wait meanwhile; the caller does
    not wait for them."""
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
        except OSError:  # a file system without locks: a reader that finds a file deleted tries again
            pass
        yield True
    finally:
        os.close(file)


def raise_limit() -> None:
    """Raise this process's limit of open files to what the system allows: an index has hundreds, and 1,024 is a usual
    limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def open_files() -> int:
    """Number of files that this process may have open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST_FILES if soft == resource.RLIM_INFINITY else soft
