"""Header names that are not UTF-8: Kafka takes them, and aiokafka does not get past a record that has one."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from aiokafka.consumer import fetcher
from aiokafka.errors import CorruptRecordException
from aiokafka.record.default_records import DefaultRecordBatch, _DefaultRecordBatchPy
from aiokafka.record.memory_records import _MemoryRecordsPy


def read_any() -> None:
    """Let all consumers of this process read such records: of a byte 0xff in a name they make the text \\xff.

    So these names are not passed on as they were: aiokafka can send no name that is not UTF-8.
    """
    fetcher.MemoryRecords = _Records


class _Records(_MemoryRecordsPy):  # type: ignore[misc]  # aiokafka has no types
    """What a broker has sent of a partition, batch by batch."""

    def next_batch(self, *sizes: int) -> Any:
        data = self._next_slice
        batch = super().next_batch(*sizes)
        # Older formats have no headers, and of control batches only single records are asked for.
        return _Batch(batch, data) if isinstance(batch, DefaultRecordBatch) and not batch.is_control_batch else batch


class _Batch:
    """A batch like aiokafka's. It is read a second time, slowly, if it cannot be read as aiokafka does it."""

    def __init__(self, strict: Any, data: memoryview) -> None:
        self._strict = strict
        self._data = data

    def __getattr__(self, name: str) -> Any:
        return getattr(self._strict, name)

    def __iter__(self) -> Iterator[Any]:
        read = 0
        try:
            for record in self._strict:
                yield record
                read += 1
            return
        except (UnicodeDecodeError, CorruptRecordException):  # the latter where aiokafka has not been compiled
            lenient = iter(_DefaultRecordBatchPy(self._data))  # unpacks it
        lenient._buffer = _Bytes(lenient._buffer)
        yield from islice(lenient, read, None)


class _Bytes(bytearray):
    """Any part of it is text."""

    def __getitem__(self, key: Any) -> Any:
        found = super().__getitem__(key)
        return _Bytes(found) if isinstance(key, slice) else found

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return super().decode(encoding, "backslashreplace")
