"""The rows of one shard as fixed-width words: the latest in memory, earlier ones in a file that only grows.

The file is derived: it can be rebuilt from the store's row values, and what stands behind the flushed rows is
overwritten. Layout: a header of 4096 bytes (JSON), then uint64[rows, width] (columns: `layout.SEQ` ...).
"""

from __future__ import annotations

import os
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from stream_lsh.errors import DamagedError, OutputError
from stream_lsh.index import layout
from stream_lsh.index.refusals import plainly, remedy
from stream_lsh.index.runs import PAGE, checksum


class RowTable:
    """Rows [0, base) in the file, [base, count) in `recent`.

    Args:
        path: the file, created if missing.
        capacity: rows that `recent` holds.
        size, bands: K and b. kind: type of a signature component.
    """

    def __init__(self, path: Path, capacity: int, size: int, bands: int, kind: type[np.unsignedinteger[Any]]) -> None:
        self.path = path
        self._kind = kind
        item = np.dtype(kind).itemsize
        self._components_at = _signature_at(bands) * 8 // item
        self.width = row_width(size, bands, item)
        self._size = size
        self.recent = np.zeros((capacity, self.width), np.uint64)
        self.base = 0
        self.count = np.zeros(1, np.int64)
        self._line = np.zeros(self.width, np.uint64)
        self._fd = self._open()

    def _open(self) -> int:
        with plainly(self.path):
            fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            with plainly(self.path):
                self._check(fd)
        except BaseException:
            os.close(fd)
            raise
        return fd

    def _check(self, fd: int) -> None:
        """Check the header, and write that of a new file."""
        expected = {"format": 1, "width": self.width, "size": self._size}
        try:
            if os.fstat(fd).st_size == 0:
                os.pwrite(fd, orjson.dumps(expected).ljust(PAGE, b" "), 0)
            header = orjson.loads(os.pread(fd, PAGE, 0))
        except orjson.JSONDecodeError as error:
            raise DamagedError(f"{self.path} cannot be used: {error}; {self._remedy}") from None
        if header != expected:
            raise DamagedError(f"{self.path} has format {header} instead of {expected}; {self._remedy}")

    @property
    def _remedy(self) -> str:
        return f"delete the folder {self.path.parent} and start again: it is rebuilt from the rows"

    def set_flushed(self, flushed: int) -> None:
        """Say that the file holds the first `flushed` rows."""
        size = PAGE + flushed * self.width * 8
        found = os.fstat(self._fd).st_size
        if found < size:
            raise DamagedError(f"{self.path} has {found} bytes instead of {size}; {self._remedy}")
        self.base = flushed

    def leave_out(self, base: int) -> None:
        """Have room for rows before `base` that do not exist: a hole in the file, zeros when it is read."""
        if base and os.fstat(self._fd).st_size < (size := PAGE + base * self.width * 8):
            os.ftruncate(self._fd, size)

    def flush(self) -> int:
        """Append the recent rows to the file; returns their checksum. `sync` makes them durable."""
        rows = self.recent[: int(self.count[0]) - self.base]
        view = rows.data.cast("B")
        crc = zlib.crc32(view)
        at = PAGE + self.base * self.width * 8
        try:
            while view:
                written = os.pwrite(self._fd, view, at)
                at += written
                view = view[written:]
        except OSError as error:
            raise OutputError(
                f"{self.path} cannot be written: {error.strerror}; {remedy(error)} and start again to go on"
            ) from None
        self.set_flushed(int(self.count[0]))
        return crc

    def sync(self) -> None:
        os.fdatasync(self._fd)

    def view(self) -> layout.Rows:
        """The rows as the kernel sees them."""
        return layout.Rows(
            self.base,
            self._fd,
            PAGE,
            self._line,
            self.recent,
            self._line.view(self._kind),
            self.recent.view(self._kind),
            self._components_at,
        )

    def words(self, rows: NDArray[np.int64], column: int) -> NDArray[np.uint64]:
        """One word of each of the given rows."""
        out = np.empty(len(rows), np.uint64)
        old = rows < self.base
        for i in np.flatnonzero(old).tolist():
            at = PAGE + (int(rows[i]) * self.width + column) * 8
            out[i] = int.from_bytes(os.pread(self._fd, 8, at), "little")
        out[~old] = self.recent[rows[~old] - self.base, column]
        return out

    def signatures(self, first: int, last: int) -> NDArray[Any]:
        """Signatures of recent rows [first, last)."""
        components = self.recent[first - self.base : last - self.base].view(self._kind)
        return np.ascontiguousarray(components[:, self._components_at : self._components_at + self._size])

    def close(self) -> None:
        os.close(self._fd)


def _signature_at(bands: int) -> int:
    """The word of a row at which its signature begins."""
    return layout.MASK + (bands + 63) // 64


def row_width(size: int, bands: int, component_bytes: int) -> int:
    """Words of a row."""
    return _signature_at(bands) + -(-size * component_bytes // 8)


def rows_checksum(path: Path, width: int, first: int, last: int) -> int | None:
    """Checksum of the rows [first, last) of a row file, as `RowTable.flush` returned it; None if it does not hold
    them."""
    try:
        with path.open("rb") as file:
            return checksum(file.fileno(), PAGE + first * width * 8, (last - first) * width * 8)
    except OSError:
        return None
