"""Outputs of the embedded engine: complete lines only, and a file that a run can go on with to the byte."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import lzma
import os
import select
import stat
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import zstandard

from stream_lsh.errors import OutputError
from stream_lsh.index.store.files import sync_folder

FRAME_BYTES = 256 * 1024
"""A compressed output begins a new frame behind the line that reaches this many uncompressed bytes."""

_END_BYTES = 64
STANDARD_OUTPUT = 1
STANDARD = "-"
"""The name of standard output."""

End = tuple[int, str]
"""So many bytes, and their hash."""


@dataclass(frozen=True, slots=True)
class OutputState:
    """The state of an output from which it resumes after a crash.

    length: of the file in bytes; -1 if it can't be cut (a pipe, a terminal). tail: complete lines that are to go into
    the next frame of a compressed file. end: of the last bytes before `length`, to know the file again by; they may say
    what is to be erased. since: when the first line of the tail was seen, seconds since 1970.
    """

    length: int
    tail: bytes = b""
    end: End = (0, "")
    since: int = 0


class Output:
    """A file, compressed if its suffix says so, or standard output. Made by `create`, `resume` or `standard`."""

    def __init__(self, name: str, descriptor: int, length: int, compress: Callable[[bytes], bytes] | None) -> None:
        self.name = name
        self._descriptor = descriptor
        self.regular = stat.S_ISREG(os.fstat(descriptor).st_mode)
        self._length = length
        self._compress = compress
        self._tail = bytearray()
        self._since: int | None = None
        self._end = _bytes_before(descriptor, length) if self.regular and length else b""
        self._closed = False
        self.whole = False
        """Whether a write that fails leaves nothing of its data, which are no lines."""

    @classmethod
    def create(cls, path: str | Path, overwrite: bool = False) -> Output:
        """A new file, or a named pipe or device. Raises OutputError, also for a file with content to be kept."""
        name = str(path)
        try:
            descriptor = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
            with contextlib.suppress(OSError):  # the folder may be one that we can write into, but not read
                sync_folder(Path(name).parent)
        except FileExistsError:
            descriptor = cls._open_existing(name, overwrite)
        except (OSError, ValueError) as error:
            raise refused("create", name, error) from None
        return cls(name, descriptor, 0, compressor(name))

    @staticmethod
    def _open_existing(name: str, overwrite: bool) -> int:
        try:
            status = Path(name).stat()
            regular = stat.S_ISREG(status.st_mode)
            check_free(name, overwrite)
            descriptor = os.open(name, (os.O_RDWR if regular else os.O_WRONLY) | os.O_CLOEXEC)
            if regular:
                os.ftruncate(descriptor, 0)
        except OSError as error:
            raise refused("write", name, error) from None
        return descriptor

    @classmethod
    def resume(cls, path: str | Path, state: OutputState) -> Output:
        """Resume a file: truncate what was written after the state, which is then written again.

        Raises OutputError if the file is missing, shorter than the state says, or another one.
        """
        name = str(path)
        if state.length < 0:
            return cls.create(path, overwrite=False)
        try:
            descriptor = os.open(name, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            raise OutputError(
                f"{name} is missing, which the run to be continued has written {state.length} bytes of: "
                "put the file back, or start with an empty index directory."
            ) from None
        except (OSError, ValueError) as error:
            raise refused("write", name, error) from None
        try:
            _check_length(name, descriptor, state)
            os.ftruncate(descriptor, state.length)
            os.lseek(descriptor, state.length, os.SEEK_SET)
        except OSError as error:
            os.close(descriptor)
            raise refused("write", name, error) from None
        except OutputError:
            os.close(descriptor)
            raise
        output = cls(name, descriptor, state.length, compressor(name))
        output._tail += state.tail
        output._since = state.since if state.tail else None
        return output

    @classmethod
    def standard(cls, state: OutputState | None = None) -> Output:
        """Standard output. state: of the file that it is (`is_there`); what was written after it is cut off."""
        descriptor = STANDARD_OUTPUT
        name = "standard output"
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return cls(name, descriptor, 0, None)
            if state is not None:
                os.ftruncate(descriptor, state.length)
                os.lseek(descriptor, state.length, os.SEEK_SET)
            return cls(name, descriptor, _standard_position(), None)
        except OSError as error:
            raise refused("write to", name, error) from None

    def write(self, data: bytes) -> None:
        """Append complete lines.

        Raises:
            OutputError: they cannot be written; the file then ends with a complete line. BrokenPipeError: the pipe has
                no reader any more.
        """
        if self._compress is None:
            self._write(data)
            return
        self._tail += data
        begin = 0
        while len(self._tail) - begin >= FRAME_BYTES:
            # The first line end at which the frame is full: where the frames are cut depends on the lines alone.
            end = self._tail.find(b"\n", begin + FRAME_BYTES - 1) + 1
            if not end:
                break
            self._write(self._compress(bytes(self._tail[begin:end])))
            begin = end
        if begin:
            del self._tail[:begin]
            self._since = None

    def checkpoint(self, sync: bool, now: int = 0) -> OutputState:
        """The state to resume from. `sync`: the file is on the disk when this returns. now: seconds since 1970."""
        if self._tail and self._since is None:
            self._since = now
        if not self.regular:
            # Nothing can be taken back from a pipe, so nothing may wait for a next time.
            self._write_tail()
            return OutputState(-1)
        if sync:
            try:
                os.fsync(self._descriptor)
            except OSError as error:
                raise refused("write", self.name, error) from None
        return OutputState(self._length, bytes(self._tail), end_of(self._end), self._since or 0)

    def let_go(self, time: int) -> None:
        """End the frame if lines wait in it that were there at this time already: they are erased here."""
        if self._since is not None and self._since <= time:
            self._write_tail()

    def finish(self) -> None:
        """Writes what is pending; the file is complete, though more may be added. An empty one gets an empty frame."""
        self._write_tail()
        if self._compress is not None and self._length == 0:
            self._write(self._compress(b""))

    def close(self) -> None:
        """Closes the file without writing what is pending (that is `finish`)."""
        if not self._closed and self._descriptor != STANDARD_OUTPUT:
            os.close(self._descriptor)
        self._closed = True

    def _write_tail(self) -> None:
        if self._tail and self._compress is not None:
            self._write(self._compress(bytes(self._tail)))
            self._tail.clear()
            self._since = None

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        written = 0
        try:
            while written < len(data):
                try:
                    written += os.write(self._descriptor, view[written:])
                except BlockingIOError:
                    _wait(self._descriptor)
        except BrokenPipeError:
            raise
        except OSError as error:
            self._cut(data, written)
            raise refused("write", self.name, error) from None
        except BaseException:  # Ctrl-C
            self._cut(data, 0)
            raise
        self._account(data)

    def _account(self, data: bytes) -> None:
        self._length += len(data)
        self._end = (self._end + data[-_END_BYTES:])[-_END_BYTES:]

    def _cut(self, data: bytes, written: int) -> None:
        """After a write that failed half-way: leaves complete lines (of a compressed file, frames) only."""
        if not self.regular:
            return
        kept = b"" if self._compress is not None or self.whole else data[: data.rfind(b"\n", 0, written) + 1]
        with contextlib.suppress(OSError):
            os.ftruncate(self._descriptor, self._length + len(kept))
            os.lseek(self._descriptor, self._length + len(kept), os.SEEK_SET)
            self._account(kept)


def check_free(path: str, overwrite: bool) -> None:
    """Raise OutputError if a file has content that is to be kept, or cannot be looked at."""
    try:
        status = Path(path).stat()
    except FileNotFoundError:
        return
    except OSError as error:
        raise refused("create", path, error) from None
    if stat.S_ISREG(status.st_mode) and status.st_size and not overwrite:
        raise OutputError(
            f"{path} is there already, with {status.st_size} bytes in it that are not from this index: "
            "remove it, choose another name, or add --overwrite to replace it."
        )


def state_of(path: str) -> OutputState:
    """The state of a complete file."""
    with Path(path).open("rb") as file:
        length = file.seek(0, os.SEEK_END)
        return OutputState(length, end=end_of(_bytes_before(file.fileno(), length)))


def is_there(path: str, state: OutputState, *, strict: bool = True) -> bool:
    """Whether a file (`-`: standard output) has what was written to it up to a state. strict: a file that has something
    else in it is an error; standard output may be any file.

    Raises:
        OutputError: it has something else, or it cannot be read.
    """
    if state.length < 0:
        return False
    standard = path == STANDARD
    try:
        descriptor = STANDARD_OUTPUT if standard else os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except (OSError, ValueError) as error:
        raise refused("write", path, error) from None
    try:
        status = os.fstat(descriptor)
        size = _standard_position() if standard and stat.S_ISREG(status.st_mode) else status.st_size
        if not stat.S_ISREG(status.st_mode) or (size < state.length and (standard or not size)):
            return False
        _check_length(path, descriptor, state)
        return True
    except OutputError:
        if standard or not strict:
            return False
        raise
    except OSError as error:
        raise refused("write to", "standard output" if standard else path, error) from None
    finally:
        if not standard:
            os.close(descriptor)


def file_at(path: str) -> tuple[int, int] | None:
    """Device and inode of a regular file (`-`: standard output), None if it is no such file, or there is none."""
    status = status_of(path, STANDARD_OUTPUT)
    return (status.st_dev, status.st_ino) if status is not None and stat.S_ISREG(status.st_mode) else None


def is_nowhere(path: str) -> bool:
    """Whether a file (`-`: standard output) discards what is written: /dev/null."""
    status = status_of(path, STANDARD_OUTPUT)
    return status is not None and stat.S_ISCHR(status.st_mode) and status.st_rdev == Path(os.devnull).stat().st_rdev


def status_of(path: str, standard: int) -> os.stat_result | None:
    """That of a file (`-`: of a descriptor), None if there is none."""
    with contextlib.suppress(OSError, ValueError):
        return os.fstat(standard) if path == STANDARD else Path(path).stat()
    return None


def _standard_position() -> int:
    """The position at which standard output, a file, continues: with `>>` its end."""
    appending = bool(fcntl.fcntl(STANDARD_OUTPUT, fcntl.F_GETFL) & os.O_APPEND)
    return os.lseek(STANDARD_OUTPUT, 0, os.SEEK_END if appending else os.SEEK_CUR)


def end_of(data: bytes) -> End:
    """What is known of the last bytes of a file."""
    return len(data), hashlib.sha256(data).hexdigest() if data else ""


def compressor(name: str) -> Callable[[bytes], bytes] | None:
    """The function that makes a frame of some bytes, by the suffix of a file name; None for a plain file.

    The same bytes always make the same frame.
    """
    return next((function for suffix, function in _BY_SUFFIX.items() if name.lower().endswith(suffix)), None)


def _gzip(data: bytes) -> bytes:
    member = zlib.compressobj(6, zlib.DEFLATED, 31)  # zlib's own header, which has no time and no name
    return member.compress(data) + member.flush()


_BY_SUFFIX: dict[str, Callable[[bytes], bytes]] = {
    ".gz": _gzip,
    ".xz": lambda data: lzma.compress(data, lzma.FORMAT_XZ, preset=2),
    ".zst": lambda data: zstandard.ZstdCompressor(level=3, write_checksum=True).compress(data),
}


def _check_length(name: str, descriptor: int, state: OutputState) -> None:
    """Raises OutputError if the open file is not the one of the state."""
    size = os.fstat(descriptor).st_size
    if size < state.length:
        raise OutputError(
            f"{name} has {size} bytes, fewer than the {state.length} that the run to be continued has written: "
            "put the file back; or remove it, and it is written again."
        )
    size, _ = state.end
    if size and (end := _bytes_before(descriptor, state.length)[-size:]) and end_of(end) != state.end:
        raise OutputError(
            f"{name} is not the file that the run to be continued has written (its bytes before {state.length} are "
            "others): put the file back; or remove it, and it is written again."
        )


def _bytes_before(descriptor: int, length: int) -> bytes:
    """The last bytes before `length`; nothing if they can't be read."""
    begin = max(0, length - _END_BYTES)
    with contextlib.suppress(OSError):
        return os.pread(descriptor, length - begin, begin)
    with contextlib.suppress(OSError):  # standard output is open for writing only
        readable = os.open(f"/dev/fd/{descriptor}", os.O_RDONLY)
        try:
            return os.pread(readable, length - begin, begin)
        finally:
            os.close(readable)
    return b""


def _wait(descriptor: int) -> None:
    """Until a descriptor that is set not to wait takes more."""
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    poll.poll()


def refused(what: str, name: str, error: OSError | ValueError) -> OutputError:
    """The error of an output that the system refuses, with the remedy."""
    number = getattr(error, "errno", None)
    remedy = {
        errno.ENOSPC: "make room on the disk, then run the same command again",
        errno.EDQUOT: "make room within the quota, then run the same command again",
        errno.EFBIG: "raise the limit on file sizes (ulimit -f), or write to another file system",
        errno.EIO: "the disk or its connection fails; write to another one",
        errno.EACCES: "change its permissions, or write to another place",
        errno.EPERM: "change its permissions, or write to another place",
        errno.EROFS: "the file system is read-only; write to another one",
        errno.ENOENT: "create the folder first",
        errno.EISDIR: "name a file, not a folder",
        errno.EBADF: "it is closed; redirect it to a file or a pipe, or name a file for the output",
    }.get(number or 0, "see to it, or write to another file")
    return OutputError(f"cannot {what} {name}: {getattr(error, 'strerror', None) or error}; {remedy}.")
