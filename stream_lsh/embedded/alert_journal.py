"""The latest alerts of an index, which the commit of their documents writes.

Each has a number, which rises and is never used again. The oldest ones are dropped at a limit. Erasing deletes all
that were written before the erased version was deleted, because they may name it.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from itertools import dropwhile, islice

import orjson

from stream_lsh.index.store.rocksdb import Store, name_key
from stream_lsh.wire.source import Headers, parsed_headers, plain_headers
from stream_lsh.wire.trace_context import TraceOf, no_trace

FACT = "alert_journal"
_PREFIX = "alert/"  # and the number, as 16 hexadecimal digits
_BEGIN, _END = name_key(_PREFIX), name_key("alert0")
_ALERT = b',"alert":'
MOST, MOST_BYTES = 10_000, 8 << 20


@dataclass(frozen=True, slots=True)
class Journaled:
    """An alert in the journal. time: of its commit, ms since 1970. line: JSON, without a newline. trace: the trace
    context of its document."""

    number: int
    time: int
    rule: str
    line: bytes
    trace: Headers = field(default_factory=list)

    @property
    def key(self) -> str:
        return str(json.loads(self.line)["key"])


class AlertJournal:
    """The journal of an index. Reading is for any thread; all else for the one that writes the index."""

    def __init__(self, store: Store, most: int = MOST, most_bytes: int = MOST_BYTES) -> None:
        self._store = store
        self._most, self._most_bytes = most, most_bytes
        self._next: int = (store.named(FACT) or {"next": 0})["next"]
        self._entries = deque(_entry(key, value) for key, value in store.scan(_BEGIN))
        self._bytes = sum(len(entry.line) for entry in self._entries)
        self._lock = threading.Lock()
        self._added: list[tuple[bytes, str, Headers]] = []
        self._taken: list[Journaled] = []

    def add(self, lines: bytes, trace_of: TraceOf = no_trace, first: int = 0) -> None:
        """Add alerts, a JSON line each; they count with the commit that writes what `take` gives. first: number of the
        first document of the batch."""
        found = ((line, json.loads(line)) for line in lines.splitlines())
        self._added += [(line, alert["rule"], trace_of(alert.get("seq", first) - first)) for line, alert in found]

    def take(self, time: int) -> dict[bytes, bytes | None]:
        """The values that the next commit has to write; time: of it, ms since 1970."""
        early = self._written_before(time)
        if not self._added:
            return early
        first = self._next + len(self._taken)
        taken = [
            Journaled(number, time, rule, line, trace) for number, (line, rule, trace) in enumerate(self._added, first)
        ]
        self._added = []
        self._taken += taken
        values: dict[bytes, bytes | None] = {_key(entry.number): _value(entry) for entry in taken}
        return {**early, **values, name_key(FACT): b'{"next":%d}' % (taken[-1].number + 1), **self._trimmed()}

    def _written_before(self, time: int) -> dict[bytes, bytes | None]:
        """After the clock was set back, give earlier alerts the time of this commit, so that `erase` finds them."""
        values: dict[bytes, bytes | None] = {}
        if any(entry.time > time for entry in self._entries):
            with self._lock:
                for place, entry in enumerate(self._entries):
                    if entry.time > time:
                        self._entries[place] = early = replace(entry, time=time)
                        values[_key(entry.number)] = _value(early)
        return values

    def _trimmed(self) -> dict[bytes, bytes | None]:
        """The keys of the oldest entries, which are too many with those that were taken."""
        entries = [*self._entries, *self._taken]
        size, dropped = self._bytes + sum(len(entry.line) for entry in self._taken), 0
        while dropped < len(entries) - 1 and (len(entries) - dropped > self._most or size > self._most_bytes):
            size -= len(entries[dropped].line)
            dropped += 1
        return {_key(entry.number): None for entry in entries[:dropped]}

    def committed(self) -> None:
        """What was taken is committed."""
        if not self._taken:
            return
        with self._lock:
            gone = len(self._trimmed())
            self._entries += self._taken
            self._next += len(self._taken)
            self._taken = []
            self._drop(gone)

    def _drop(self, count: int) -> None:
        for _ in range(count):
            self._entries.popleft()
        self._bytes = sum(len(entry.line) for entry in self._entries)

    def erase(self, time: int) -> None:
        """Delete all that was written by this time, seconds since 1970: it may name what is to be erased. The sweep at
        the end of erasing removes it from the disk. After the clock was set back, some later alerts go too.

        Raises:
            OutputError: the disk is full, or refuses.
        """
        with self._lock:
            written = (place for place, entry in enumerate(self._entries, 1) if entry.time < 1000 * (time + 1))
            old = max(written, default=0)
            end = _key(self._entries[old].number) if old < len(self._entries) else _END
            self._drop(old)
        if old:
            self._store.write({}, ranges=[(_BEGIN, end)])

    # -- reading, by any thread -------------------------------------------------------------------------------------

    @property
    def next(self) -> int:
        """The number of the next alert."""
        return self._next

    @property
    def first(self) -> int:
        """The number of the oldest alert; that of the next one if there is none."""
        with self._lock:
            return self._entries[0].number if self._entries else self._next

    def latest(self, before: int | None, limit: int, rule: str | None) -> list[Journaled]:
        """The latest alerts, the newest first: with smaller numbers than `before`, and of one rule."""
        with self._lock:
            entries = list(self._entries)
        found = (
            entry for entry in reversed(entries)
            if (before is None or entry.number < before) and (rule is None or entry.rule == rule)
        )  # fmt: skip
        return list(islice(found, limit))

    def after(self, number: int, rules: Collection[str] | None) -> Journaled | None:
        """The first alert behind a number, of some rules; None = of any."""
        with self._lock:
            entries = list(self._entries)
        behind = dropwhile(lambda entry: entry.number <= number, entries)
        return next((entry for entry in behind if rules is None or entry.rule in rules), None)

    def count_after(self, number: int, rules: Collection[str] | None) -> int:
        """How many alerts of some rules are behind a number."""
        with self._lock:
            return sum(entry.number > number and (rules is None or entry.rule in rules) for entry in self._entries)

    def get(self, number: int) -> Journaled | None:
        """An alert, None if it is not in the journal any more."""
        found = self.after(number - 1, None)
        return found if found is not None and found.number == number else None


def _key(number: int) -> bytes:
    return name_key(f"{_PREFIX}{number:016x}")


def _value(entry: Journaled) -> bytes:
    trace = b',"trace":%b' % orjson.dumps(plain_headers({0: entry.trace})["0"]) if entry.trace else b""
    return b'{"time":%d%b%b%b}' % (entry.time, trace, _ALERT, entry.line)


def _entry(key: bytes, value: bytes) -> Journaled:
    head, _, rest = value.partition(_ALERT)
    line, facts = rest[:-1], orjson.loads(head + b"}")
    trace = parsed_headers({"0": facts.get("trace", ())})[0]
    return Journaled(int(key[len(_BEGIN) :], 16), facts["time"], json.loads(line)["rule"], line, trace)
