"""The answers of a shard that may be asked for again. The rows of an answer are in the store anyway. So only their keys
are stored with it, and what is not stored elsewhere for long enough."""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Mapping
from itertools import pairwise

import numpy as np

from stream_lsh.errors import DamagedError
from stream_lsh.index.store.rocksdb import ANSWERS, DECISIONS, FREQUENCIES, ROWS, Store, parts_of, rows_key
from stream_lsh.settings.model import Settings
from stream_lsh.wire.changes import LATE, Change, Seen
from stream_lsh.wire.source import MOST_ROWS

KEPT_FRAMES = 256  # minimum number of answers that are stored
_ANSWER = struct.Struct("<qqqI")  # predecessor, rows before and after, number of keys; then `Change.late`, if any
_DELETED_ROWS = struct.Struct("<I")  # number of rows in `Change.deleted_rows`, if there are any
_SIZE = struct.Struct("<I")  # bytes of `Change.seen`, with a window
_WAITS = 1 << 31  # flag in the number of keys: `Change.waits` follows, with its size as for `Change.seen`
_KEY_BYTES = len(rows_key(ROWS, 0, 0, 0))
# Kinds whose values are stored with the answer. Later frames overwrite counters. Decisions are about rows of earlier
# frames, and their segment may leave the window before the answer is deleted.
_COPIED = (FREQUENCIES, DECISIONS)


class KeptAnswers:
    """The stored answers of a shard. Their values are written together with the frame's other values.

    Args:
        rows: current number of rows. For answers that are stored already, it replaces the unknown number at their time.
    """

    def __init__(self, settings: Settings, store: Store, shard: int, rows: int) -> None:
        self._settings = settings
        self._store = store
        self._shard = shard
        # Their frames, and the row after each: for answers of an earlier run an upper bound.
        self._frames = deque((frame, rows) for frame in store.numbers(ANSWERS, shard))

    def add(self, change: Change, deleted: list[bytes], fresh: dict[bytes, bytes]) -> dict[bytes, bytes]:
        """The value that stores an answer. Old answers are deleted, or removed from `fresh` if not written yet.

        The sequencer limits the documents in flight: no answer is asked for again once as many frames, or rows, follow
        it. A sequencer of version 0.1 counts only frames; but no more frames of a shard than `Flow` takes at once are
        unanswered.
        """
        settings = self._settings
        rows, most = settings.most_rows * settings.decision_lag, max(settings.decision_lag + 1, KEPT_FRAMES)
        self._frames.append((change.offset, change.last))
        while len(self._frames) > most or (
            len(self._frames) > KEPT_FRAMES and change.last - self._frames[0][1] > rows + settings.most_rows * MOST_ROWS
        ):
            old = self._key(self._frames.popleft()[0])
            if fresh.pop(old, None) is None:
                deleted.append(old)
        head = _ANSWER.pack(
            change.predecessor, change.first, change.last, len(change.values) | (_WAITS if change.waits else 0)
        )
        late, seen = LATE.pack(*change.late) if change.late else b"", b""
        marks = b""
        if settings.marks_rows:
            marks = _DELETED_ROWS.pack(len(change.deleted_rows)) + change.deleted_rows.tobytes()
        if change.seen is not None:
            seen = _sized(change.seen.encode())
        waits = _sized(change.waits) if change.waits else b""
        copied = b"".join(_sized(value) for key, value in change.values.items() if key.startswith(_COPIED))
        parts = (head, late, marks, seen, waits, *change.values, copied, change.reply)
        return {self._key(change.offset): b"".join(parts)}

    def forget(self, frame: int) -> list[bytes]:
        """The keys of the answers up to this frame. No reader can ask for them any more."""
        keys = []
        while self._frames and self._frames[0][0] <= frame:
            keys.append(self._key(self._frames.popleft()[0]))
        return keys

    def agrees(self, change: Change) -> bool:
        """Whether a change has the reply that is stored for its frame, or none is stored any more."""
        value = self._store.value(self._key(change.offset))
        return value is None or value.endswith(change.reply)

    def first_row(self, otherwise: int, *, behind: int = -1) -> int:
        """The first row of the oldest answer after frame `behind`, which is assembled from its rows; `otherwise` if
        there is none."""
        oldest = next((frame for frame, _ in self._frames if frame > behind), None)
        value = None if oldest is None else self._store.value(self._key(oldest))
        return otherwise if value is None else int(_ANSWER.unpack_from(value)[1])

    def change(self, frame: int, key: bytes, flushed: Callable[[int, int], bytes]) -> Change | None:
        """The change of a frame again; None if it is too old to be asked for.

        Args:
            key: of the index.
            flushed: the value of the rows from one to before another that are no longer in the store.

        Raises:
            DamagedError: a value is missing.
        """
        value = self._store.value(self._key(frame))
        if value is None:
            return None
        predecessor, first, last, n = _ANSWER.unpack_from(value)
        begin, late, seen = _ANSWER.size, None, None
        if self._settings.late:
            late = LATE.unpack_from(value, begin)
            begin += LATE.size
        deleted = np.empty(0, np.int64)
        if self._settings.marks_rows:
            (m,) = _DELETED_ROWS.unpack_from(value, begin)
            deleted = np.frombuffer(value, np.int64, m, begin + _DELETED_ROWS.size)
            begin += _DELETED_ROWS.size + deleted.nbytes
        if self._settings.window is not None:
            found, begin = _sized_at(value, begin)
            seen = Seen.decode(found)
        waits = b""
        if n & _WAITS:
            waits, begin = _sized_at(value, begin)
            n -= _WAITS
        at = begin + n * _KEY_BYTES
        keys = [value[k : k + _KEY_BYTES] for k in range(begin, at, _KEY_BYTES)]
        here = dict[bytes, bytes]()
        for mine in keys:
            if mine.startswith(_COPIED):
                here[mine], at = _sized_at(value, at)
        values = self._values(keys, here, last, flushed)
        return Change(self._shard, frame, predecessor, first, last, key, values, value[at:], late, deleted, seen, waits)

    def _values(
        self, keys: list[bytes], here: Mapping[bytes, bytes], last: int, flushed: Callable[[int, int], bytes]
    ) -> dict[bytes, bytes]:
        """The values of a frame under these keys, in this order. `here` has precedence over the store. The frame's rows
        end before `last`."""
        starts = [parts_of(key)[3] for key in keys if key.startswith(ROWS)]
        ends = dict(pairwise([*starts, last]))
        values = {}
        for key in keys:
            kind, *_, first = parts_of(key)
            value = here[key] if key in here else self._store.value(key)
            if value is None and kind == ROWS:
                value = flushed(first, ends[first])
            if value is None:
                raise missing(self._store, self._shard, first)
            values[key] = value
        return values

    def _key(self, frame: int) -> bytes:
        return rows_key(ANSWERS, self._shard, 0, frame)


def _sized(data: bytes) -> bytes:
    return _SIZE.pack(len(data)) + data


def _sized_at(value: bytes, at: int) -> tuple[bytes, int]:
    """The data of `_sized`, and its end."""
    begin = at + _SIZE.size
    end = begin + _SIZE.unpack_from(value, at)[0]
    return value[begin:end], end


def missing(store: Store, shard: int, row: int) -> DamagedError:
    """The error for missing data of a row."""
    return DamagedError(
        f"{store.path}: data of row {row} of shard {shard} are missing; delete the folder: it is rebuilt from "
        "the changelog"
    )
