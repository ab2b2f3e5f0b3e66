"""The trace context of a document (W3C Trace Context): the headers `traceparent` and `tracestate` that came with it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stream_lsh.wire.source import Headers

PARENT, STATE = "traceparent", "tracestate"
_PARENT = re.compile(rb"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_STATE = re.compile(rb"[ -~]{1,512}")

TraceOf = Callable[[int], "Headers"]
"""From the place of a document in its batch to its trace context."""


def trace_of(headers: Iterable[tuple[str, bytes | None]]) -> Headers:
    """The trace context among the headers of a document; empty without a valid `traceparent`. Other headers and a
    `tracestate` of more than 512 bytes are left out."""
    found = {name: value for name, value in headers if value and name in (PARENT, STATE)}
    if not _PARENT.fullmatch(found.get(PARENT, b"")):
        return []
    state = found.get(STATE, b"")
    return [(PARENT, found[PARENT]), *([(STATE, state)] if _STATE.fullmatch(state) else [])]


def no_trace(_: int) -> Headers:
    """The `TraceOf` of documents without a trace context."""
    return []
