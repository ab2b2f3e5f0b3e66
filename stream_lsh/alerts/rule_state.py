"""The alerts of rules on a stream, in stream time, independent of how the stream is cut into batches.

Pure. A rule remembers some of the groups, or sources, that it counts for: those that were touched last. A time T is
counted in slots of T / 60, so a document counts for at least 59/60 of T, and for at most T.
"""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from stream_lsh.alerts.rules import Copied, Growth, Rule, Share, Spread
from stream_lsh.documents.fields import id_text
from stream_lsh.documents.times import NO_TIME

SLOTS = 60
MOST = 65_536  # groups, or sources, that a rule remembers

Subject = int | str
"""A group by its number, or a source as JSON text."""


@dataclass(frozen=True, slots=True)
class Seen:
    """The documents of a batch that were accepted: kept, or dropped.

    places: in the batch. joined: it is a new member of a group that it did not found; a new version of one is none.
    groups: of each, its own number if it was kept. log: stream times in ms, ascending. similarities: of what was
    dropped.
    sources: as JSON text, b"" for none. first_member: event time (NO_TIME: none) and source of a kept document, this
    batch's among them. shift: ms by which log is later than the event times (`StreamTime.shift`).
    """

    places: Sequence[int]
    seqs: Sequence[int]
    dropped: Sequence[bool]
    joined: Sequence[bool]
    groups: Sequence[int]
    log: Sequence[int]
    similarities: Sequence[float]
    sources: Sequence[bytes]
    first_member: Callable[[int], tuple[int, bytes]]
    shift: int = 0


@dataclass(frozen=True, slots=True)
class Alert:
    """A rule has found what it is for. at: which document of those seen. found: what it counted."""

    rule: Rule
    at: int
    time: int
    subject: Subject
    found: Mapping[str, str | int | float]

    def line(self, seq: int, id: bytes, source: bytes, group: bytes) -> bytes:
        """As a JSON line. id, source, group: as JSON text; the key is a hash of everything else in the line."""
        said = b",".join(b'"%b":%b' % (name.encode(), _text(value)) for name, value in self.found.items())
        body = b'"rule":%b,"kind":"%b","time":%d,"seq":%d,"id":%b,"source":%b,%b,"group":%b}\n' % (
            _text(self.rule.name), self.rule.kind.encode(), self.time, seq, id, source or b"null", said,
            group,
        )  # fmt: skip
        return b'{"key":"%b",%b' % (hashlib.sha256(body).hexdigest()[:32].encode(), body)


@dataclass(slots=True)
class SubjectState:
    """What a rule remembers of a group or a source.

    number: its key in the store. seq: of the document that touched it last. slots: number, documents, and dropped
    documents of each, oldest first; documents, duplicates: their sums. sources: the latest ones with their slots,
    oldest first. fired: stream time of the last alert.
    """

    number: int
    seq: int
    slots: list[list[int]] = field(default_factory=list)
    sources: dict[str, int] = field(default_factory=dict)
    fired: int | None = None
    documents: int = field(default=0, init=False)
    duplicates: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        for _, documents, duplicates in self.slots:
            self.documents += documents
            self.duplicates += duplicates

    def count(self, slot: int, dropped: bool) -> None:
        """Count a document, and remove slots that are too old."""
        slots = self.slots
        if not slots or slots[-1][0] != slot:
            slots.append([slot, 0, 0])
            while slots[0][0] <= slot - SLOTS:
                _, documents, duplicates = slots.pop(0)
                self.documents -= documents
                self.duplicates -= duplicates
        slots[-1][1] += 1
        slots[-1][2] += dropped
        self.documents += 1
        self.duplicates += dropped

    def come(self, source: bytes, slot: int, most: int) -> None:
        """A source has come; only the latest ones decide whether there are so many."""
        if source:
            text = source.decode()
            self.sources.pop(text, None)
            self.sources[text] = slot
            if len(self.sources) > most:
                del self.sources[next(iter(self.sources))]


class _RuleState:
    """One rule and what it remembers, what was touched last at the end."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.width = 0 if isinstance(rule, Copied) else rule.within_ms // SLOTS
        self.table: OrderedDict[Subject, SubjectState] = OrderedDict()
        self.changed: set[Subject] = set()  # since they were taken

    def alerts(self, seen: Seen, slot: Callable[[Subject, _RuleState, int], SubjectState]) -> Iterator[Alert]:
        """Its alerts. slot: makes room for a new group or source, and counts the one that it evicts."""
        rule, table, cooldown = self.rule, self.table, self.rule.cooldown_ms
        for at, joined in enumerate(seen.joined):
            if not joined and not isinstance(rule, Share):
                continue
            subject: Subject = seen.sources[at].decode() if isinstance(rule, Share) else seen.groups[at]
            if subject == "" or (isinstance(rule, Copied) and not _copied(rule, seen, at)):
                continue
            now = seen.log[at]
            entry, known = table.get(subject), True
            if entry is None:
                entry, known = slot(subject, self, now), False
            else:
                table.move_to_end(subject)
            entry.seq = seen.seqs[at]
            self.changed.add(subject)
            self._count(entry, seen, at, known)
            if entry.fired is not None and now - entry.fired < cooldown:
                continue
            if (found := self._found(entry, seen, at)) is not None:
                entry.fired = now
                yield Alert(rule, at, now - seen.shift, subject, found)

    def _count(self, entry: SubjectState, seen: Seen, at: int, known: bool) -> None:
        rule = self.rule
        if isinstance(rule, Copied):
            return
        slot = seen.log[at] // self.width
        if isinstance(rule, Spread):
            if not known:
                # Only the event time says when its first member arrived.
                time, source = seen.first_member(seen.groups[at])
                arrived = min(time + seen.shift, seen.log[at]) // self.width
                if time != NO_TIME and arrived > slot - SLOTS:
                    entry.count(arrived, False)
                    entry.come(source, arrived, rule.sources)
            entry.come(seen.sources[at], slot, rule.sources)
        entry.count(slot, seen.dropped[at])

    def _found(self, entry: SubjectState, seen: Seen, at: int) -> dict[str, Any] | None:
        """What an alert says, None if it is none."""
        rule = self.rule
        if isinstance(rule, Copied):
            return {
                "copied": json.loads(seen.first_member(seen.groups[at])[1]), "similarity": seen.similarities[at]
            }  # fmt: skip
        documents = entry.documents
        if isinstance(rule, Share):
            if documents < rule.documents or entry.duplicates / documents <= rule.above:
                return None
            return {"documents": documents, "duplicates": entry.duplicates}
        if documents < rule.members:
            return None
        if isinstance(rule, Growth):
            return {"members": documents}
        oldest = seen.log[at] // self.width - SLOTS
        sources = sum(slot > oldest for slot in entry.sources.values())
        return {"members": documents} if sources >= rule.sources else None

    def is_active(self, entry: SubjectState, now: int) -> bool:
        """Whether it still matters what was remembered."""
        if entry.fired is not None and now - entry.fired < self.rule.cooldown_ms:
            return True
        return bool(entry.slots) and entry.slots[-1][0] > now // self.width - SLOTS


def _text(value: str | int | float) -> bytes:
    """As JSON, lone surrogates too."""
    return repr(value).encode() if isinstance(value, float) else id_text(value)


def _copied(rule: Copied, seen: Seen, at: int) -> bool:
    by = seen.sources[at]
    if not by or seen.similarities[at] < rule.similarity or rule.by_text not in (None, by):
        return False
    source = seen.first_member(seen.groups[at])[1]
    return bool(source) and source != by and rule.source_text in (None, source)


class RuleStates:
    """Some rules, and what they remember.

    Args:
        known: what `take` has given, by number, all that was not given again since; what belongs to other rules is
            forgotten, its numbers are used again.

    Attributes:
        forgotten: groups and sources that a rule had no room for any more before their time was over.
    """

    def __init__(
        self, rules: Sequence[Rule], known: Iterable[tuple[int, Mapping[str, Any]]] = (), forgotten: int = 0
    ) -> None:
        self.forgotten = forgotten
        self._states = [_RuleState(rule) for rule in rules]
        ours = {state.rule.fingerprint: state for state in self._states}
        self._free: list[int] = []
        self._next = 0
        entries = sorted(known, key=lambda item: int(item[1]["seq"]))
        for number, value in entries:
            self._next = max(self._next, number + 1)
            if (state := ours.get(value["rule"])) is None:
                self._free.append(number)
                continue
            state.table[value["of"]] = SubjectState(
                number, value["seq"], [list(slot) for slot in value["slots"]], dict(value["sources"]), value["fired"]
            )

    def look(self, seen: Seen) -> list[Alert]:
        """The alerts of a batch, by document, and of one document in the order of the rules."""
        found = [alert for state in self._states for alert in state.alerts(seen, self._slot)]
        return sorted(found, key=lambda alert: alert.at)

    def take(self) -> dict[int, dict[str, Any]]:
        """What has changed since it was taken last, by number, ready for JSON."""
        changed: dict[int, dict[str, Any]] = {}
        for state in self._states:
            for subject in state.changed:
                entry = state.table[subject]
                changed[entry.number] = {
                    "rule": state.rule.fingerprint, "of": subject, "seq": entry.seq,
                    "slots": [list(slot) for slot in entry.slots], "sources": list(entry.sources.items()),
                    "fired": entry.fired,
                }  # fmt: skip
            state.changed = set()
        return changed

    def _slot(self, subject: Subject, state: _RuleState, now: int) -> SubjectState:
        """Room for a group or a source; where there is none, what was not touched for longest has to go."""
        if len(state.table) >= MOST:
            oldest, old = state.table.popitem(last=False)
            state.changed.discard(oldest)
            self.forgotten += state.is_active(old, now)
            number = old.number  # whose value is written over
        elif self._free:
            number = self._free.pop()
        else:
            number, self._next = self._next, self._next + 1
        state.table[subject] = entry = SubjectState(number, -1)
        return entry
