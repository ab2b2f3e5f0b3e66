"""Work that requests ask of the writer, and its results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from stream_lsh.documents.columns import Rejection
from stream_lsh.embedded.engine import Engine, Judged
from stream_lsh.embedded.lines import Lines
from stream_lsh.serve.conditions import Condition
from stream_lsh.serve.retries import Retry
from stream_lsh.wire.source import Headers


@dataclass(frozen=True, slots=True)
class Answers:
    """The answers to the documents of a request.

    Attributes:
        lines: one JSON object per document.
        rejected: reasons of rejected documents, by position.
        late: where a verdict will be that is not there in time, by position.
        repeated: whether they are those of an earlier request with the same idempotency key.
    """

    lines: Sequence[bytes]
    rejected: Mapping[int, Rejection]
    late: Mapping[int, str] = field(default_factory=dict)
    repeated: bool = False


@dataclass(slots=True, eq=False, kw_only=True)
class Work:
    """What is asked of the writer. The attributes are of work that changes the index.

    Attributes:
        retry: the idempotency key.
        durable: whether the answer waits for the commit.
        condition: on the version of the first document.
        trace: the trace context of the request.
    """

    durable: bool = False
    retry: Retry | None = None
    condition: Condition | None = None
    trace: Headers = field(default_factory=list)

    def __len__(self) -> int:
        return 1


@dataclass(slots=True, eq=False)
class Check(Work):
    """Documents to be judged, each as if it were the next one."""

    lines: Lines

    def __len__(self) -> int:
        return len(self.lines.starts)


@dataclass(slots=True, eq=False)
class Add(Work):
    """Documents to be judged and stored."""

    lines: Lines
    durable: bool = field(default=True, kw_only=True)

    def __len__(self) -> int:
        return len(self.lines.starts)


@dataclass(slots=True, eq=False)
class Delete(Work):
    """Documents to be deleted."""

    ids: Sequence[str | int]
    durable: bool = field(default=True, kw_only=True)

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(slots=True, eq=False)
class Look(Work):
    """A function that reads the index. ids: of the documents that it reads, as JSON text."""

    read: Callable[[Engine], Any]
    ids: Set[bytes] = frozenset()


@dataclass(slots=True)
class Round:
    """The batches of one commit in order, with their verdicts as `dedup` writes them."""

    judged: list[tuple[Judged, list[bytes]]] = field(default_factory=list)


def joined(parts: Sequence[Lines]) -> Lines:
    """Lines concatenated. Their numbers and offsets are dropped."""
    if len(parts) == 1:
        return parts[0]
    at = np.cumsum([0, *(len(part.data) for part in parts)])
    places = np.cumsum([0, *(len(part.starts) for part in parts)])
    starts = np.concatenate([part.starts + begin for part, begin in zip(parts, at, strict=False)])
    ends = np.concatenate([part.ends + begin for part, begin in zip(parts, at, strict=False)])
    rejected = {
        i + int(place): why for part, place in zip(parts, places, strict=False) for i, why in part.rejected.items()
    }  # fmt: skip
    none = np.empty(0, np.int64)
    return Lines(b"".join(part.data for part in parts), starts, ends, none, none, rejected, parts[-1].position)
