"""Server-sent events, as a client reads them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from stream_lsh.client.retries import Retries

PATH = "/v1/events"
SILENT_SECONDS = 45.0  # without a line, after which the connection is lost; the service sends one each 15 seconds
Kind = Literal["verdict", "pair", "group", "alert", "gap"]


@dataclass(frozen=True, slots=True)
class Event:
    """An event of the service.

    Attributes:
        place: `seq.n`; a listener continues after it.
        kind: what `data` is; `gap` says that events between two places are missing.
    """

    place: str
    kind: Kind
    data: dict[str, Any]


class Feed:
    """The events in the bytes of a stream, which may be cut off and begun again.

    Args:
        attempts: most times that the stream is begun without an event.

    Attributes:
        place: after which the stream continues; None = from now on.
        retries: of a stream that was lost.
    """

    def __init__(self, place: str | None, attempts: int) -> None:
        self.place = place
        self.retries = Retries(f"GET {PATH}", attempts)
        self._fields: dict[str, str] = {}
        self._begun: list[bytes] = []  # of a line without its end

    @property
    def headers(self) -> dict[str, str]:
        """The headers of a request that continues the stream."""
        self._fields, self._begun = {}, []
        return {} if self.place is None else {"Last-Event-ID": self.place}

    def events(self, block: bytes) -> Iterator[Event]:
        """The events that end in the next bytes of the stream. Ids may have characters that end lines in Unicode, so
        only a newline ends a line."""
        self.retries.failures = 0
        end, *others = block.split(b"\n")
        self._begun.append(end)
        for begin in others:
            line, self._begun = b"".join(self._begun), [begin]
            if (event := self._event(line.decode())) is not None:
                yield event

    def _event(self, line: str) -> Event | None:
        """The event that ends with a line without its newline, if one does."""
        if line:
            if not line.startswith(":"):
                name, _, value = line.partition(": ")
                self._fields[name] = value
            return None
        fields, self._fields = self._fields, {}
        self.place = fields.get("id", self.place)
        if "data" not in fields:
            return None
        return Event(self.place or "", fields.get("event", "verdict"), json.loads(fields["data"]))  # type: ignore[arg-type]
