"""Server-sent events, as a client reads them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

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
    """The events in the lines of a stream, which may be cut off and begun again.

    Attributes:
        place: after which the stream continues; None = from now on.
    """

    def __init__(self, place: str | None) -> None:
        self.place = place
        self._fields: dict[str, str] = {}

    @property
    def headers(self) -> dict[str, str]:
        """The headers of a request that continues the stream."""
        self._fields = {}
        return {} if self.place is None else {"Last-Event-ID": self.place}

    def event(self, line: str) -> Event | None:
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
