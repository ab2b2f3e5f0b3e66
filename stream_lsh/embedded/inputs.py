"""Inputs of the embedded engine: files, compressed files, standard input, pipes and folders, read from a position."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import os
import select
import stat
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from stream_lsh.documents.columns import Columns, Fields, Position
from stream_lsh.documents.json_reader import read_object
from stream_lsh.documents.lines import parse_lines
from stream_lsh.documents.refused import Refused
from stream_lsh.embedded.blocks import Blocks
from stream_lsh.embedded.checksums import Checksums, first_difference, first_difference_in
from stream_lsh.embedded.decompression import Damaged, compression_of, decompressor
from stream_lsh.embedded.lines import Batch, Lines, LineSplitter, Splitter
from stream_lsh.errors import InputError
from stream_lsh.wording import missing_package

MAX_BYTES = 1 << 20
HEAD_BYTES = 4096
STANDARD_INPUT = 0

LineRange = tuple[Position, Position]
"""Where documents of an input begin and end."""


def check_packages(what: str, extra: str, *packages: str) -> None:
    """Import packages of an extra, which `what` needs. Raises InputError if one is not installed."""
    for package in packages:
        try:
            importlib.import_module(package)
        except ImportError:
            raise InputError(missing_package(what, package, extra)) from None


@dataclass(frozen=True, slots=True)
class InputIdentity:
    """Identifies an input when a run resumes: absolute path, hash of its first bytes (decompressed), size at that time.
    stamp: inode, size and times of the last changes, which stay equal if nothing is written.

    For a folder: hash of the names and sizes of its first `head_bytes` files; size is the number of files.
    """

    path: str
    head: str
    head_bytes: int
    size: int
    stamp: tuple[int, ...] = ()


def stamp_of(path: str) -> tuple[int, int, int, int]:
    """The stamp of a file. Raises OSError."""
    status = Path(path).stat()
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


class Input(ABC):
    """One input. `name`: the argument it was opened from. max_bytes, max_documents: of a batch, but it has at least one
    document."""

    changed = "its beginning is another now"
    max_bytes = MAX_BYTES
    max_documents = 2048

    def __init__(self, name: str, fields: Fields) -> None:
        self.name = name
        self.fields = fields
        self.start = Position()
        """What precedes it was removed from the input. Positions count it still."""
        self.raw_position = 0
        """Raw (compressed) bytes read so far, of `size`."""
        self.growing = False
        """Whether a last line without newline that is no complete document yet is left to a later run."""
        self.left = 0
        """Bytes of such a line that were left."""
        self.live = False
        """Whether reading it may bring more than it has now."""
        self.checked = False
        """Whether positions get checksums."""
        self.checksums: list[int] = []
        """Those of whole blocks that have been read since the position (`checksums.Checksums`)."""

    @abstractmethod
    def check(self, *, columns: bool = True) -> None:
        """Raises InputError if the input can't be read at all; reads nothing of a pipe. columns: or if it is a table
        without the columns that the fields name."""

    def identity(self) -> InputIdentity | None:
        """None for what can't be read again: standard input and pipes."""
        found = self._identity(HEAD_BYTES)
        if found is None:
            return None
        stamp = stamp_of(self.name)
        return InputIdentity(*found, size=stamp[1], stamp=stamp)

    @property
    @abstractmethod
    def size(self) -> int | None:
        """Raw bytes of the whole input, None if unknown."""

    @abstractmethod
    def lines(self, position: Position) -> Iterator[Lines]:
        """The lines from a position on, without parsing; see `batches`."""

    def matches(self, identity: InputIdentity) -> bool:
        """Whether this is the input of that identity, perhaps with more at its end. Raises InputError."""
        return self._identity(identity.head_bytes) == (identity.path, identity.head, identity.head_bytes)

    @abstractmethod
    def again(self, ranges: Sequence[LineRange]) -> Iterator[Lines]:
        """The lines of ranges that were read before, in order. Each `Lines` lies within one range. Raises
        InputError."""

    @abstractmethod
    def _identity(self, head_bytes: int) -> tuple[str, str, int] | None: ...

    def close(self) -> None:  # noqa: B027 - nothing has to be done
        """Let go what `check` has taken; it is read no more."""

    def committed(self, position: Position) -> None:  # noqa: B027 - nothing has to be done
        """Everything before a position is in a persistent index, and in the outputs. It is not read again."""

    def difference(self, position: Position, known: Sequence[int], *, everything: bool) -> int | None:
        """Where it differs first from what was read of it up to a position, None if that is not known; see
        `checksums.first_difference`. Raises InputError."""
        return None

    def _shrunk(self, read: str, now: int, back: str = "the file") -> InputError:
        """The error of an input that has less now than was read of it. back: what to put back."""
        return InputError(
            f"{self.name} has become shorter: {read} of it were read before, now it has {now}. Put {back} back, or "
            "start with an empty index directory."
        )

    def batches(self, position: Position) -> Iterator[Batch]:
        """Documents from a position on, each batch as soon as its lines are there.

        What can be read again (`identity()` is not None) is read from the position; a pipe from where it is, which is
        then called that position. Raises InputError after the last complete line if the input is damaged, and at once
        if it has become shorter than the position.
        """
        for lines in self.lines(position):
            yield Batch.of(self.parse(lines), lines, self.name)

    def parse(self, lines: Lines) -> Columns:
        """Documents of lines of this input."""
        return parse_lines(
            lines.data, lines.starts, lines.ends, self.fields, input=self.name, line_numbers=lines.numbers,
            rejected=lines.rejected,
        )  # fmt: skip


class LineInput(Input):
    """JSON lines: a file, compressed if its suffix says so, a named pipe, or `-` for standard input."""

    unit = "line"
    """What positions count."""

    def __init__(self, name: str, fields: Fields) -> None:
        super().__init__(name, fields)
        self._decompress = None if name == "-" else decompressor(name)

    def check(self, *, columns: bool = True) -> None:
        if self.name == "-":
            return
        self._status()
        if not os.access(self.name, os.R_OK):
            raise InputError(f"cannot read {self.name}: permission denied.")

    def head(self, count: int) -> bytes:
        """The first bytes, decompressed; fewer if there are no more before the end or some damage."""
        head = b""
        with self._opened() as descriptor, contextlib.suppress(Damaged):
            blocks = _all_of(descriptor, HEAD_BYTES)
            for block in blocks if self._decompress is None else self._decompress(blocks):
                head += block[: count - len(head)]
                if len(head) == count:
                    break
        return head

    def difference(self, position: Position, known: Sequence[int], *, everything: bool) -> int | None:
        with self._opened() as descriptor, contextlib.suppress(Damaged):
            if self._decompress is None:
                start = self.start.offset
                if (size := start + os.fstat(descriptor).st_size) < position.offset:
                    raise self._shrunk(f"{position.offset} bytes", size)
                return first_difference(
                    known, position, lambda at, count: os.pread(descriptor, count, at - start), everything=everything,
                    start=start,
                )  # fmt: skip
            return first_difference_in(known, position, self._decompress(_all_of(descriptor)))
        return None  # it is damaged; reading it says what is wrong

    def _identity(self, head_bytes: int) -> tuple[str, str, int] | None:
        if self.name == "-" or not self._regular():
            return None
        head = self.head(head_bytes)
        return str(Path(self.name).resolve()), hashlib.sha256(head).hexdigest(), len(head)

    @property
    def size(self) -> int | None:
        if self.name == "-":
            status = os.fstat(STANDARD_INPUT)
            return status.st_size if stat.S_ISREG(status.st_mode) else None
        return self._status().st_size if self._regular() else None

    def lines(self, position: Position) -> Iterator[Lines]:
        descriptor = STANDARD_INPUT if self.name == "-" else self._open()
        splitter = None
        try:
            blocks = self._blocks(descriptor)
            if self._decompress is not None:
                blocks = self._decompress(blocks)
            mid_line = False
            if position.offset > self.start.offset and self.name != "-" and self._regular():
                if self._decompress is not None:
                    cut = Blocks(blocks)
                    cut.skip(position.offset)
                    if cut.offset < position.offset:
                        raise self._shrunk(f"{position.offset} bytes", cut.offset)
                    blocks, mid_line = cut.rest(), cut.mid_line
                else:
                    mid_line = self._seek(descriptor, position)
            checksums = Checksums(position, self.checksums) if self.checked else None
            splitter = self._splitter(position, mid_line=mid_line, checksums=checksums)
            yield from splitter.split(blocks)
            self.left = splitter.left
        except Damaged as error:
            read = f"{splitter.position.line} {self.unit}s before it were read" if splitter else "nothing new was read"
            raise InputError(
                f"{self.name} cannot be read to its end: {error}; {read}. Replace the file by a whole one."
            ) from None
        except OSError as error:
            line = splitter.position.line if splitter else position.line
            raise InputError(f"cannot read {self._title} after {self.unit} {line}: {error.strerror}.") from None
        finally:
            if self.name != "-":
                os.close(descriptor)

    def _splitter(self, position: Position, *, mid_line: bool, checksums: Checksums | None = None) -> Splitter:
        """What cuts blocks into documents from a position on."""
        whole = is_document if self.growing else None
        limit = self.fields.max_document_bytes
        return LineSplitter(position, limit, self.max_documents, mid_line=mid_line, whole=whole, checksums=checksums)

    def again(self, ranges: Sequence[LineRange]) -> Iterator[Lines]:
        with self._opened() as descriptor:
            begin = 0
            if self._decompress is None and ranges:
                begin = max(self.start.offset, ranges[0][0].offset - 1)
                os.lseek(descriptor, begin - self.start.offset, os.SEEK_SET)
            blocks = _all_of(descriptor)
            cut = Blocks(blocks if self._decompress is None else self._decompress(blocks), begin)
            try:
                for begins, ends in ranges:
                    cut.skip(begins.offset - cut.offset)
                    splitter = self._splitter(begins, mid_line=cut.mid_line)
                    yield from splitter.split(cut.pieces(ends.offset - cut.offset))
            except Damaged as error:
                raise InputError(
                    f"{self.name} cannot be read again: {error}. Replace the file by a whole one."
                ) from None

    @property
    def _title(self) -> str:
        return "standard input" if self.name == "-" else self.name

    def _status(self) -> os.stat_result:
        try:
            return Path(self.name).stat()
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or str(error)
            raise InputError(f"cannot read {self.name}: {why}.") from None

    def _regular(self) -> bool:
        return stat.S_ISREG(self._status().st_mode)

    def _open(self) -> int:
        try:
            return os.open(self.name, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise InputError(f"cannot read {self.name}: {error.strerror}.") from None

    @contextlib.contextmanager
    def _opened(self) -> Iterator[int]:
        """The open file. Raises InputError, also where reading it fails."""
        descriptor = self._open()
        try:
            yield descriptor
        except OSError as error:
            raise InputError(f"cannot read {self.name}: {error.strerror}.") from None
        finally:
            os.close(descriptor)

    def _blocks(self, descriptor: int) -> Iterator[bytes]:
        """What is there, as soon as anything is, at most `max_bytes` at once."""
        max_bytes = self.max_bytes
        pipe = not stat.S_ISREG(os.fstat(descriptor).st_mode)
        if pipe:
            _widen(descriptor)
        first = True
        while True:
            block = _read(descriptor, max_bytes)
            # A pipe hands over 64 KiB at most. Taking more is worth it only if it takes no waiting.
            ended = not block
            if pipe and 4096 <= len(block) < max_bytes:
                pieces = [block]
                size = len(block)
                while size < max_bytes and _ready(descriptor, 0):
                    piece = _read(descriptor, max_bytes - size)
                    if not piece:
                        ended = True
                        break
                    pieces.append(piece)
                    size += len(piece)
                block = b"".join(pieces)
            if first and self._decompress is None and (suffix := compression_of(block)):
                raise InputError(
                    "standard input is compressed: decompress it on the way in."
                    if self.name == "-"
                    else f"{self.name} is compressed but its name does not say so: let it end in {suffix}."
                )
            first = False
            self.raw_position += len(block)
            if block:
                yield block
            if ended:
                return

    def _seek(self, descriptor: int, position: Position) -> bool:
        """Seek to the position. Returns whether the byte before it is not a newline."""
        size = self.start.offset + os.fstat(descriptor).st_size
        if size < position.offset:
            raise self._shrunk(f"{position.offset} bytes", size)
        self.raw_position = os.lseek(descriptor, position.offset - self.start.offset, os.SEEK_SET)
        return os.pread(descriptor, 1, self.raw_position - 1) != b"\n"


def is_document(line: bytes) -> bool:
    """Whether a JSON object is complete: appending to the line cannot make it another object."""
    try:
        read_object(line)
    except Refused as refused:
        return refused.reason not in ("not_json", "not_utf8")
    return True


def _all_of(descriptor: int, size: int = MAX_BYTES) -> Iterator[bytes]:
    while block := os.read(descriptor, size):
        yield block


def _read(descriptor: int, count: int) -> bytes:
    """os.read that waits also where the descriptor is set not to (a terminal or pipe shared with such a program)."""
    while True:
        try:
            return os.read(descriptor, count)
        except BlockingIOError:
            _ready(descriptor, None)


def _ready(descriptor: int, milliseconds: int | None) -> bool:
    """Whether there is something to read (or the end), waiting so long for it; None = as long as it takes."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(milliseconds))


def _widen(descriptor: int) -> None:
    """Lets a pipe hold 1 MiB where the system can, for larger batches of a fast feed."""
    if sys.platform == "linux":
        import fcntl

        with contextlib.suppress(OSError):
            fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, 1 << 20)
