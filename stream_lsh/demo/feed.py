"""A small believable feed of news, with its truth: what was done to which story.

Everything follows from the seed. Documents are JSON lines with `id`, `ts`, `source`, `lang`, `title`, `text`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

from stream_lsh.demo import desks, edits, outlets
from stream_lsh.demo.edits import Copy, Newsroom, printed
from stream_lsh.demo.story import Desk, write

# What is in a feed, as parts of a thousand; the rest are stories of their own.
SHARES: Mapping[str, int] = {
    "wire copy": 40,
    "headline changed": 30,
    "correction": 30,
    "newer figures": 30,
    "paragraph added": 30,
    "house style": 25,
    "reprint": 40,
    "cut short": 25,
    "live update": 25,
    "redelivered": 15,
    "same event": 20,
    "notice": 40,
    "id reused": 2,
    "broken": 5,
}
DESCRIPTIONS: Mapping[str, str] = {
    "wire copy": "printed unchanged by another paper",
    "headline changed": "same text under another headline",
    "correction": "a name or place corrected, with a note",
    "newer figures": "some numbers brought up to date",
    "paragraph added": "a paragraph with news added",
    "house style": "spelling and units of another paper",
    "reprint": "inside another site's boilerplate",
    "cut short": "only the beginning is printed",
    "live update": "a later version of a later version",
    "redelivered": "the same line once more",
    "same event": "reported again in other words",
    "notice": "another matter on the same form",
    "id reused": "another text under a known id",
    "broken": "cannot be read as a document",
    "story": "a story of its own",
}
# These are not near-duplicates of anything: reporting them is a mistake.
UNRELATED = ("story", "same event", "notice")
LEAST = 40
TEXT_FIELDS = ("title", "text")
START = 1_700_000_000_000  # ms; a Tuesday
OTHER_LANGUAGES = 0.14  # of the stories


@dataclass(frozen=True)
class Entry:
    """One line of the feed: its id (None if it has none), what was done to it, and the id of what it was made from."""

    line: bytes
    id: str | None
    kind: str
    parent: str | None
    story: int  # number of the story: equal for all versions of one
    document: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Feed:
    """The lines in order of time."""

    entries: tuple[Entry, ...]

    def lines(self) -> Iterator[bytes]:
        """The lines, each with its newline."""
        for entry in self.entries:
            yield entry.line + b"\n"


def make_feed(documents: int = 2000, seed: int = 1) -> Feed:
    """The feed of this size and seed, the same on every machine.

    Raises:
        ValueError: fewer than LEAST documents; each kind needs room.
    """
    return Feed(tuple(feed_entries(documents, seed)))


def feed_lines(documents: int = 2000, seed: int = 1) -> Iterator[bytes]:
    """The lines of that feed, each with its newline, made one by one. Raises as `make_feed`."""
    return (entry.line + b"\n" for entry in feed_entries(documents, seed))


def feed_entries(documents: int = 2000, seed: int = 1) -> Iterator[Entry]:
    """The entries of that feed, made one by one. Raises as `make_feed`."""
    if documents < LEAST:
        raise ValueError(f"{documents} documents are too few for a feed; take at least {LEAST}")
    return _Newsroom(Random(f"stream_lsh demo feed {seed}")).run(documents)


class _Newsroom(Newsroom):
    """Writes the feed line by line; remembers what can be copied."""

    RECENT = 250  # stories that are still news

    def __init__(self, random: Random) -> None:
        super().__init__(random)
        self.copies: list[Copy] = []
        self.latest: dict[int, Copy] = {}
        self.stories = 0
        self.clock = START
        self.damage = 0

    def run(self, documents: int) -> Iterator[Entry]:
        """The entries, in a random order of kinds after a first few stories."""
        random = self.random
        deck = [kind for kind, share in SHARES.items() for _ in range(max(1, documents * share // 1000))]
        first = min(12, documents - len(deck))
        deck += ["story"] * (documents - len(deck) - first)
        random.shuffle(deck)
        sent: list[Entry] = []
        for kind in ["story"] * first + deck:
            self.clock += random.randint(3_000, 90_000)
            entry = self._entry(kind, sent)
            if kind not in ("redelivered", "broken", "id reused"):
                sent.append(entry)
            yield entry

    def _entry(self, kind: str, sent: list[Entry]) -> Entry:
        random = self.random
        if kind == "redelivered":
            again = random.choice(sent[-self.RECENT :])
            return Entry(again.line, again.id, kind, again.id, again.story, again.document)
        if kind == "broken":
            return self._broken(random.choice(sent))
        if kind == "id reused":
            copy = self._story()
            victim = random.choice(sent[-self.RECENT :])
            document = {**self.document(copy, self.clock), "id": victim.id}
            return Entry(_line(document), victim.id, kind, victim.id, copy.number, document)
        if kind == "story":
            copy = self._story()
            self.copies.append(copy)
            self.latest[copy.number] = copy
        elif kind == "notice":
            copy = self._notice()
        else:
            copy = self._edited(kind)
        document = self.document(copy, self.clock)
        copy.id = document["id"]
        return Entry(_line(document), document["id"], kind, copy.parent, copy.number, document)

    def _edited(self, kind: str) -> Copy:
        while True:  # not every story takes every edit: house style wants words that papers write differently
            original = self.random.choice(self.copies[-self.RECENT :])
            if kind == "live update":
                original = self.latest[original.number]
            copy = edits.EDITS[kind](self.random, original)
            if copy is None:
                continue
            if kind == "live update":
                self.latest[copy.number] = copy
            return copy

    def _story(self) -> Copy:
        random = self.random
        self.stories += 1
        if random.random() < OTHER_LANGUAGES:
            desk: Desk = random.choice(desks.OTHERS)
            outlet = next(outlet for outlet in outlets.OTHERS if outlet.language == desk.language)
        else:
            desk = random.choice(desks.ENGLISH)
            outlet = outlets.AGENCY if random.random() < 0.5 else random.choice(outlets.ENGLISH)
        story = write(random, desk, random.choice(desk.topics))
        return printed(story, outlet, self.stories)

    def _notice(self) -> Copy:
        self.stories += 1
        story = write(self.random, desks.NOTICES, self.random.choice(desks.NOTICES.topics))
        return printed(story, outlets.COUNTY, self.stories)

    def _broken(self, near: Entry) -> Entry:
        """One kind of damage after the other: cut off, no text, empty text, a wrong type, bytes that are not UTF-8."""
        document = {**near.document, "id": f"broken-{self.damage + 1}", "ts": self.clock}
        whole = _line(document)
        damaged = (
            whole[: len(whole) * 2 // 3].rstrip(b"\\"),
            _line({name: value for name, value in document.items() if name != "text"}),
            _line({**document, "title": "", "text": " \n\n "}),
            _line({**document, "text": 404}),
            whole[: len(whole) // 2].decode(errors="ignore").encode() + b"\xff\xfe" + whole[len(whole) // 2 :],
        )
        line = damaged[self.damage % len(damaged)]
        self.damage += 1
        return Entry(line, None, "broken", None, 0, document)


def _line(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, ensure_ascii=False).encode()
