"""A run: sorted, immutable postings of a range of rows of a segment, in a file.

Layout (little endian), each section padded to 4096 bytes:

- a header of 4096 bytes;
- the Bloom filter, uint64[words];
- the directory, uint32[2^d + 1]: where the keys with given d high bits begin;
- the postings, ascending, of `posting_bytes` each: the bits of the key behind those d, and below them the row, counted
  from the first row of the run.

Filter and directory are read into memory when the file is opened. Postings are read by `pread` when they are needed:
mapped, a look-up would cost a page fault, and mapped pages count as memory of the process. Keys are uniform hashes. A
filter's word and a directory's entry are therefore given by a key's high bits, and both are built sequentially from
sorted keys.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import numpy as np
import orjson
from numpy.typing import NDArray

from stream_lsh.errors import DamagedError
from stream_lsh.hashing.kernels import njit
from stream_lsh.index.postings.bloom_filter import filter_mask, filter_word, filter_words
from stream_lsh.index.postings.posting import (
    WORD,
    directory_bits,
    first_posting,
    packed,
    posting_bytes,
    row_bits,
    take_apart,
    unpacked,
)
from stream_lsh.index.rows.layout import COLUMNS
from stream_lsh.index.store.errors import refused
from stream_lsh.index.store.files import PAGE, checksum, fill, sync_folder

MAGIC = b"stream_lsh run 3\n"
EARLIER_MAGIC = b"stream_lsh run 2\n"  # of earlier revisions
CHUNK = 1 << 20  # postings merged at a time
KeysAndRows = tuple[NDArray[np.uint64], NDArray[np.uint32]]
"""Keys uint64[n] and rows uint32[n] of postings."""
REMEDY = "delete the folder {} and start again: postings are rebuilt from the rows"


@dataclass(slots=True, eq=False)
class Run:
    """Postings of the rows [first, last) of a segment: in memory, or in an open file.

    Attributes:
        size: number of postings.
        postings: of a run in memory, uint64[size]; otherwise None.
        file: descriptor, -1 in memory.
        start: position of the postings in the file.
        crc: CRC-32 of the postings in the file.
    """

    level: int
    first: int
    last: int
    size: int
    filter: NDArray[np.uint64]
    directory: NDArray[np.uint32]
    postings: NDArray[np.uint64] | None = None
    path: Path | None = None
    file: int = -1
    start: int = 0
    crc: int = 0

    @property
    def bits(self) -> int:
        """High bits of a key that give its entry in the directory."""
        return (len(self.directory) - 2).bit_length()

    @property
    def row_bits(self) -> int:
        """Low bits of a posting that are its row."""
        return row_bits(self.last - self.first)

    @property
    def octets(self) -> int:
        """Bytes of a posting in the file."""
        return posting_bytes(self.size, self.last - self.first)

    @classmethod
    def of(cls, keys: NDArray[np.uint64], rows: NDArray[np.uint32], first: int, last: int) -> Self:
        """A run in memory from postings sorted by key, then row."""
        words, bits = filter_words(len(keys)), directory_bits(len(keys))
        filter, directory = np.zeros(words, np.uint64), np.zeros((1 << bits) + 1, np.uint32)
        postings = np.empty(len(keys), np.uint64)
        _add(keys, rows, first, filter, 0, words, directory, bits, row_bits(last - first), postings)
        _close(directory)
        return cls(0, first, last, len(keys), filter, directory, postings)

    def write(self, path: Path) -> None:
        """Write a run in memory to a file. The file gets its name when it is complete and on disk."""
        with _Writer(path, self.level, self.first, self.last, self.size) as writer:
            for start in range(0, self.size, CHUNK):
                writer.put("postings", packed(self.values(start, min(start + CHUNK, self.size)), self.octets))
            writer.put("filter", self.filter)
            writer.put("directory", self.directory)

    @classmethod
    def open(cls, path: Path, check: bool = False) -> Self:
        """Open a run's file. Header, filter and directory are verified, with `check` the postings too.

        Raises:
            DamagedError: the file is missing, short or damaged; the message names it.
            StoreError: the system refuses to read it.
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
        nothing = np.empty(0, np.uint64), np.zeros(2, np.uint32)
        run = cls(header["level"], header["first"], header["last"], header["postings"]["count"], *nothing, path=path)
        run.file, run.start, run.crc = file, header["postings"]["start"], header["postings"]["crc"]
        run.filter = run._verified("filter", header, np.uint64)
        run.directory = run._verified("directory", header, np.uint32)
        if check and checksum(file, run.start, run.size * run.octets) != run.crc:
            raise run.damaged("postings")
        return run

    def damaged(self, section: str) -> DamagedError:
        """The error for a section of the file that differs from its checksum."""
        return DamagedError(f"{self.path} is damaged ({section}); {REMEDY.format(Path(self.path or '').parent)}")

    def between(self, start: int, stop: int) -> KeysAndRows:
        """The postings at [start, stop)."""
        return self.taken_apart(start, self.values(start, stop))

    def taken_apart(self, start: int, postings: NDArray[np.uint64]) -> KeysAndRows:
        """Decode what `values` gives from the position `start` on."""
        entry = int(np.searchsorted(self.directory, start, "right")) - 1
        keys, rows = np.empty(len(postings), np.uint64), np.empty(len(postings), np.uint32)
        take_apart(self.directory, entry, start, postings, self.bits, self.row_bits, self.first, keys, rows)
        return keys, rows

    def values(self, start: int, stop: int) -> NDArray[np.uint64]:
        """The postings at [start, stop), as they are in memory."""
        if self.postings is not None:
            return self.postings[start:stop]
        return unpacked(self.stored(start, stop), self.octets)

    def stored(self, start: int, stop: int) -> NDArray[np.uint8]:
        """A word without meaning, for `unpacked`, and the bytes of the postings at [start, stop) in the file.

        Raises:
            DamagedError: the file has been truncated.
            OSError: it cannot be read.
        """
        out = np.empty(WORD + (stop - start) * self.octets, np.uint8)
        self._filled(self.start + start * self.octets, out[WORD:])
        return out

    def _verified(self, name: str, header: dict[str, Any], kind: type[Any]) -> NDArray[Any]:
        """A section of the file with the checksum of the header. Raises as `stored`, and DamagedError if it differs."""
        section = header[name]
        values = self._filled(section["start"], np.empty(section["count"], kind))
        if zlib.crc32(values.data) != section["crc"]:
            raise self.damaged(name)
        return values

    def _filled(self, start: int, out: NDArray[Any]) -> NDArray[Any]:
        """An array with what the file has from a position on. Raises as `stored`."""
        if not fill(self.file, start, out.data.cast("B")):
            raise DamagedError(f"{self.path} has become shorter; {REMEDY.format(Path(self.path or '').parent)}")
        return out

    def position(self, bound: int) -> int:
        """Number of keys less than `bound`."""
        if bound >> 64:
            return self.size
        entry = bound >> (64 - self.bits)
        start, stop = int(self.directory[entry]), int(self.directory[entry + 1])
        return start + int(np.searchsorted(self.between(start, stop)[0], np.uint64(bound)))

    def line(self, first: int) -> NDArray[np.int64]:
        """The run as a line of the kernels' table. It must outlive the table.

        Args:
            first: first row of the segment.
        """
        postings = self.start if self.postings is None else self.postings.ctypes.data
        line = (
            self.filter.ctypes.data, len(self.filter), self.directory.ctypes.data, self.bits, self.file, postings,
            first + self.first, first + self.last, self.row_bits, self.octets,
        )  # fmt: skip
        assert len(line) == COLUMNS
        return np.array(line, np.int64)

    def __del__(self) -> None:
        if self.file >= 0:
            os.close(self.file)


def merge(runs: Sequence[Run], path: Path, stopped: Callable[[], bool] = lambda: False) -> None:
    """Merge adjacent runs, oldest first, into one file. A chunk is merged at a time: it takes some 40 MB and the new
    directory.

    Raises:
        InterruptedError: `stopped` returned true between two chunks; there is no file.
        DamagedError: the postings of a run differ from their checksum; the message names its file. There is no new
            file.
    """
    n = sum(run.size for run in runs)
    words, bits, first, last = filter_words(n), directory_bits(n), runs[0].first, runs[-1].last
    directory, octets = np.zeros((1 << bits) + 1, np.uint32), posting_bytes(n, last - first)
    level = max(run.level for run in runs) + 1
    cuts = _cuts(runs, words, max(1, n // CHUNK))
    readers = [_Reader(run) for run in runs]
    with _Writer(path, level, first, last, n) as writer:
        for (first_word, _), (last_word, ends) in pairwise(cuts):
            if stopped():
                raise InterruptedError
            parts = [reader.read_to(end) for reader, end in zip(readers, ends, strict=True)]
            while len(parts) > 1:  # in pairs of neighbours, so that postings are copied as seldom as possible
                pairs = [_merge(*parts[i], *parts[i + 1]) for i in range(0, len(parts) - 1, 2)]
                parts = pairs + parts[2 * len(pairs) :]
            keys, rows = parts[0]
            filter, postings = np.zeros(last_word - first_word, np.uint64), np.empty(len(keys), np.uint64)
            _add(keys, rows, first, filter, first_word, words, directory, bits, row_bits(last - first), postings)
            writer.put("filter", filter)
            writer.put("postings", packed(postings, octets))
        for reader in readers:  # before the file gets its name
            reader.check()
        _close(directory)
        writer.put("directory", directory)


class _Reader:
    """Reads the postings of a run once, from the first to the last, and computes their checksum."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._at = 0
        self._crc = 0

    def read_to(self, end: int) -> KeysAndRows:
        """The next postings, up to the position `end`. They may be damaged until `check` has returned."""
        start, self._at = self._at, end
        if self._run.postings is not None:
            return self._run.between(start, end)
        stored = self._run.stored(start, end)
        self._crc = zlib.crc32(stored[WORD:].data, self._crc)
        return self._run.taken_apart(start, unpacked(stored, self._run.octets))

    def check(self) -> None:
        if self._run.postings is None and self._crc != self._run.crc:
            raise self._run.damaged("postings")


def read_header(path: Path) -> dict[str, Any]:
    """The header of a run's file.

    Raises:
        DamagedError: the file is no run, short, or of another version; the message names it.
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
    """Writes the sections of a run in any order, then the header, then gives the file its name."""

    def __init__(self, path: Path, level: int, first: int, last: int, n: int) -> None:
        self._path = path
        self._temporary = path.with_suffix(".writing")
        self._body: dict[str, Any] = {"level": level, "first": first, "last": last}
        start = PAGE
        sections = (
            ("filter", filter_words(n), WORD), ("directory", (1 << directory_bits(n)) + 1, 4),
            ("postings", n, posting_bytes(n, last - first)),
        )  # fmt: skip
        for name, count, size in sections:
            self._body[name] = {"start": start, "count": count, "crc": 0}
            start += -(-count * size // PAGE) * PAGE
        self._body["size"] = start
        self._at = {name: self._body[name]["start"] for name, _, _ in sections}

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


def earlier(paths: Iterable[Path]) -> set[bool]:
    """For the files of a segment's runs that are not missing: whether they are of an earlier revision.

    Raises:
        StoreError: the system refuses to read one.
    """
    found: set[bool] = set()
    for path in paths:
        try:
            with path.open("rb") as file:
                found.add(file.read(len(EARLIER_MAGIC)) == EARLIER_MAGIC)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise refused(path, error) from None
    return found


def _cuts(runs: Sequence[Run], words: int, chunks: int) -> list[tuple[int, list[int]]]:
    """Cut all runs at the same keys, such that no two chunks share a word of the filter.

    Returns chunks + 1 pairs: word of the filter, and position in each run.
    """
    cuts = [(0, [0] * len(runs))]
    for chunk in range(1, chunks):
        word = words * chunk // chunks
        bound = -(-(word << 32) // words) << 32  # the least key of the word, see `filter_word`
        cuts.append((word, [run.position(bound) for run in runs]))
    return [*cuts, (words, [run.size for run in runs])]


@njit
def _add(keys, rows, first, filter, first_word, words, directory, bits, row_bits, postings):  # type: ignore[no-untyped-def]
    """Enter sorted keys into the part of the filter that begins at `first_word`, into the directory (as counts), and
    with their rows into the postings. Only damaged keys are outside this part."""
    shift = np.uint64(64 - bits)
    for i in range(len(keys)):
        key = keys[i]
        word = filter_word(key, np.uint64(words)) - first_word
        if 0 <= word < len(filter):
            filter[word] |= filter_mask(key)
        directory[np.int64(key >> shift) + 1] += np.uint32(1)
        postings[i] = first_posting(key, bits, row_bits) + np.uint64(rows[i] - first)


@njit
def _close(directory):  # type: ignore[no-untyped-def]
    """Turn counts into positions."""
    for i in range(1, len(directory)):
        directory[i] += directory[i - 1]


@njit(allocates=True)
def _merge(keys, rows, more_keys, more_rows):  # type: ignore[no-untyped-def]
    """Merge two sorted lists of postings. At equal keys those of the first list, which are older, are first."""
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
