"""Which events a listener gets."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, get_args

from stream_lsh.embedded.group_query import SourceFilter

Kind = Literal["verdict", "pair", "group", "alert"]
KINDS: tuple[Kind, ...] = get_args(Kind)
# In JSON strings the quotes would be escaped. The first place is that of the event itself, before its matches.
_SIMILARITY = re.compile(rb'"similarity":([-+.\deE]+|null)')
_TOTAL = re.compile(rb'"total_members":(\d+)')


@dataclass(frozen=True, slots=True)
class EventFilter:
    """The events of a listener.

    Attributes:
        kinds: of events.
        source: only events that a document of this source has caused.
        min_similarity: only verdicts and pairs with at least this similarity.
        min_total: only events of groups, and alerts about groups, with at least so many members ever.
    """

    kinds: frozenset[Kind] = frozenset(KINDS)
    source: SourceFilter | None = None
    min_similarity: float = 0.0
    min_total: int = 0

    @property
    def reads_events(self) -> bool:
        """Whether each event is looked into, which has its price."""
        return self.source is not None or self.min_similarity > 0 or self.min_total > 1

    def passes(self, kind: Kind, data: bytes, source: bytes) -> bool:
        """Whether a listener gets an event. source: of its document, as JSON text; b"" without one."""
        if kind not in self.kinds or (self.source is not None and not self.source.is_of(source)):
            return False
        if kind in ("verdict", "pair"):
            return self.min_similarity <= 0 or _number(_SIMILARITY, data) >= self.min_similarity
        return self.min_total <= 1 or _number(_TOTAL, data) >= self.min_total


def _number(where: re.Pattern[bytes], data: bytes) -> float:
    """A number of an event, -1 without one."""
    found = where.search(data)
    return -1.0 if found is None or found[1] == b"null" else float(found[1])
