"""Errors of the operating system and of RocksDB, as messages with a remedy."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from stream_lsh.errors import DamagedError, OutputError, StoreError

_RIGHTS = "let this user read and write there"
_ROOM = "make room on the disk"
# Parts of RocksDB's messages about truncated, changed or missing files.
_DAMAGE = ("Corruption", "No such file", "does not exist")
_REMEDIES = {
    errno.EMFILE: "raise the number of files that a process may open (ulimit -n, LimitNOFILE of systemd)",
    errno.ENFILE: "raise the number of files that the system may open (sysctl fs.file-max)",
    errno.EACCES: _RIGHTS,
    errno.EPERM: _RIGHTS,
    errno.EROFS: "mount the disk for writing",
    errno.ENOSPC: _ROOM,
    errno.EDQUOT: _ROOM,
    errno.ENOMEM: "leave more memory free",
    errno.EIO: "look at the disk, it fails (see dmesg)",
}


def refusal(error: Exception) -> int | None:
    """The errno of an error that the system raised, or None. RocksDB has it only in its message."""
    if isinstance(error, OSError):
        return error.errno if error.errno in _REMEDIES else None
    return next((number for number in _REMEDIES if os.strerror(number) in str(error)), None)


def remedy(error: Exception) -> str:
    """What to do about an error that is not damage."""
    return _REMEDIES.get(refusal(error) or 0, "remove the cause")


def refused(where: str | Path, error: Exception) -> StoreError:
    """The error for a cause that the user can remove; no file is damaged."""
    text = error.strerror if isinstance(error, OSError) and error.strerror else " ".join(str(error).split())
    return StoreError(f"{where} cannot be used: {text}; {remedy(error)} and start again, nothing is damaged")


@contextmanager
def plainly(where: Path) -> Iterator[None]:
    """Convert an OSError inside to a StoreError."""
    try:
        yield
    except BrokenPipeError:  # the reader of the output is closed: not an error of these files
        raise
    except OSError as error:
        raise refused(error.filename or where, error) from None


@contextmanager
def as_errors(made: Callable[[Path, Exception], StoreError | OutputError], path: Path) -> Iterator[None]:
    """Convert any exception inside by one of the functions below."""
    try:
        yield
    except Exception as error:
        raise made(path, error) from None


def output_error(path: Path, error: Exception) -> OutputError:
    """The error for a failed write of files of an index, or of RocksDB."""
    return OutputError(f"the index in {path} cannot be written: {error}; {remedy(error)} and start again to go on")


def state_error(path: Path, error: Exception) -> StoreError:
    """The error for a message of RocksDB. Only known messages count as damage, because users may delete what is
    damaged."""
    text = " ".join(str(error).split())
    if refusal(error) is not None:
        return refused(f"the index in {path.parent}", error)
    if "/LOCK" in text or "lock hold" in text:  # not any "lock": a damaged file has a "block checksum mismatch"
        return StoreError(
            f"the index in {path.parent} is in use by another process; wait for it to end, or use another folder"
        )
    if any(sign in text for sign in _DAMAGE):
        return DamagedError(
            f"the index in {path.parent} cannot be read: {text}; restore {path} from a backup or start a new folder"
        )
    return StoreError(
        f"the index in {path.parent} cannot be read: {text}; remove the cause, or restore {path} from a backup or "
        "start a new folder"
    )
