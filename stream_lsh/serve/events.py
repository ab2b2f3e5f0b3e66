"""The stream of events: the latest ones in memory, for any number of listeners.

A place in the stream is `seq.n`: after all events of documents before `seq`, and the first n of its own. The id of an
event is the place after it, so that a listener resumes there. The oldest events are dropped at a limit. A listener that
resumes before the oldest event gets a `gap`.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from stream_lsh.embedded.engine import Judged
from stream_lsh.judging.verdicts import pairs
from stream_lsh.serve.event_filter import EventFilter, Kind
from stream_lsh.serve.work import Round

Place = tuple[int, int]
Said = tuple[int, Kind, bytes]  # seq of the document that caused an event, its kind, its JSON
AT_ONCE = 65_536  # bytes that a listener gets at once when it is behind
TEXT_BYTES = 16 << 20  # of the texts that listeners share
MOST_READ = 8192  # events that are looked into at once for a filter
SEQ = b'"seq":'
# Of each object in memory, besides the bytes of its data.
_EVENT_BYTES, _SOURCE_BYTES, _BLOCK_BYTES, _SHARED_BYTES = 200, 150, 360, 320


def place_of(text: str) -> Place:
    """The place in an id.

    Raises:
        ValueError: the text is no place.
    """
    seq, _, n = text.partition(".")
    if not (seq.isascii() and seq.isdecimal() and n.isascii() and n.isdecimal()) or len(text) > 40:
        raise ValueError(f"{text[:60]!r} is no place in the stream of events: give seq.n")
    return int(seq), int(n)


def written(place: Place) -> str:
    """A place as an id."""
    return f"{place[0]}.{place[1]}"


@dataclass(frozen=True, slots=True)
class Event:
    """An event. place: after it. data: JSON, without a newline."""

    place: Place
    kind: Kind
    data: bytes

    @property
    def text(self) -> bytes:
        return b"id: %d.%d\nevent: %b\ndata: %b\n\n" % (*self.place, self.kind.encode(), self.data)


@dataclass(slots=True)
class Block:
    """The events of one commit. begin, end: the places before and after it. sources: of documents by seq, as JSON text,
    where they are known."""

    begin: Place
    end: Place
    events: Sequence[Event]
    sources: Mapping[int, bytes] = field(default_factory=dict)

    def passing(self, wanted: EventFilter) -> Iterator[Event]:
        """The events that a filter lets through."""
        sources = self.sources
        return (
            event for event in self.events if wanted.passes(event.kind, event.data, sources.get(event.place[0], b""))
        )

    def text(self, wanted: EventFilter, after: Place) -> bytes:
        """The events after a place, for a listener that has all events up to there. Ends with the place reached."""
        found = [event.text for event in self.passing(wanted) if event.place > after]
        return b"".join(found) + b"id: %d.%d\n\n" % self.end


def block_of(done: Round, verified: str) -> Block | None:
    """The events of a commit; None if there are none."""
    said = [item for judged, lines in done.judged for item in _of_batch(judged, lines, verified)]
    if not said:
        return None
    said.sort(key=lambda item: item[0])  # stable: the verdict is the first event of its document
    sources: dict[int, bytes] = {}
    for judged, _ in done.judged:
        sources.update(zip(judged.judgement.seqs.tolist(), judged.sources, strict=False))
    return Block((said[0][0], 0), (said[-1][0] + 1, 0), numbered(said), sources)


def numbered(said: Iterable[Said]) -> list[Event]:
    """Events in this order, with their places."""
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


def seq_of(line: bytes, name: bytes = SEQ) -> int:
    """The seq of the document that caused an event of a group or an alert. It is the first of this name in the line:
    in strings quotes are escaped."""
    return int(line.partition(name)[2].partition(b",")[0])


class Ring:
    """The latest events.

    Args:
        begin: seq of the next document.
        most_events, most_bytes: limits of what is stored.
        most_text_bytes: limit of the texts that listeners share, of the events that were read last.

    Attributes:
        end: the place after all events.
    """

    def __init__(
        self, begin: int, most_events: int = 65_536, most_bytes: int = 64 << 20, most_text_bytes: int = TEXT_BYTES
    ) -> None:
        self.end: Place = (begin, 0)
        self.ended = False
        self._blocks: list[Block] = []
        self._most_events = most_events
        self._most_bytes = most_bytes
        self._events = self._bytes = 0
        self._texts: OrderedDict[tuple[Place, frozenset[Kind]], bytes] = OrderedDict()  # by the begin of the block
        self._text_bytes = 0
        self._most_text_bytes = most_text_bytes
        self._waiting: set[asyncio.Event] = set()

    @property
    def begin(self) -> Place:
        """The place before the oldest stored event."""
        return self._blocks[0].begin if self._blocks else self.end

    def add(self, block: Block) -> None:
        """Add events, and wake the listeners."""
        self._blocks.append(block)
        self.end = block.end
        self._events += len(block.events)
        self._bytes += _size(block)
        dropped = 0
        while dropped < len(self._blocks) - 1 and (self._events > self._most_events or self._bytes > self._most_bytes):
            self._events -= len(self._blocks[dropped].events)
            self._bytes -= _size(self._blocks[dropped])
            dropped += 1
        del self._blocks[:dropped]
        self._wake()

    def restart(self, place: Place) -> None:
        """Drop all events. The next ones begin at a place that does not follow the end."""
        self._blocks.clear()
        self._texts.clear()
        self._events = self._bytes = self._text_bytes = 0
        self.end = place
        self._wake()

    def finish(self) -> None:
        """Add no more events. Listeners get the rest, and then leave."""
        self.ended = True
        self._wake()

    def _wake(self) -> None:
        for event in self._waiting:
            event.set()

    def after(self, place: Place, wanted: EventFilter) -> tuple[bytes, Place]:
        """The next events for a listener at a place, as server-sent events, and its next place."""
        if place == self.end:
            return b"", place
        if not self.begin <= place <= self.end:  # dropped already, or of another stream
            to = self.begin if place < self.begin else self.end
            return b'event: gap\ndata: {"from":"%d.%d","to":"%d.%d"}\nid: %d.%d\n\n' % (*place, *to, *to), to
        texts, size, read = [], 0, 0
        for block in self._blocks[bisect_right(self._blocks, place, key=lambda block: block.end) :]:
            texts.append(self._text(block, wanted, place))
            place, size = block.end, size + len(texts[-1])
            read += len(block.events) if wanted.reads_events else 0
            if size >= AT_ONCE or read >= MOST_READ:
                break
        return b"".join(texts), place

    def _text(self, block: Block, wanted: EventFilter, after: Place) -> bytes:
        """The events of a block after a place."""
        if after > block.begin or wanted.reads_events:
            return block.text(wanted, after)
        text = self._texts.get((block.begin, wanted.kinds))
        if text is None:
            text = self._texts[block.begin, wanted.kinds] = block.text(wanted, after)
            self._text_bytes += len(text) + _SHARED_BYTES
            while self._text_bytes > self._most_text_bytes:
                self._text_bytes -= len(self._texts.popitem(last=False)[1]) + _SHARED_BYTES
        return text

    def backwards(self, kind: Kind, before: Place | None) -> Iterator[Event]:
        """The stored events of a kind before a place, the newest first."""
        blocks = self._blocks
        end = len(blocks) if before is None else bisect_left(blocks, before, key=lambda block: block.begin)
        for block in reversed(blocks[:end]):
            for event in reversed(block.events):
                if event.kind == kind and (before is None or event.place < before):
                    yield event

    def latest(self, count: int, wanted: EventFilter) -> bytes:
        """The latest stored events, at most `count` of each kind, as server-sent events. Ends with the last place. A
        filter that looks into events finds those among the latest `MOST_READ`, and the rest of a commit."""
        found: list[Event] = []
        left = dict.fromkeys(wanted.kinds, count)
        read = 0
        for block in reversed(self._blocks):
            for event in reversed(list(block.passing(wanted))):
                if left[event.kind]:
                    left[event.kind] -= 1
                    found.append(event)
            read += len(block.events) if wanted.reads_events else 0
            if not any(left.values()) or read >= MOST_READ:
                break
        return b"".join([event.text for event in reversed(found)]) + b"id: %d.%d\n\n" % self.end

    def listen(self) -> asyncio.Event:
        """An event that is set when something is new, until `leave`."""
        event = asyncio.Event()
        self._waiting.add(event)
        return event

    def leave(self, event: asyncio.Event) -> None:
        self._waiting.discard(event)

    @property
    def listeners(self) -> int:
        return len(self._waiting)


def _size(block: Block) -> int:
    events = sum(len(event.data) + _EVENT_BYTES for event in block.events)
    return _BLOCK_BYTES + events + sum(len(source) + _SOURCE_BYTES for source in block.sources.values())
