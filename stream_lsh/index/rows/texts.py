"""Texts for exact verification: compressed in frames of up to 32 documents, and read when the shingles of a candidate
are not in memory."""

from __future__ import annotations

import struct
import threading
from array import array
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import zstandard
from numpy.typing import NDArray

from stream_lsh.errors import DamagedError, FormatError, StoreError
from stream_lsh.index.store.rocksdb import TEXTS, Store, rows_key

FRAME_DOCUMENTS = 32
FRAME_BYTES = 65536
# Level 1 as for large inputs: matches begin at 7 bytes, not 6. A tenth faster, and texts take 2 % more.
COMPRESSION = zstandard.ZstdCompressionParameters.from_level(
    1, min_match=7, write_content_size=False, write_checksum=True
)
CACHED_BYTES = 16 << 20
_ENTRY_BYTES = 512  # of a frame in the cache besides its texts: objects of Python, which short texts are smaller than
ALL = 1 << 62
"""A limit of bytes that is never reached."""
_HEADER = struct.Struct("<III")  # rows, texts, uncompressed size
Opened = tuple[NDArray[np.uint16], NDArray[np.uint32], bytes]
"""A value, decompressed: number of each row's text, ends of the texts, and all texts."""
_NOTHING: Opened = np.empty(0, np.uint16), np.empty(0, np.uint32), b""


@dataclass(slots=True)
class TextFrame:
    """Texts of some documents of a batch, mostly compressed before it is known which of them become rows."""

    documents: NDArray[np.int64]  # positions in the batch, ascending
    ends: NDArray[np.uint32]
    payload: bytes
    packed: bool = True  # the payload is compressed


class _Local(threading.local):
    """Compressors for each thread: to make one takes longer than to compress a short text. `sized` writes the size of
    the texts, which may be 0."""

    def __init__(self) -> None:
        self.compressor = zstandard.ZstdCompressor(compression_params=COMPRESSION)
        self.sized = zstandard.ZstdCompressor(level=1, write_checksum=True)


_LOCAL = _Local()


def compress(
    texts: bytes, ends: NDArray[np.int64], documents: NDArray[np.int64], *, all_packed: bool = True
) -> list[TextFrame]:
    """Frames of these documents of a batch. Compression releases the GIL.

    Args:
        all_packed: otherwise the texts of a few documents, if they are all of the batch, are left as they are: `Texts`
            compresses them with those of other batches.
    """
    if not len(documents):
        return []
    if not all_packed and len(documents) == len(ends) < FRAME_DOCUMENTS and len(texts) < FRAME_BYTES:
        return [TextFrame(documents, ends.astype(np.uint32), texts, False)]
    view, bounds, members, frames = memoryview(texts), [0, *ends.tolist()], documents.tolist(), []
    first = 0
    while first < len(members):
        filled, sums = 0, list[int]()
        for i in members[first : first + FRAME_DOCUMENTS]:
            filled += bounds[i + 1] - bounds[i]
            if sums and filled > FRAME_BYTES:
                break
            sums.append(filled)
        last = first + len(sums)
        begin, end = members[first], members[last - 1] + 1
        if end - begin == last - first:
            data: bytes | memoryview = view[bounds[begin] : bounds[end]]
        else:
            data = b"".join([view[bounds[i] : bounds[i + 1]] for i in members[first:last]])
        payload = _LOCAL.compressor.compress(data)
        frames.append(TextFrame(documents[first:last], np.array(sums, np.uint32), payload))
        first = last
    return frames


def decompress(frame: TextFrame) -> list[bytes]:
    """The texts of a frame.

    Raises:
        StoreError: it is damaged.
    """
    bounds, data = [0, *frame.ends.tolist()], frame.payload
    try:
        if frame.packed:
            data = zstandard.ZstdDecompressor().decompress(data, max_output_size=bounds[-1])
    except zstandard.ZstdError as error:
        raise StoreError(f"the texts of a frame are damaged ({error})") from None
    return [data[a:b] for a, b in pairwise(bounds)]


def texts_in(value: bytes) -> list[bytes]:
    """The texts of the rows of a stored value.

    Raises:
        FormatError: it is damaged.
    """
    try:
        slots, ends, data = _opened(value, zstandard.ZstdDecompressor())
    except (struct.error, ValueError, zstandard.ZstdError) as error:
        raise FormatError(f"the texts of a change are damaged ({error})") from None
    bounds = [0, *ends.tolist()]
    return [data[bounds[slot] : bounds[slot + 1]] for slot in slots.tolist()]


def _opened(value: bytes, decompressor: zstandard.ZstdDecompressor) -> Opened:
    n_rows, n_texts, size = _HEADER.unpack_from(value)
    at = _HEADER.size
    slots = np.frombuffer(value, np.uint16, n_rows, at).copy()  # copies, so that a cache does not keep the value
    ends = np.frombuffer(value, np.uint32, n_texts, at + slots.nbytes).copy()
    payload = memoryview(value)[at + slots.nbytes + ends.nbytes :]
    return slots, ends, decompressor.decompress(payload, max_output_size=size)


def _size(frame: Opened) -> int:
    """The bytes that a frame takes in memory."""
    slots, ends, data = frame
    return _ENTRY_BYTES + slots.nbytes + ends.nbytes + len(data)


def _together(texts: Sequence[bytes]) -> TextFrame:
    """A frame of a few texts."""
    ends = np.cumsum([len(text) for text in texts]).astype(np.uint32)
    return TextFrame(np.arange(len(texts)), ends, _LOCAL.sized.compress(b"".join(texts)))


def _value(slots: array[int] | NDArray[np.uint16], frame: TextFrame) -> bytes:
    """A frame as a value of the store; slots: number of each row's text."""
    header = _HEADER.pack(len(slots), len(frame.ends), int(frame.ends[-1]))
    return b"".join((header, slots.tobytes(), frame.ends.tobytes(), frame.payload))


class Texts:
    """The texts of a shard's rows: those not committed, a cache, and the store.

    Args:
        segment_of: number of the segment of a row.
    """

    def __init__(self, store: Store, shard: int, segment_of: Callable[[int], int]) -> None:
        self._store = store
        self._shard = shard
        self._segment_of = segment_of
        self._pending: list[tuple[int, bytes]] = []
        self._loose: dict[int, bytes] = {}  # later ones, which are not compressed yet
        self._loose_bytes = 0
        self._cache: OrderedDict[int, Opened] = OrderedDict()
        self._cached = 0
        self._decompressor = zstandard.ZstdDecompressor()

    def add(self, frames: Sequence[TextFrame], row_of: Mapping[int, int]) -> None:
        """Add the frames of a batch whose documents became these rows, all of one segment."""
        for frame in frames:
            documents = frame.documents.tolist()
            rows = [row_of[document] for document in documents if document in row_of]
            if not rows:
                continue
            if not frame.packed:
                for document, text in zip(documents, decompress(frame), strict=True):
                    if document in row_of:
                        self._loose[row_of[document]] = text
                        self._loose_bytes += len(text)
                if len(self._loose) >= FRAME_DOCUMENTS or self._loose_bytes > FRAME_BYTES:
                    self.pack()
                continue
            self.pack()
            # Texts of other documents would remain when their ids are erased.
            if len(rows) < len(documents):
                texts = zip(documents, decompress(frame), strict=True)
                frame = _together([text for document, text in texts if document in row_of])
            self._append(rows, frame)

    def pack(self) -> None:
        """Compress what is not compressed yet; where a segment begins too, because a value belongs to one."""
        if self._loose:
            self._append([*self._loose], _together([*self._loose.values()]))
            self._loose, self._loose_bytes = {}, 0

    def _append(self, rows: Sequence[int], frame: TextFrame) -> None:
        slots = array("H", range(len(rows)))
        if rows[-1] - rows[0] >= len(rows):  # rows between them have no documents
            slots = array("H", bytes(2 * (rows[-1] - rows[0] + 1)))
            for k, row in enumerate(rows):
                slots[row - rows[0]] = k
        self._pending.append((rows[0], _value(slots, frame)))

    def take(self) -> dict[bytes, bytes]:
        """The values to commit. Afterwards they are read from the store."""
        self.pack()
        pending, self._pending = self._pending, []
        return {
            rows_key(TEXTS, self._shard, self._segment_of(first), first): value for first, value in pending
        }  # fmt: skip

    def without(self, rows: Sequence[int], most: int = ALL) -> tuple[dict[bytes, bytes], int]:
        """The stored values in which the texts of the first of these rows are empty, until the values have `most`
        bytes; and the number of these rows. The rows are committed."""
        values, at = dict[bytes, bytes](), 0
        while at < len(rows) and most > 0:
            number = self._segment_of(rows[at])
            first, value = self._store.holding(TEXTS, self._shard, number, rows[at])
            slots, ends, data = self._open(first, value)
            end = bisect_left(rows, first + len(slots), at + 1)
            bounds = [0, *ends.tolist()]
            texts = [data[a:b] for a, b in pairwise(bounds)]
            for row in rows[at:end]:
                texts[int(slots[row - first])] = b""
            made = _value(slots, _together(texts))
            values[rows_key(TEXTS, self._shard, number, first)] = made
            at, most = end, most - len(made)
        return values, at

    def erased(self, rows: Iterable[int]) -> None:
        """The values of `without` are in the store."""
        erased = list(rows)
        for first in list(self._cache) if erased else ():
            at = bisect_left(erased, first)
            if at < len(erased) and erased[at] < first + len(self._cache[first][0]):
                self._cached -= _size(self._cache.pop(first))

    def read(self, rows: Iterable[int], most: int) -> list[memoryview]:
        """The UTF-8 texts of the first of these rows, until they have `most` bytes.

        Args:
            rows: ascending.

        Raises:
            StoreError: one is missing or damaged.
        """
        found: list[memoryview] = []
        first, (slots, ends, data) = 0, _NOTHING
        for row in rows:
            if most <= 0:
                break
            if row - first >= len(slots):
                first, (slots, ends, data) = self._frame(row)
            slot = int(slots[row - first])
            found.append(memoryview(data)[int(ends[slot - 1]) if slot else 0 : int(ends[slot])])
            most -= len(found[-1])
        return found

    def _frame(self, row: int) -> tuple[int, Opened]:
        if self._cache:  # the frame read last: it has often the next row too
            first = next(reversed(self._cache))
            if first <= row < first + len(self._cache[first][0]):
                return first, self._cache[first]
        if self._loose and row >= next(iter(self._loose)):
            self.pack()
        if self._pending and row >= self._pending[0][0]:
            first, value = self._pending[bisect_right(self._pending, row, key=lambda item: item[0]) - 1]
        else:
            first, value = self._store.holding(TEXTS, self._shard, self._segment_of(row), row)
        frame = self._cache.get(first)
        if frame is None:
            frame = self._open(first, value)
            self._cache[first] = frame
            self._cached += _size(frame)
            while self._cached > CACHED_BYTES and len(self._cache) > 1:
                self._cached -= _size(self._cache.popitem(last=False)[1])
        else:
            self._cache.move_to_end(first)
        if row - first >= len(frame[0]):
            raise DamagedError(
                f"{self._store.path}: the text of row {row} of shard {self._shard} is missing; start a new folder"
            )
        return first, frame

    def _open(self, first: int, value: bytes) -> Opened:
        try:
            return _opened(value, self._decompressor)
        except (struct.error, ValueError, zstandard.ZstdError) as error:
            where = f"{self._store.path}: the texts from row {first} of shard {self._shard}"
            raise DamagedError(f"{where} are damaged ({error}); start a new folder") from None
