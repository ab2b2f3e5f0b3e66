"""Lines out of a stream of bytes: numbered, placed, batched as they come, and never too much of one in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from stream_lsh.documents.columns import Columns, Position, Rejection
from stream_lsh.documents.dead_letters import KEPT_BYTES, dead_letter
from stream_lsh.embedded.checksums import Checksums

_BOM = b"\xef\xbb\xbf"
_WHITE = b" \t\r"


class Line(NamedTuple):
    """A line, its number, its offset, and why it is rejected."""

    data: bytes
    number: int
    offset: int
    rejection: Rejection | None


@dataclass(frozen=True, slots=True, eq=False)
class Lines:
    """Lines of an input that are not blank.

    Line i is data[starts[i]:ends[i]], without its newline; of one that is too large, the beginning. It has the number
    numbers[i] (from 1), and begins at byte offsets[i] of the uncompressed input. position: behind the last line.
    """

    data: bytes
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    numbers: NDArray[np.int64]
    offsets: NDArray[np.int64]
    rejected: dict[int, Rejection]
    position: Position

    @classmethod
    def of(cls, lines: Sequence[Line], position: Position) -> Lines:
        """Lines that were made one by one."""
        ends = np.cumsum([len(line.data) + 1 for line in lines], dtype=np.int64) - 1
        starts = np.concatenate((np.zeros(1, np.int64), ends[:-1] + 1))
        numbers, offsets = (np.array([line[i] for line in lines], np.int64) for i in (1, 2))
        rejected = {i: line.rejection for i, line in enumerate(lines) if line.rejection is not None}
        return Lines(b"\n".join(line.data for line in lines), starts, ends, numbers, offsets, rejected, position)

    def plain(self) -> Lines:
        """The same with their bytes in `data`."""
        return self

    def raw(self, i: int) -> bytes:
        """The bytes of line i."""
        return self.data[int(self.starts[i]) : int(self.ends[i])]

    def original(self, i: int, why: Rejection) -> tuple[bytes, int | None]:
        """The bytes of line i for its dead letter, and their number if these are only the beginning."""
        return self.raw(i), why.size

    def raw_lines(self, at: NDArray[np.int64]) -> bytes:
        """The bytes of some of them, by place, each with a newline. Neighbours are copied in one piece."""
        if not len(at):
            return b""
        starts, ends = self.starts[at], self.ends[at]
        breaks = np.flatnonzero(starts[1:] != ends[:-1] + 1) + 1
        firsts = starts[np.concatenate(([0], breaks))].tolist()
        lasts = ends[np.concatenate((breaks - 1, [len(at) - 1]))].tolist()
        view = memoryview(self.data)
        parts: list[bytes | memoryview] = []
        for first, last in zip(firsts, lasts, strict=True):
            parts += [view[first:last], b"\n"]
        return b"".join(parts)


@dataclass(slots=True, eq=False, kw_only=True)
class Batch(Columns):
    """The documents in lines of an input."""

    lines: Lines
    input: str

    @classmethod
    def of(cls, parsed: Columns, lines: Lines, input: str) -> Batch:
        """Lines with the documents parsed from them."""
        return cls(**{column.name: getattr(parsed, column.name) for column in fields(parsed)}, lines=lines, input=input)

    def dead_letter(self, i: int, rejection: Rejection | None = None) -> bytes:
        """The dead letter of document i, one line. rejection: a reason found after parsing."""
        why = rejection or self.rejected[i]
        raw, size = self.lines.original(i, why)
        number, offset = int(self.lines.numbers[i]), int(self.lines.offsets[i])
        return dead_letter(why.reason, why.detail, self.input, number, offset, raw, size)


class Splitter(Protocol):
    """Cuts blocks into documents from a position on. left: bytes of the last one, not complete, left to a later run."""

    left: int

    @property
    def position(self) -> Position:
        """Behind the last complete document."""

    def split(self, blocks: Iterable[bytes]) -> Iterator[Lines]:
        """The documents of each block."""


class LineSplitter:
    """Cuts blocks into lines from a position on.

    A line longer than `max_line` bytes is skipped to its end; only its beginning is kept. The last line needs no
    newline. Blank lines are counted, and left out. A byte order mark at the very beginning is left out.

    Attributes:
        left: bytes of the last line that were left to a later run (`whole`), white space at its ends not counted.
    """

    def __init__(
        self,
        position: Position,
        max_line: int,
        max_lines: int,
        *,
        mid_line: bool = False,
        whole: Callable[[bytes], bool] | None = None,
        checksums: Checksums | None = None,
    ) -> None:
        """mid_line: the byte before the position is not a newline, so that white space behind it is no line. whole:
        asked of a last line without a newline whether it is to be taken; by default it always is. checksums: of all
        bytes, which each position gets."""
        self._offset = position.offset
        self._line = position.line
        self._max_line = max_line
        self._max_lines = max_lines
        self._mid_line = mid_line
        self._whole = whole
        self._checksums = checksums
        self.left = 0
        # The line that has begun: its pieces; of one that is too large only the beginning.
        self._pieces: list[bytes] = []
        self._size = 0

    @property
    def position(self) -> Position:
        """Behind the last complete line."""
        return Position(self._offset, self._line, self._checksums.begun if self._checksums is not None else 0)

    @property
    def held(self) -> int:
        """Bytes in memory of the line that has begun."""
        return self._size if self._size <= self._limit else sum(map(len, self._pieces))

    def split(self, blocks: Iterable[bytes]) -> Iterator[Lines]:
        """The lines of each block as soon as it is there."""
        for block in blocks:
            last = block.rfind(b"\n")
            if last < 0:
                self._keep(block)
                continue
            if self._size > self._limit:
                first = block.find(b"\n")
                self._keep(block[:first])
                yield from self._too_large(1)
                block = block[first + 1 :]
                last -= first + 1
            self._pieces.append(block[: last + 1])
            data = b"".join(self._pieces)
            self._pieces, self._size = [], 0
            if data:
                yield from self._complete(data)
            self._keep(block[last + 1 :])
        if self._whole is not None and self._size and not self._is_whole(self._whole):
            return
        if self._size > self._limit:
            yield from self._too_large(0)
        elif self._size:
            data = b"".join(self._pieces)
            self._pieces, self._size = [], 0
            yield from self._complete(data)

    def _is_whole(self, whole: Callable[[bytes], bool]) -> bool:
        """Whether the last line, which has no newline, is to be taken."""
        line = b"".join(self._pieces)
        if self._offset == 0:
            line = line.removeprefix(_BOM)
        if self._size <= self._limit and whole(line):
            return True
        self.left = len(line.strip(_WHITE)) and self._size
        return False

    def _keep(self, piece: bytes) -> None:
        """Adds a piece without newline to the line that has begun."""
        if not piece:
            return
        kept = KEPT_BYTES + len(_BOM)
        large = self._size > self._limit
        if not large or self._size < kept:
            self._pieces.append(piece)
        self._size += len(piece)
        if self._checksums is not None and self._size > self._limit:  # of what is not kept there is no other time
            self._checksums.add(piece if large else b"".join(self._pieces))
        if self._size > self._limit and (len(self._pieces) > 1 or len(piece) > kept):
            self._pieces = [b"".join(self._pieces)[:kept]]

    @property
    def _limit(self) -> int:
        """What the line that has begun may hold; the first one perhaps also a byte order mark, which does not count."""
        return self._max_line + (len(_BOM) if self._offset == 0 else 0)

    def _too_large(self, newline: int) -> Iterator[Lines]:
        """The line that has begun, now complete, as a rejected one."""
        data = b"".join(self._pieces)
        offset, size = self._offset, self._size
        self._offset += size + newline
        if self._checksums is not None:
            self._checksums.add(b"\n"[:newline])
        if offset == 0 and data.startswith(_BOM):
            data = data[len(_BOM) :]
            offset, size = len(_BOM), size - len(_BOM)
        data = data[:KEPT_BYTES]
        self._line += 1
        self._mid_line = False
        self._pieces, self._size = [], 0
        yield Lines(
            data,
            np.zeros(1, np.int64),
            np.array([len(data)], np.int64),
            np.array([self._line], np.int64),
            np.array([offset], np.int64),
            {0: self._rejection(size)},
            self.position,
        )

    def _rejection(self, size: int) -> Rejection:
        detail = f"the line has {size} bytes, more than {self._max_line}"
        return Rejection("too_large", detail, size if size > KEPT_BYTES else None)

    def _complete(self, data: bytes) -> Iterator[Lines]:
        """Batches of the lines in `data`, which begins and ends with a line."""
        buffer = np.frombuffer(data, np.uint8)
        all_ends = np.flatnonzero(buffer == 10)
        if data[-1] != 10:
            all_ends = np.append(all_ends, len(data))
        all_starts = np.empty_like(all_ends)
        all_starts[0] = 0
        all_starts[1:] = all_ends[:-1] + 1
        begin, line = self._offset, self._line
        if self._mid_line:  # white space behind the line that was taken before belongs to it
            self._mid_line = False
            line -= not data[: int(all_ends[0])].strip(_WHITE)
        if begin == 0 and data.startswith(_BOM):
            all_starts[0] = len(_BOM)
        for first in range(0, len(all_ends), self._max_lines):
            starts, ends = all_starts[first : first + self._max_lines], all_ends[first : first + self._max_lines]
            numbers = line + first + 1 + np.arange(len(starts))
            self._offset = begin + min(int(ends[-1]) + 1, len(data))
            self._line = line + first + len(starts)
            if self._checksums is not None:
                self._checksums.add(memoryview(data)[self._checksums.offset - begin : self._offset - begin])
            # A blank line begins with white space; what else does is rare enough to look at one by one.
            blank = starts == ends
            for i in np.flatnonzero(~blank & (buffer[np.minimum(starts, len(data) - 1)] <= 32)).tolist():
                blank[i] = not data[int(starts[i]) : int(ends[i])].strip(_WHITE)
            if blank.any():
                starts, ends, numbers = starts[~blank], ends[~blank], numbers[~blank]
                if not len(starts):
                    continue
            rejected = {}
            sizes = ends - starts
            if sizes.max() > self._max_line:
                ends = ends.copy()
                for i in np.flatnonzero(sizes > self._max_line).tolist():
                    rejected[i] = self._rejection(int(sizes[i]))
                    ends[i] = starts[i] + min(int(sizes[i]), KEPT_BYTES)
            yield Lines(data, starts, ends, numbers, begin + starts, rejected, self.position)
