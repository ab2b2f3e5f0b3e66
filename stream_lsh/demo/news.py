"""The demo's feed on Kafka: the news of `feed`, and stories that spread, in the order of their times."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from heapq import merge
from itertools import count, islice

from stream_lsh.demo.feed import feed_entries
from stream_lsh.demo.spread import make_spread

APART = 9 * 3_600_000  # ms from the beginning of one story that spreads to that of the next; each takes seven hours


@dataclass(frozen=True)
class Item:
    """One line of the feed, without its newline; id and title where it has them, and its place in time, in ms."""

    line: bytes
    id: str | None
    title: str
    ts: int


def news(documents: int, seed: int) -> Iterator[Item]:
    """So many lines, the same on every machine, made one by one.

    Raises:
        ValueError: fewer documents than a feed needs.
    """
    return islice(merge(_feed(documents, seed), _spreading(seed), key=lambda item: item.ts), documents)


def _feed(documents: int, seed: int) -> Iterator[Item]:
    now = 0
    for entry in feed_entries(documents, seed):
        now = max(now, entry.document.get("ts", 0))  # a line that is redelivered has an earlier time
        yield Item(entry.line, entry.id, entry.document.get("title", ""), now)


def _spreading(seed: int) -> Iterator[Item]:
    """One story after the other, without end. The ids of each are its own."""
    for number in count():
        for entry in make_spread(seed + number):
            ts = entry.ts + number * APART
            record = {**entry.record, "id": f"{entry.record['id']}-{number}", "ts": ts}
            yield Item(json.dumps(record, ensure_ascii=False).encode(), record["id"], record.get("title", ""), ts)
