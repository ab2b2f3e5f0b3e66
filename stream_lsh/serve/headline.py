"""The headline of a document: what a person reads instead of its id. Pure, but for reading an index."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from stream_lsh.documents.times import NO_TIME
from stream_lsh.embedded.engine import Engine
from stream_lsh.embedded.group_store import source_of
from stream_lsh.index.rows import layout
from stream_lsh.settings.model import Settings

MOST_CHARACTERS = 160
_BEGIN = 4 * MOST_CHARACTERS  # characters of a text that are looked at


@dataclass(frozen=True, slots=True)
class Headline:
    """What a list shows of a document.

    Attributes:
        headline: the first line of its text, shortened; None if it has no text.
        source: its source, None if it has none.
        time: event time in ms since 1970, None if it has none.
    """

    headline: str | None = None
    source: str | int | None = None
    time: int | None = None

    @property
    def json(self) -> dict[str, Any]:
        return {"headline": self.headline, "source": self.source, "time": self.time}


UNKNOWN = Headline()


def headline(text: str) -> str | None:
    """The first line of a text with anything to read, at most MOST_CHARACTERS long; None if there is none."""
    begin = text.lstrip()[:_BEGIN]
    line = " ".join(begin.split("\n", 1)[0].split())
    if len(line) > MOST_CHARACTERS:
        words = line[: MOST_CHARACTERS - 1]
        line = (words[: words.rfind(" ")] if words.rfind(" ") > MOST_CHARACTERS // 2 else words) + "…"
    return line or None


def has_headlines(settings: Settings) -> bool:
    """Whether documents are texts that are stored; vectors and sets have no headline."""
    return settings.verify == "exact" and settings.item is None and settings.set_field is None


def stored_headline(engine: Engine, shard: int, row: int) -> Headline:
    """The headline of a document of an index."""
    index, groups = engine.index, engine.groups
    words = index.words(shard, row)
    seq, time, group = (int(words[word].view("int64")) for word in (layout.SEQ, layout.TIME, layout.GROUP))
    view = groups.view if groups is not None else index.store if index.read_only else None  # while the disk is full
    source = b"" if view is None or group == layout.NO_GROUP else source_of(view, group, seq)
    text = index.text(shard, row).decode("utf-8", "surrogatepass") if has_headlines(engine.settings) else ""
    return Headline(headline(text), json.loads(source) if source else None, None if time == NO_TIME else time)
