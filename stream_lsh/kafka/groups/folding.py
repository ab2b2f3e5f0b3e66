"""Folds memberships into events of groups, alerts and the state to be stored. Works without a broker."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import orjson

from stream_lsh.alerts.rules import Rule
from stream_lsh.embedded.alerts import FACT as ALERTS
from stream_lsh.embedded.alerts import Alerts
from stream_lsh.embedded.group_store import FACT as GROUPS
from stream_lsh.embedded.groups import Groups
from stream_lsh.errors import StoreError
from stream_lsh.index.store.rocksdb import Range, Store, name_key
from stream_lsh.judging.events import Change
from stream_lsh.kafka.consumer.delivery import Row
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.wire.memberships import Memberships
from stream_lsh.wire.source import Headers

CLEARING = "clearing"  # key ranges of ended groups that are still to be deleted
MOST_CLEARED, CLEARED_OF_ONE = 1000, 8  # limit of keys deleted in a round: so many, and so many per document
GAP, REPEAT = "gap", "repeat"
_EVENT = re.compile(rb'\{"event":"(\w+)"')
_GROUP = re.compile(rb',"group":(\d+)')  # inside a JSON string the quotes would be escaped
_KEY = re.compile(rb'\{"key":"(\w+)"')

FORKED = (
    "the chain of frames is forked (frame {offset} after {predecessor}, expected one after {last}): the committed "
    "offsets of the judge were changed, or another pipeline uses the same topic_prefix. Rebuild into a new one with "
    "`stream-lsh kafka reindex`"
)


@dataclass(slots=True)
class Round:
    """The results of a number of memberships.

    Attributes:
        events, alerts: records, in order.
        changes: values of the store by key; None deletes one.
        kinds: number of events by kind.
        rules: number of alerts by rule.
        frames: of each frame its offset, its number of documents, and their trace contexts.
    """

    events: list[Row] = field(default_factory=list)
    alerts: list[Row] = field(default_factory=list)
    changes: dict[bytes, bytes | None] = field(default_factory=dict)
    documents: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    rules: Counter[str] = field(default_factory=Counter)
    frames: list[tuple[int, int, dict[int, Headers]]] = field(default_factory=list)


class Folding:
    """Folds frame by frame.

    Args:
        store: the state after the frame `last`. The caller of `take` writes the changes into it.
        last: offset of the last folded frame, -1: none.

    Attributes:
        last: the same, kept up to date.
    """

    def __init__(self, store: Store, settings: KafkaSettings, rules: Sequence[Rule], last: int) -> None:
        self.last = last
        self._store = store
        fact = store.named(GROUPS) or {"source_field": settings.source_field, "latest": None}
        self._groups = Groups(store, settings.window_ms, fact)
        self._alerts = Alerts(store, self._groups, rules, store.named(ALERTS) or {})
        self._clearing: list[list[str]] = store.named(CLEARING) or []
        self._round = Round()

    @property
    def forgotten(self) -> int:
        """Number of groups and sources that a rule had no room for."""
        return self._alerts.counts.forgotten

    @property
    def documents(self) -> int:
        """Number of documents since the last `take`."""
        return self._round.documents

    def add(self, found: Memberships) -> str | None:
        """Fold a frame. By the chain rule only the next frame after the last one counts.

        Returns:
            None, or why the frame does not count: it is a repeat, or one before it is missing.

        Raises:
            StoreError: the frame belongs to another chain.
        """
        if found.predecessor > self.last:
            return GAP
        if found.predecessor < self.last:
            if found.offset > self.last:
                raise StoreError(FORKED.format(offset=found.offset, predecessor=found.predecessor, last=self.last))
            return REPEAT
        self.last = found.offset
        judgement, round = found.judgement, self._round
        round.documents += len(judgement.ids)
        round.frames.append((found.offset, len(judgement.ids), found.traces))
        log, shift = self._groups.stream_times(judgement.seqs, found.times, found.log, found.shift)
        events = self._groups.add(judgement, found.times, log, found.sources)
        for block in events.lines(judgement.ids, judgement.seqs):
            for line in block.splitlines():
                self._tell(line)
        for line in self._alerts.add(judgement, log, shift, found.sources, events).splitlines():
            alert = json.loads(line)
            trace = found.traces.get(int(np.searchsorted(judgement.seqs, alert["seq"])), [])
            round.alerts.append((_found(_KEY, line), line, trace, None))
            round.rules[alert["rule"]] += 1
        return None

    def _tell(self, line: bytes) -> None:
        kind, group = _found(_EVENT, line).decode(), _found(_GROUP, line)
        self._round.events.append((group, line, [], None))
        self._round.kinds[kind] += 1
        if kind == Change.ENDED.label:  # a tombstone removes the group's row
            self._round.events.append((group, None, [], None))

    def take(self) -> Round:
        """The results since the last call."""
        facts, values, ranges = self._groups.take()
        facts |= self._alerts.take()
        round, self._round = self._round, Round()
        round.changes.update(values)
        if self._clearing or ranges:
            round.changes.update(dict.fromkeys(self._cleared(ranges, round.documents)))
            facts[CLEARING] = self._clearing
        round.changes.update((name_key(name), orjson.dumps(value)) for name, value in facts.items())
        return round

    def _cleared(self, ranges: Sequence[Range], documents: int) -> Iterator[bytes]:
        """Keys to be deleted. A compacted topic needs a tombstone for each, so a large range is deleted over several
        rounds."""
        self._clearing += [[begin.hex(), end.hex()] for begin, end in ranges]
        most = MOST_CLEARED + CLEARED_OF_ONE * documents
        while self._clearing:
            begin, end = (bytes.fromhex(text) for text in self._clearing[0])
            for key, _ in self._store.scan(begin[:1], begin):
                if key >= end:
                    break
                if not most:
                    self._clearing[0][0] = key.hex()
                    return
                most -= 1
                yield key
            self._clearing.pop(0)


def _found(pattern: re.Pattern[bytes], line: bytes) -> bytes:
    found = pattern.search(line)
    assert found is not None, line
    return found[1]
