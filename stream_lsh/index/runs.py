"""A run: sorted, immutable postings of a range of rows, in a file that never changes.

Layout (little endian): a header of 4096 bytes, then the bloom filter (uint64[words]), the directory (uint32[2^d + 1],
where the keys with given d high bits begin), the keys (uint64[n], ascending) and the rows (uint32[n]), each section
padded to 4096 bytes. Filter and directory are read into memory when the file is opened; keys and rows are read where
they are needed, by `pread`. (Mapped, a look-up would cost a page fault, and the pages that it maps count as memory of
the process: hundreds of megabytes.) Keys are uniform hashes, so a filter's word and a directory's entry are simply a
key's high bits, and building both from sorted keys is sequential.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import numpy as np
import orjson
from numpy.typing import NDArray

from stream_lsh.errors import DamagedError
from stream_lsh.hashing.kernels import njit
from stream_lsh.index.refusals import refused

PAGE = 4096
MAGIC = b"stream_lsh run 1\n"
FILTER_BITS = 12  # per key; four bits of one 64-bit word are set: about 1 % of foreign keys pass
SECTIONS = (("filter", np.uint64), ("directory", np.uint32), ("keys", np.uint64), ("rows", np.uint32))
CHUNK = 1 << 20  # postings merged at a time
REMEDY = "delete the folder {} and start again: postings are rebuilt from the rows"


@dataclass(slots=True, eq=False)
class Run:
    """Postings of the rows [first, last): in memory, or in a file that is open.

    keys, rows: the arrays of a run in memory, else None. file: descriptor, -1 in memory. starts: positions of keys
    and rows.
    """

    level: int
    first: int
    last: int
    size: int
    filter: NDArray[np.uint64]
    directory: NDArray[np.uint32]
    keys: NDArray[np.uint64] | None = None
    rows: NDArray[np.uint32] | None = None
    path: Path | None = None
    file: int = -1
    starts: tuple[int, int] = (0, 0)

    @property
    def shift(self) -> int:
        return 64 - (len(self.directory) - 1).bit_length() + 1

    @classmethod
    def of(cls, keys: NDArray[np.uint64], rows: NDArray[np.uint32], first: int, last: int) -> Self:
        """A run in memory from postings sorted by key, then row."""
        words, directory, shift = _tables(len(keys))
        filter = np.zeros(words, np.uint64)
        _add(keys, filter, 0, words, directory, np.uint64(shift))
        _close(directory)
        return cls(0, first, last, len(keys), filter, directory, keys, rows)

    def write(self, path: Path) -> None:
        """Write the file of a run in memory; it has its name only when it is complete and on disk."""
        with _Writer(
            path, self.level, self.first, self.last, self.size, len(self.filter), len(self.directory)
        ) as writer:
            writer.put("keys", self.slice_keys(0, self.size))
            writer.put("rows", self.slice_rows(0, self.size))
            writer.put("filter", self.filter)
            writer.put("directory", self.directory)

    @classmethod
    def open(cls, path: Path, check: bool = False) -> Self:
        """Open a run's file. Header, filter and directory are verified, with `check` keys and rows too.

        Raises:
            DamagedError: naming the file, if it is missing, short, or damaged.
            StateError: the system does not let it be read.
        """
        try:
            return cls._open(path, check)
        except FileNotFoundError:
            raise DamagedError(f"{path} is missing; {REMEDY.format(path.parent)}") from None
        except OSError as error:
            raise refused(path, error) from None

    @classmethod
    def _open(cls, path: Path, check: bool) -> Self:
        header = read_header(path)
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        keys, rows = header["keys"]["start"], header["rows"]["start"]
        tables = {}
        run = cls(header["level"], header["first"], header["last"], header["keys"]["count"], *_NOTHING, path=path)
        run.file, run.starts = file, (keys, rows)
        for name, kind in SECTIONS:
            start, count, crc = (header[name][part] for part in ("start", "count", "crc"))
            if name in ("filter", "directory"):
                tables[name] = run._read(start, count, kind)
                found: int | None = zlib.crc32(tables[name].data)
            elif check:
                found = checksum(file, start, count * np.dtype(kind).itemsize)
            else:
                continue
            if found != crc:
                raise DamagedError(f"{path} is damaged ({name}); {REMEDY.format(path.parent)}")
        run.filter, run.directory = tables["filter"], tables["directory"]
        return run

    def slice_keys(self, start: int, stop: int) -> NDArray[np.uint64]:
        """The keys at [start, stop)."""
        if self.keys is not None:
            return self.keys[start:stop]
        return self._read(self.starts[0] + 8 * start, stop - start, np.uint64)

    def slice_rows(self, start: int, stop: int) -> NDArray[np.uint32]:
        """The rows at [start, stop)."""
        if self.rows is not None:
            return self.rows[start:stop]
        return self._read(self.starts[1] + 4 * start, stop - start, np.uint32)

    def _read(self, start: int, count: int, kind: type[Any]) -> NDArray[Any]:
        """An array from the file.

        Raises:
            DamagedError: the file has become shorter. OSError: it cannot be read.
        """
        out = np.empty(count, kind)
        view = out.data.cast("B")
        while view:
            got = os.preadv(self.file, [view], start)
            if not got:
                raise DamagedError(f"{self.path} has become shorter; {REMEDY.format(Path(self.path or '').parent)}")
            start += got
            view = view[got:]
        return out

    def position(self, bound: int) -> int:
        """How many keys are smaller than `bound`."""
        entry = bound >> self.shift
        low, high = int(self.directory[entry]), int(self.directory[entry + 1])
        return low + int(np.searchsorted(self.slice_keys(low, high), np.uint64(bound)))

    def line(self) -> list[int]:
        """The run's line in the kernel's table (columns of `layout`); the run keeps the arrays alive."""
        keys, rows = self.starts
        if self.keys is not None and self.rows is not None:
            keys, rows = self.keys.ctypes.data, self.rows.ctypes.data
        tables = self.filter.ctypes.data, len(self.filter), self.directory.ctypes.data, len(self.directory)
        return [*tables, self.file, keys, rows, self.size, self.shift]

    def __del__(self) -> None:
        # A merged run may still be answering when it is replaced: its file is closed when nobody holds it any more.
        if self.file >= 0:
            os.close(self.file)


_NOTHING = np.zeros(1, np.uint64), np.zeros(3, np.uint32)


def checksum(file: int, start: int, size: int) -> int | None:
    """CRC-32 of a part of a file (a descriptor), None if the file is shorter."""
    crc = 0
    while size:
        block = os.pread(file, min(size, 1 << 22), start)
        if not block:
            return None
        crc = zlib.crc32(block, crc)
        start += len(block)
        size -= len(block)
    return crc


def merge(runs: Sequence[Run], path: Path, stopped: Callable[[], bool] = lambda: False) -> None:
    """Merge adjacent runs (oldest first) into one file, a chunk at a time: memory is some 40 MB and the new
    directory.

    Raises:
        InterruptedError: `stopped` was true between two chunks; there is no file.
    """
    n = sum(run.size for run in runs)
    words, directory, shift = _tables(n)
    level = max(run.level for run in runs) + 1
    cuts = _cuts(runs, words, max(1, n // CHUNK))
    with _Writer(path, level, runs[0].first, runs[-1].last, n, words, len(directory)) as writer:
        for (first_word, low), (last_word, high) in pairwise(cuts):
            if stopped():
                raise InterruptedError
            keys, rows = runs[0].slice_keys(low[0], high[0]), runs[0].slice_rows(low[0], high[0])
            for run, start, stop in zip(runs[1:], low[1:], high[1:], strict=True):
                keys, rows = _merge(keys, rows, run.slice_keys(start, stop), run.slice_rows(start, stop))
            filter = np.zeros(last_word - first_word, np.uint64)
            _add(keys, filter, first_word, words, directory, np.uint64(shift))
            writer.put("filter", filter)
            writer.put("keys", keys)
            writer.put("rows", rows)
        _close(directory)
        writer.put("directory", directory)


def read_header(path: Path) -> dict[str, Any]:
    """The header of a run's file.

    Raises:
        DamagedError: naming the file, if it is no run, short, or of another version.
    """
    with path.open("rb") as file:
        page = file.read(PAGE)
        size = os.fstat(file.fileno()).st_size
    try:
        if not page.startswith(MAGIC):
            raise ValueError("no run of this version")
        header: dict[str, Any] = orjson.loads(page[len(MAGIC) :].rstrip(b"\0"))
        body = header["body"]
        if zlib.crc32(orjson.dumps(body)) != header["crc"]:
            raise ValueError("header damaged")
        if size != body["size"]:
            raise ValueError(f"{size} bytes instead of {body['size']}")
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedError(f"{path} cannot be used: {error}; {REMEDY.format(path.parent)}") from None
    return dict(body)


class _Writer:
    """Writes a run's sections side by side, then the header, then gives the file its name."""

    def __init__(self, path: Path, level: int, first: int, last: int, n: int, filter: int, directory: int) -> None:
        self._path = path
        self._temporary = path.with_suffix(".writing")
        self._body: dict[str, Any] = {"level": level, "first": first, "last": last}
        start = PAGE
        for (name, kind), count in zip(SECTIONS, (filter, directory, n, n), strict=True):
            self._body[name] = {"start": start, "count": count, "crc": 0}
            start += -(-count * np.dtype(kind).itemsize // PAGE) * PAGE
        self._body["size"] = start
        self._at = {name: self._body[name]["start"] for name, _ in SECTIONS}

    def __enter__(self) -> Self:
        self._fd = os.open(self._temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        return self

    def put(self, name: str, values: NDArray[Any]) -> None:
        section = self._body[name]
        view = np.ascontiguousarray(values).data.cast("B")
        section["crc"] = zlib.crc32(view, section["crc"])
        while view:
            written = os.pwrite(self._fd, view, self._at[name])
            self._at[name] += written
            view = view[written:]

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        try:
            if kind is None:
                header = orjson.dumps({"body": self._body, "crc": zlib.crc32(orjson.dumps(self._body))})
                os.ftruncate(self._fd, self._body["size"])
                os.pwrite(self._fd, (MAGIC + header).ljust(PAGE, b"\0"), 0)
                os.fsync(self._fd)
        finally:
            os.close(self._fd)
        if kind is None:
            self._temporary.rename(self._path)
            sync_folder(self._path.parent)
        else:
            self._temporary.unlink(missing_ok=True)


def sync_folder(path: Path) -> None:
    """Make names given in a folder durable."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _tables(n: int) -> tuple[int, NDArray[np.uint32], int]:
    """Words of the filter, an empty directory with some 16 keys an entry, and the shift from key to entry."""
    bits = max(1, (max(n, 16) // 16 - 1).bit_length())
    return max(1, n * FILTER_BITS // 64), np.zeros((1 << bits) + 1, np.uint32), 64 - bits


def _cuts(runs: Sequence[Run], words: int, chunks: int) -> list[tuple[int, list[int]]]:
    """Where to cut all runs at the same keys, such that each chunk has words of the filter for itself.

    Returns chunks + 1 pairs: the filter's word, and the position in each run.
    """
    cuts = [(0, [0] * len(runs))]
    for chunk in range(1, chunks):
        word = words * chunk // chunks
        bound = -(-(word << 32) // words) << 32  # the smallest key of the word, see `filter_word`
        cuts.append((word, [run.position(bound) for run in runs]))
    return [*cuts, (words, [run.size for run in runs])]


@njit
def _add(keys, filter, first_word, words, directory, shift):  # type: ignore[no-untyped-def]
    """Enter sorted keys in the filter's part that begins at `first_word`, and in the directory (as counts)."""
    for i in range(len(keys)):
        key = keys[i]
        filter[filter_word(key, np.uint64(words)) - first_word] |= filter_mask(key)
        directory[np.int64(key >> shift) + 1] += np.uint32(1)


@njit
def _close(directory):  # type: ignore[no-untyped-def]
    """Counts become positions."""
    for i in range(1, len(directory)):
        directory[i] += directory[i - 1]


@njit(inline="always")
def filter_word(key, words):  # type: ignore[no-untyped-def]
    return np.int64(((key >> np.uint64(32)) * words) >> np.uint64(32))


@njit(inline="always")
def filter_mask(key):  # type: ignore[no-untyped-def]
    one, low = np.uint64(1), np.uint64(63)
    mask = (one << (key & low)) | (one << ((key >> np.uint64(6)) & low))
    return mask | (one << ((key >> np.uint64(12)) & low)) | (one << ((key >> np.uint64(18)) & low))


@njit
def _merge(keys, rows, more_keys, more_rows):  # type: ignore[no-untyped-def]
    """Merge two sorted lists of postings; at equal keys the first list's, which are older, come first."""
    n = len(keys) + len(more_keys)
    out_keys = np.empty(n, np.uint64)
    out_rows = np.empty(n, np.uint32)
    i = j = 0
    for at in range(n):
        if j >= len(more_keys) or (i < len(keys) and keys[i] <= more_keys[j]):
            out_keys[at] = keys[i]
            out_rows[at] = rows[i]
            i += 1
        else:
            out_keys[at] = more_keys[j]
            out_rows[at] = more_rows[j]
            j += 1
    return out_keys, out_rows
