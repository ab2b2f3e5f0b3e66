"""The file with the flushed rows of one segment of a shard. They are stored only here.

Layout: a header of 4096 bytes (JSON), then uint64[rows, width] (columns: `layout.SEQ` ...). The file only grows. What
is behind the flushed rows is overwritten.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from stream_lsh.errors import DamagedError, OutputError
from stream_lsh.families.components import components_of
from stream_lsh.index.rows import layout
from stream_lsh.index.store.errors import plainly, remedy
from stream_lsh.index.store.files import PAGE, checksum, fill, sync_folder
from stream_lsh.index.store.rocksdb import Store, name_key
from stream_lsh.settings.model import Settings

FORMAT = 2
REMEDY = "restore the folder from a backup or start a new one"
NONE = np.empty(0, np.int64)
ANY_NUMBER = 1 << 40
_VALUE = struct.Struct("<II")  # rows, width
_BLOCK = 4096  # rows handled at a time
_BELOW_SIZE = (np.uint64(1) << layout.SIZE_BITS) - np.uint64(1)


class Shape:
    """The layout of an index's rows, which follows from its settings."""

    def __init__(self, settings: Settings) -> None:
        signing = settings.signing
        self.components = components_of(signing)
        self.size = signing.signature_size
        self.signature_words = self.components.words
        containment = settings.measure == "containment"
        # With sampled keys a document has any number of them. It has no followers, because containment is not a metric.
        self.bands = ANY_NUMBER if containment else signing.bands
        self.mask_words = 0 if settings.compare_with == "kept" or containment else (signing.bands + 63) // 64
        self.log_at = int(layout.MASK) + self.mask_words
        self.signature_at = self.log_at + (settings.window is not None)
        self.rank_at = self.signature_at + self.signature_words if settings.ranks else 0
        self.width = self.signature_at + self.signature_words + settings.ranks
        self.source_at = 0
        if settings.keep_per is not None:
            self.source_at, self.width = self.width, self.width + 1
        # The first words of a signature, by which candidates are ranked.
        most = max(layout.HEAD_COMPONENTS * self.components.bits // 64, layout.HEAD_WORDS)
        self.head_words = min(self.signature_words, most)

    def signatures(self, rows: NDArray[np.uint64]) -> NDArray[Any]:
        """Signatures [n, columns] of rows uint64[n, width]."""
        words = np.ascontiguousarray(rows[:, self.signature_at :])
        return np.ascontiguousarray(words.view(self.components.kind)[:, : self.components.columns])


class RowFile:
    """The file, open.

    Args:
        flushed: number of committed rows that it has.
        read_only: another process may be writing to it.

    Raises:
        DamagedError: the file is missing though it should have rows, too short, or of another format.
    """

    def __init__(self, path: Path, shape: Shape, flushed: int, *, read_only: bool = False) -> None:
        self.path = path
        self.shape = shape
        self.flushed = flushed
        self.start = PAGE
        with plainly(path):
            if flushed and not path.exists():
                raise DamagedError(f"{path} is missing; {REMEDY}")
            flags = os.O_RDONLY if read_only else os.O_RDWR | os.O_CREAT
            try:
                self.file = os.open(path, flags | os.O_CLOEXEC, 0o644)
            except FileNotFoundError:
                if flushed or not read_only:
                    raise
                self.file = -1
        try:
            with plainly(path):
                self._check(read_only)
                if not (read_only or flushed):
                    sync_folder(path.parent)  # no commit may list rows of a file whose name a power cut loses
                if not read_only:  # what a crash left behind may be rows that are erased elsewhere
                    os.ftruncate(self.file, self._place(flushed))
        except BaseException:
            self.close()
            raise

    def _check(self, read_only: bool) -> None:
        """Check header and length; write the header of a new file."""
        if self.file < 0:
            return
        expected = {"format": FORMAT, "width": self.shape.width, "components": self.shape.size}
        try:
            if os.fstat(self.file).st_size == 0 and not self.flushed:
                if read_only:
                    return
                os.pwrite(self.file, orjson.dumps(expected).ljust(PAGE, b" "), 0)
            header = orjson.loads(os.pread(self.file, PAGE, 0))
        except orjson.JSONDecodeError as error:
            raise DamagedError(f"{self.path} cannot be used: {error}; {REMEDY}") from None
        if header != expected:
            raise DamagedError(f"{self.path} has format {header} instead of {expected}; {REMEDY}")
        size, found = self._place(self.flushed), os.fstat(self.file).st_size
        if found < size:
            raise DamagedError(f"{self.path} has {found} bytes instead of {size}; {REMEDY}")

    def _place(self, row: int) -> int:
        return self.start + row * self.shape.width * 8

    def append(self, rows: NDArray[np.uint64]) -> int:
        """Write rows uint64[n, width] behind the flushed ones. Returns their CRC-32. `sync` makes them durable."""
        view = rows.data.cast("B") if len(rows) else memoryview(b"")
        crc = zlib.crc32(view)
        self._put(view, self.flushed)
        self.flushed += len(rows)
        return crc

    def patch(self, places: NDArray[np.int64], rows: NDArray[np.uint64]) -> None:
        """Overwrite rows of the segment; durable when it returns. places: int64[n], ascending."""
        for begin, end in neighbours(places):
            self._put(memoryview(rows[begin:end].tobytes()), int(places[begin]))
        self.sync()

    def _put(self, data: memoryview, row: int) -> None:
        """Write rows from this one on."""
        at = self._place(row)
        with self._written():
            while data:
                written = os.pwrite(self.file, data, at)
                at += written
                data = data[written:]

    def sync(self) -> None:
        with self._written():
            os.fdatasync(self.file)

    @contextmanager
    def _written(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise OutputError(
                f"{self.path} cannot be written: {error.strerror}; {remedy(error)} and start again to go on"
            ) from None

    def read(self, first: int, last: int) -> NDArray[np.uint64]:
        """The rows [first, last) of the segment.

        Raises:
            DamagedError: the file has been truncated.
        """
        out = np.empty((last - first, self.shape.width), np.uint64)
        if not fill(self.file, self._place(first), out.data.cast("B")):
            raise DamagedError(f"{self.path} has become shorter; {REMEDY}")
        return out

    def at(self, places: NDArray[np.int64]) -> NDArray[np.uint64]:
        """Rows uint64[n, width] of the segment, ascending. Neighbours are read together. Raises as `read`."""
        out = np.empty((len(places), self.shape.width), np.uint64)
        for begin, end in neighbours(places):
            first = int(places[begin])
            out[begin:end] = self.read(first, first + end - begin)
        return out

    def words(self, places: NDArray[np.int64], size: int) -> NDArray[np.uint64]:
        """The first words of rows of the segment, uint64[n, size]. Raises as `read`."""
        found = b"".join([os.pread(self.file, 8 * size, self._place(place)) for place in places.tolist()])
        if len(found) < 8 * size * len(places):
            raise DamagedError(f"{self.path} has become shorter; {REMEDY}")
        return np.frombuffer(found, np.uint64).reshape(-1, size)

    def checksum(self, first: int, last: int, erased: NDArray[np.int64] = NONE) -> int | None:
        """CRC-32 of the rows [first, last), as from `append`; None if the file does not have them. Erased rows count as
        blank, because they may not be overwritten yet."""
        begin, end = np.searchsorted(erased, (first, last)).tolist()
        if begin == end:
            return checksum(self.file, self._place(first), (last - first) * self.shape.width * 8)
        crc = 0
        for at in range(first, last, _BLOCK):
            try:
                block = self.read(at, min(at + _BLOCK, last))
            except DamagedError:
                return None
            mine = erased[begin:end]
            mine = mine[(mine >= at) & (mine < at + len(block))] - at
            block[mine] = blank(block[mine], self.shape.signature_at)
            crc = zlib.crc32(block.data.cast("B"), crc)
        return crc

    def flushes(self, store: Store, shard: int, segment: int, end: int | None = None) -> Iterator[tuple[int, int, int]]:
        """First row, last row (not included) and CRC-32 of each flush before the row `end`. Each begins where the one
        before ends. (The store may also have flushes that were never committed.)

        Raises:
            DamagedError: one is missing.
        """
        first = 0
        while first < (self.flushed if end is None else end):
            flush = store.named(flush_name(shard, segment, first))
            if flush is None:
                raise self._damaged(first)
            yield first, flush["last"], flush["crc"]
            first = flush["last"]

    def verify(self, store: Store, shard: int, segment: int, erased: NDArray[np.int64] = NONE) -> None:
        """Compare the file with the checksums of its flushes.

        Args:
            erased: int64[n], erased rows, ascending.

        Raises:
            DamagedError: the rows differ from what was written.
        """
        for first, last, crc in self.flushes(store, shard, segment):
            if self.checksum(first, last, erased) != crc:
                raise self._damaged(first)

    def checksums(
        self, store: Store, shard: int, segment: int, places: NDArray[np.int64], rows: NDArray[np.uint64]
    ) -> dict[bytes, bytes]:
        """The new checksums of the flushes of rows that become blank. The file is not read: damage of other rows does
        not become part of a checksum.

        Args:
            places: int64[n], ascending; none of them is erased yet.
            rows: uint64[n, width], what is there.
        """
        values, changes = {}, rows ^ blank(rows, self.shape.signature_at)
        # Another thread may append rows meanwhile.
        for first, last, crc in self.flushes(store, shard, segment, int(places[-1]) + 1):
            begin, end = np.searchsorted(places, (first, last)).tolist()
            if begin < end:
                changed = _changed(crc, places[begin:end] - first, changes[begin:end], last - first)
                values[name_key(flush_name(shard, segment, first))] = orjson.dumps({"last": last, "crc": changed})
        return values

    def _damaged(self, first: int) -> DamagedError:
        return DamagedError(f"{self.path} is damaged in the rows from {first}; {REMEDY}")

    def close(self) -> None:
        if self.file >= 0:
            os.close(self.file)
        self.file = -1


def neighbours(places: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Begin and end of each run of consecutive numbers in int64[n], ascending."""
    return pairwise([*np.flatnonzero(np.diff(places, prepend=-2) != 1).tolist(), len(places)])


def _changed(crc: int, places: NDArray[np.int64], changes: NDArray[np.uint64], n: int) -> int:
    """The CRC-32 of n rows after some of them have changed. CRC-32 is linear: those of two texts of one length differ
    by that of their difference, computed from the register 0 and without the final inversion.

    Args:
        crc: before.
        places: int64[k], ascending.
        changes: uint64[k, width], rows before, exclusive or rows after.
    """
    row = changes.shape[1] * 8
    zeros, register, at = bytes(_BLOCK * row), 0xFFFFFFFF, int(places[0])  # as `zlib` gives it: inverted
    for place, change in zip([*places.tolist(), n], [*changes, b""], strict=True):
        while at < place:
            register = zlib.crc32(memoryview(zeros)[: (place - at) * row], register)
            at += min(place - at, _BLOCK)
        register = zlib.crc32(change, register)
        at += 1
    return crc ^ register ^ 0xFFFFFFFF


def flush_name(shard: int, segment: int, first: int) -> str:
    """The name in the store of a flush into a row file, from the row `first` on. Its value has the `last` row and the
    `crc`."""
    return f"flush/{shard}/{segment}/{first}"


def blank(rows: NDArray[np.uint64], signature_at: int) -> NDArray[np.uint64]:
    """Rows uint64[n, width] without what their documents said. A deletion keeps its id and time, for later documents
    with this id."""
    out, versions = rows.copy(), np.flatnonzero(rows[:, layout.FLAGS] & np.uint64(layout.DELETED) == 0)
    out[:, layout.TEXT : layout.TEXT + 2] = out[:, signature_at:] = 0
    out[versions, layout.SIMILARITY] = 0
    out[versions, layout.TIME] = out[versions, layout.ID] = out[versions, layout.ID + 1] = 0
    out[:, layout.FLAGS] = out[:, layout.FLAGS] & _BELOW_SIZE | np.uint64(layout.ERASED)
    return out


def packed(rows: NDArray[np.uint64]) -> bytes:
    """Rows uint64[n, width] as a value of the store."""
    return _VALUE.pack(*rows.shape) + rows.tobytes()


def unpacked(value: bytes | bytearray) -> NDArray[np.uint64]:
    """Decode a value of `packed`.

    Raises:
        ValueError, struct.error: it is damaged.
    """
    n, width = _VALUE.unpack_from(value)
    return np.frombuffer(value, np.uint64, n * width, _VALUE.size).reshape(n, width)
