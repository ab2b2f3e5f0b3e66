"""Search by words in what a list shows of a document: headline, source and id."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Annotated

from fastapi import Query

from stream_lsh.serve.headline import Headline

AT_ONCE = 50  # rows whose headlines are read at once
MOST_SEARCHED = 1000  # rows whose headlines are read for a page
SECONDS = 2.0  # after which a page ends
Q = Annotated[
    str | None,
    Query(max_length=200, description="only with all of these words, or their parts, in headlines, sources and ids"),
]


@dataclass(frozen=True, slots=True)
class Words:
    """The words of a search, in any case; none are in every row."""

    words: tuple[str, ...]

    @classmethod
    def of(cls, q: str | None) -> Words:
        return cls(() if q is None else tuple(q.casefold().split()))

    def are_in(self, *parts: object) -> bool:
        """Whether each word is in one of these parts of a row."""
        text = "\n".join(str(part) for part in parts if part is not None).casefold()
        return all(word in text for word in self.words)


def shown(id: object, of: Headline) -> tuple[object, ...]:
    """What a list shows of a document."""
    return id, of.headline, of.source


class Budget:
    """What a search may still read for its page."""

    def __init__(self) -> None:
        self._left = MOST_SEARCHED
        self._end = time.monotonic() + SECONDS

    def spend(self, rows: int) -> None:
        self._left -= rows

    @property
    def spent(self) -> bool:
        return self._left <= 0 or time.monotonic() > self._end
