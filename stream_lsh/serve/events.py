"""What happens, as it happens: the latest events in memory, from which any number of listeners read on.

A place in the stream is `seq.n`: all events of documents before `seq` have been seen, and the first n of it. The id of
an event is the place behind it, so that whoever has seen it goes on from there. What is as old as the ring is long is
forgotten, and a listener who comes from before that is told so by a `gap`.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Literal, get_args

from stream_lsh.embedded.engine import Judged
from stream_lsh.judging.verdicts import pairs
from stream_lsh.serve.writer import Round

Kind = Literal["verdict", "pair", "group", "alert"]
KINDS: tuple[Kind, ...] = get_args(Kind)
Place = tuple[int, int]
Kinds = frozenset[Kind]
Said = tuple[int, Kind, bytes]  # number of the document that something came with, what it is, and its JSON
AT_ONCE = 65_536  # bytes that a listener who is behind is sent
_SEQ = b'"seq":'


def place_of(text: str) -> Place:
    """The place that an id names.

    Raises:
        ValueError: it is none.
    """
    seq, _, n = text.partition(".")
    if not (seq.isascii() and seq.isdecimal() and n.isascii() and n.isdecimal()) or len(text) > 40:
        raise ValueError(f"{text[:60]!r} is no place in the stream, which is seq.n")
    return int(seq), int(n)


def written(place: Place) -> str:
    """A place as an id."""
    return f"{place[0]}.{place[1]}"


@dataclass(frozen=True, slots=True)
class Event:
    """place: behind it. data: JSON, without a newline."""

    place: Place
    kind: Kind
    data: bytes

    @property
    def text(self) -> bytes:
        return b"id: %d.%d\nevent: %b\ndata: %b\n\n" % (*self.place, self.kind.encode(), self.data)


@dataclass(slots=True)
class Block:
    """The events of what was committed at once. begin, end: the places before and behind it."""

    begin: Place
    end: Place
    events: Sequence[Event]
    _texts: dict[Kinds, bytes] = field(default_factory=dict)

    def text(self, kinds: Kinds, after: Place) -> bytes:
        """What a listener gets of it, who has seen everything up to a place; at its end the place that is reached."""
        if after > self.begin:
            return self._joined(event for event in self.events if event.place > after and event.kind in kinds)
        if kinds not in self._texts:
            self._texts[kinds] = self._joined(event for event in self.events if event.kind in kinds)
        return self._texts[kinds]

    def _joined(self, events: Iterable[Event]) -> bytes:
        return b"".join([event.text for event in events]) + b"id: %d.%d\n\n" % self.end


def block_of(done: Round, verified: str) -> Block | None:
    """The events of what was committed; None of nothing."""
    said = [item for judged, lines in done.judged for item in _of_batch(judged, lines, verified)]
    if not said:
        return None
    said.sort(key=lambda item: item[0])  # stable: of a document the verdict first
    return Block((said[0][0], 0), (said[-1][0] + 1, 0), numbered(said))


def numbered(said: Iterable[Said]) -> list[Event]:
    """What was said, in its order, with its places."""
    return [
        Event((seq, n), kind, data)
        for seq, same in groupby(said, key=lambda item: item[0])
        for n, (_, kind, data) in enumerate(same, 1)
    ]


def _of_batch(judged: Judged, lines: Sequence[bytes], verified: str) -> Iterator[Said]:
    seqs = judged.judgement.seqs.tolist()
    for seq, line in zip(seqs, lines, strict=True):
        yield seq, "verdict", line
    for i, _, pair in pairs(judged.judgement, verified):
        yield seqs[i], "pair", pair + b"}"
    if judged.events is not None:
        for some in judged.events.lines(judged.judgement.ids, judged.judgement.seqs):
            for line in some.splitlines():
                yield seq_of(line), "group", line
    for line in judged.alerts.splitlines():
        yield seq_of(line), "alert", line


def seq_of(line: bytes) -> int:
    """The number of the document that an event of a group or an alert came with: the first `seq` in it, as in strings
    quotes are escaped."""
    return int(line.partition(_SEQ)[2].partition(b",")[0])


class Ring:
    """The latest events.

    Args:
        begin: number of the first document whose events will come. most_events, most_bytes: that are kept.

    Attributes:
        end: the place behind all events.
    """

    def __init__(self, begin: int, most_events: int = 65_536, most_bytes: int = 64 << 20) -> None:
        self.end: Place = (begin, 0)
        self.ended = False
        self._blocks: list[Block] = []
        self._most_events = most_events
        self._most_bytes = most_bytes
        self._events = self._bytes = 0
        self._waiting: set[asyncio.Event] = set()

    @property
    def begin(self) -> Place:
        """The place before the first event that is kept."""
        return self._blocks[0].begin if self._blocks else self.end

    def add(self, block: Block) -> None:
        """Keep events, and wake who waits for them."""
        self._blocks.append(block)
        self.end = block.end
        self._events += len(block.events)
        self._bytes += _size(block)
        gone = 0
        while gone < len(self._blocks) - 1 and (self._events > self._most_events or self._bytes > self._most_bytes):
            self._events -= len(self._blocks[gone].events)
            self._bytes -= _size(self._blocks[gone])
            gone += 1
        del self._blocks[:gone]
        self._wake()

    def restart(self, place: Place) -> None:
        """Forget everything: what comes next begins at a place that does not go on from the end."""
        self._blocks.clear()
        self._events = self._bytes = 0
        self.end = place
        self._wake()

    def finish(self) -> None:
        """No more will come: whoever listens is told all, and then leaves."""
        self.ended = True
        self._wake()

    def _wake(self) -> None:
        for event in self._waiting:
            event.set()

    def after(self, place: Place, kinds: Kinds) -> tuple[bytes, Place]:
        """What a listener at a place is told next, as server-sent events, and where he is then."""
        if place == self.end:
            return b"", place
        if not self.begin <= place <= self.end:  # it was too long ago, or in another stream
            to = self.begin if place < self.begin else self.end
            return b'event: gap\ndata: {"from":"%d.%d","to":"%d.%d"}\nid: %d.%d\n\n' % (*place, *to, *to), to
        texts, size = [], 0
        for block in self._blocks[bisect_right(self._blocks, place, key=lambda block: block.end) :]:
            texts.append(block.text(kinds, place))
            place, size = block.end, size + len(texts[-1])
            if size >= AT_ONCE:
                break
        return b"".join(texts), place

    def listen(self) -> asyncio.Event:
        """Set whenever something has come, until `leave`."""
        event = asyncio.Event()
        self._waiting.add(event)
        return event

    def leave(self, event: asyncio.Event) -> None:
        self._waiting.discard(event)

    @property
    def listeners(self) -> int:
        return len(self._waiting)


def _size(block: Block) -> int:
    return sum(len(event.data) + 64 for event in block.events)
