"""What a signer has read and not signed yet. With a window, the partitions are signed side by side by their times.

The next record is that of the partition whose next record is the oldest by its timestamp, as in Kafka Streams. A
partition with unread records holds up those that are ahead of it. A record counts as old as the oldest of it and the
seven after it, so that a few timestamps in the future do not hold up their own partition.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from stream_lsh.kafka.sign.framing import Chunk
from stream_lsh.kafka.sign.records import timestamps
from stream_lsh.wire.source import header_bytes

SHARE = 64
"""A 64th of the window is a slot: records of a slot are signed partition by partition, in longer runs."""
NEXT = 8  # records of which the oldest timestamp counts
_FIRST, _LAST = np.iinfo(np.int64).min, np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class _Part:
    """A chunk with the slots int64[n] of its records, ascending, and its number in the order of arrival."""

    chunk: Chunk
    slots: NDArray[np.int64]
    number: int

    @property
    def head(self) -> tuple[int, int, int]:
        """Its place in the order, and its partition. A chunk without records waits for nothing."""
        return int(self.slots[0]) if len(self.slots) else _FIRST, self.number, self.chunk.partition


class Pending:
    """Chunks that wait to be signed.

    Args:
        window: in ms. None: all records have the same time, so that the order of arrival decides.
    """

    def __init__(self, window: int | None = None) -> None:
        self._slot = None if window is None else max(window // SHARE, 1)
        self._parts: dict[int, deque[_Part]] = {}
        self._latest: dict[int, int] = {}  # by partition, the latest slot of what is here, or was
        self._added = 0
        self.documents = 0
        self.bytes = 0

    def __bool__(self) -> bool:
        return bool(self._parts)

    def __contains__(self, partition: int) -> bool:
        return partition in self._parts

    def add(self, chunk: Chunk) -> None:
        """Add the next records of a partition."""
        slots = np.zeros(len(chunk.records), np.int64)
        if self._slot is not None and len(slots):
            slots = _oldest(timestamps(chunk.records)) // self._slot
            known = self._latest.get(chunk.partition, _FIRST) if chunk.partition in self else _FIRST
            self._latest[chunk.partition] = max(known, int(slots[-1]))
        self._parts.setdefault(chunk.partition, deque()).append(_Part(chunk, slots, self._added))
        self._added += 1
        self.documents += len(chunk.records)
        self.bytes += _bytes(chunk)

    def ready(self, unread: Collection[int] = ()) -> bool:
        """Whether `take` would take something."""
        end = self._end(unread)
        return any(parts[0].head[0] <= end for parts in self._parts.values())

    def take(self, most: int, unread: Collection[int] = ()) -> list[Chunk]:
        """Take out the next `most` documents, or all if there are fewer.

        Args:
            unread: partitions that have further records. Nothing is taken that may come after one of these.
        """
        end, taken = self._end(unread), list[Chunk]()
        heads = [parts[0].head for parts in self._parts.values()]
        heapq.heapify(heads)
        while heads and heads[0][0] <= end and (most or heads[0][0] == _FIRST):
            *_, partition = heapq.heappop(heads)
            slot, number, _ = heads[0] if heads else (_LAST, _LAST, 0)
            parts = self._parts[partition]
            part = parts.popleft()
            n = int(np.searchsorted(part.slots, slot, "right" if part.number < number else "left"))
            n = min(n, int(np.searchsorted(part.slots, end, "right")), most)
            if n < len(part.slots):
                head, rest = part.chunk.split(n)
                taken.append(head)
                parts.appendleft(_Part(rest, part.slots[n:], part.number))
            else:
                taken.append(part.chunk)
            if parts:
                heapq.heappush(heads, parts[0].head)
            else:
                del self._parts[partition]
            most -= n
        self.documents -= sum(len(chunk.records) for chunk in taken)
        self.bytes -= sum(map(_bytes, taken))
        return taken

    def _end(self, unread: Collection[int]) -> int:
        """The slot up to which nothing that is unread comes before what is here."""
        if self._slot is None:
            return _LAST
        return min((self._latest.get(partition, _FIRST) for partition in unread), default=_LAST)

    def clear(self) -> None:
        """Drop all of them."""
        self._parts.clear()
        self._latest.clear()
        self.documents = self.bytes = 0


def _oldest(times: NDArray[np.int64]) -> NDArray[np.int64]:
    """Of n > 0 times, ascending: the oldest of each and the next ones. The last ones count as old as those before."""
    if len(times) < NEXT:
        return np.full(len(times), times.min())
    oldest = np.maximum.accumulate(sliding_window_view(times, NEXT).min(axis=1))
    return np.pad(oldest, (0, NEXT - 1), mode="edge")


def _bytes(chunk: Chunk) -> int:
    return sum([len(record.value or b"") + header_bytes(record.headers) for record in chunk.records])
