"""Where the documents of a frame are from, in columns, which accompany them until they have their verdicts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import orjson
from numpy.typing import NDArray

from stream_lsh.documents.columns import Rejection
from stream_lsh.documents.engine_errors import shown_id
from stream_lsh.errors import FormatError
from stream_lsh.index.rows.layout import PARTITION_MASK
from stream_lsh.settings.model import Settings
from stream_lsh.wire.envelope import Section, column, join, split

ROW_BITS = 12
MOST_ROWS = 1 << ROW_BITS
"""Most documents of a frame: a document's number is the frame's offset << ROW_BITS | its place."""
TOPIC_BITS = 20
"""A source partition is numbered topic << TOPIC_BITS | partition. topic: its number among the documents topics."""

Headers = list[tuple[str, bytes]]

_LENGTHS = 7
"""Bytes of the lengths of a header's name and value, at most."""


class Record(Protocol):
    """What is used of a record of the documents topic. timestamp: ms since 1970, -1 if the record has none."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def timestamp(self) -> int: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> Sequence[tuple[str, bytes | None]]: ...


def source_of(topics: Sequence[str], topic: str, partition: int) -> int:
    """The number of a source partition, by the documents topics in their order."""
    return topics.index(topic) << TOPIC_BITS | partition


def place_of(topics: Sequence[str], source: int) -> tuple[str, int]:
    """Topic and partition of a source partition."""
    return topics[source >> TOPIC_BITS], output_of(source)


def output_of(source: int) -> int:
    """The partition in which the outputs of a source partition are."""
    return source & ((1 << TOPIC_BITS) - 1)


def row_bits(sources: NDArray[np.int32]) -> NDArray[np.int64]:
    """What a row keeps of its source partition, of 8 bits: whether an update is from another one."""
    return (sources ^ sources >> TOPIC_BITS) & PARTITION_MASK


def header_bytes(headers: Iterable[tuple[str, bytes | None]]) -> int:
    """Bytes of a record's headers."""
    return sum([len(name) + len(value or b"") for name, value in headers])


def record_size(key: bytes | None, value: bytes | None, headers: Sequence[tuple[str, bytes | None]]) -> int:
    """Bytes of a record, at most. Kafka writes the lengths of each header, too."""
    names = sum([len(name.encode()) + len(value or b"") for name, value in headers])
    return len(key or b"") + len(value or b"") + names + _LENGTHS * len(headers)


def is_passed_over(record: Record, settings: Settings) -> bool:
    """Whether a record is no document and has no verdict: Debezium's tombstone, which follows the event of a deletion
    for the sake of compaction."""
    return record.value is None and settings.envelope == "debezium"


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """Where the n documents of a frame are from, in columns, and what their verdicts have besides matches.

    Attributes:
        partitions, offsets: int32[n], int64[n], source partitions (see TOPIC_BITS), and offsets in these.
        ids: JSON text.
        times: int64[n], event times in ms, or NO_TIME.
        signed_at: ms since 1970.
        rejected: by place, rejected in parsing or signing.
        headers: by place, those that are passed through.
        sources: JSON text of `source_field`, b"" for none; empty without `source_field`.
    """

    partitions: NDArray[np.int32]
    offsets: NDArray[np.int64]
    ids: list[bytes]
    times: NDArray[np.int64]
    signed_at: int
    rejected: dict[int, Rejection] = field(default_factory=dict)
    headers: dict[int, Headers] = field(default_factory=dict)
    sources: list[bytes] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.ids)

    def at(self, rows: Sequence[int]) -> Source:
        """The documents at these places."""
        numbers = {i: number for number, i in enumerate(rows)}
        return Source(
            self.partitions[rows], self.offsets[rows], [self.ids[i] for i in rows], self.times[rows], self.signed_at,
            {numbers[i]: why for i, why in self.rejected.items() if i in numbers},
            {numbers[i]: found for i, found in self.headers.items() if i in numbers},
            [self.sources[i] for i in rows] if self.sources else [],
        )  # fmt: skip

    def place(self, where: Callable[[int], str], i: int) -> str:
        """Where document i is, for people. where: says which source partition it is."""
        return f"{where(int(self.partitions[i]))}, offset {self.offsets[i]}, id {shown_id(self.ids[i])}"

    @staticmethod
    def count(settings: Settings) -> int:
        """Number of sections of the columns."""
        return 8 if settings.source_field is not None else 6

    def sections(self, settings: Settings) -> list[Section]:
        """The columns as `count` sections."""
        named = join(self.sources) if settings.source_field is not None else ()
        facts = {
            "signed_at": self.signed_at,
            "rejected": plain_rejections(self.rejected),
            "headers": plain_headers(self.headers),
        }
        return [
            np.ascontiguousarray(self.partitions, np.int32), np.ascontiguousarray(self.offsets, np.int64),
            *join(self.ids), np.ascontiguousarray(self.times, np.int64), orjson.dumps(facts), *named,
        ]  # fmt: skip

    @classmethod
    def of(cls, sections: Sequence[memoryview]) -> Source:
        """Decode sections of `sections`.

        Raises:
            FormatError: the columns do not fit together.
        """
        partitions, offsets, ends, ids, times, facts, *named = sections
        names, sources = split(ends, ids), split(*named) if named else []
        n = len(names)
        if named and len(sources) != n:
            raise FormatError(f"a frame is damaged: it has {len(sources)} sources of {n} documents")
        found = facts_of(facts)
        try:
            return cls(
                column(partitions, np.int32, n), column(offsets, np.int64, n), names, column(times, np.int64, n),
                found["signed_at"],
                {int(i): Rejection(*why) for i, why in found["rejected"].items()},
                parsed_headers(found["headers"]),
                sources,
            )  # fmt: skip
        except (KeyError, TypeError, ValueError) as error:
            raise _unreadable(error) from None


def facts_of(data: memoryview) -> dict[str, Any]:
    """The JSON section of `Source.sections`.

    Raises:
        FormatError: it cannot be read.
    """
    try:
        found: dict[str, Any] = orjson.loads(data)
        if not isinstance(found["signed_at"], int):
            raise TypeError("signed_at is no number")
        return found
    except (KeyError, TypeError, ValueError) as error:
        raise _unreadable(error) from None


def plain_rejections(rejected: Mapping[int, Rejection]) -> dict[str, list[Any]]:
    """Why documents were rejected, for JSON."""
    return {str(i): [why.reason, why.detail, why.size] for i, why in rejected.items()}


def parsed_rejections(data: memoryview) -> dict[int, Rejection]:
    """The JSON of `plain_rejections`.

    Raises:
        FormatError: it cannot be read.
    """
    try:
        return {int(i): Rejection(*why) for i, why in orjson.loads(data).items()}
    except (AttributeError, TypeError, ValueError) as error:
        raise _unreadable(error) from None


def plain_headers(headers: Mapping[int, Headers]) -> dict[str, list[list[str]]]:
    """Headers by document, for JSON."""
    return {str(i): [[name, value.decode("latin-1")] for name, value in found] for i, found in headers.items()}


def parsed_headers(plain: Any) -> dict[int, Headers]:
    """Headers by document, as `plain_headers` gave them to JSON.

    Raises:
        FormatError: they cannot be read.
    """
    try:
        return {int(i): [(k, v.encode("latin-1")) for k, v in pairs] for i, pairs in plain.items()}
    except (AttributeError, TypeError, ValueError) as error:
        raise _unreadable(error) from None


def _unreadable(error: Exception) -> FormatError:
    return FormatError(f"a frame is damaged: its facts cannot be read ({error})")


def numbers(offset: int, n: int) -> NDArray[np.int64]:
    """The numbers (seq) of the n documents of the frame at an offset."""
    return (offset << ROW_BITS) + np.arange(n, dtype=np.int64)
