"""Memberships as a judge leaves them, and what the embedded engine tells of the same documents."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from stream_lsh.alerts.rules import Rule
from stream_lsh.documents.times import NO_TIME
from stream_lsh.embedded.alerts import Alerts
from stream_lsh.embedded.groups import Groups
from stream_lsh.index.store.rocksdb import Store
from stream_lsh.judging.verdicts import Judgement
from stream_lsh.kafka.judge.records import Records
from stream_lsh.kafka.names import Topics
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.wire.memberships import Memberships
from support.kafka.judge_play import Answered, answered, decoded
from support.simulation.remembered import remembered

RULES = """
[[rule]]
name = "spreads"
kind = "spread"
members = 4
sources = 2
within = "1h"
cooldown = "1h"

[[rule]]
name = "jaccard"
kind = "share"
above = 0.4
documents = 20
within = "1h"
cooldown = "1h"

[[rule]]
name = "herald copies the wire"
kind = "copied"
source = "wire"
by = "herald"
similarity = 0.8
cooldown = "1h"
"""


class Teller:
    """The embedded engine's groups and alerts, batch by batch."""

    def __init__(self, folder: Path, source_field: str | None, rules: Sequence[Rule], window: int = 0) -> None:
        folder.mkdir(parents=True)
        self._store = Store(folder / "db", sync=False)
        self._groups = Groups(self._store, window, {"source_field": source_field, "latest": None})
        self._alerts = Alerts(self._store, self._groups, rules, {})
        self.events: list[bytes] = []
        self.alerts: list[bytes] = []

    def add(
        self, judgement: Judgement, times: np.ndarray, valid: np.ndarray, log: np.ndarray, sources: list[bytes]
    ) -> None:
        log, shift = self._groups.stream_times(judgement.seqs, np.where(valid, times, NO_TIME), log, 0)
        events = self._groups.add(judgement, times, log, sources)
        self.events += b"".join(events.lines(judgement.ids, judgement.seqs)).splitlines()
        found = self._alerts.add(judgement, log, shift, sources, events)
        self.alerts += found.splitlines()

    def close(self) -> None:
        self._store.close()


@remembered
def memberships(settings: KafkaSettings, folder: Path, number: int) -> tuple[list[bytes], list[Answered]]:
    """What a judge writes of some frames, and these."""
    frames = answered(settings, folder, number)
    records = Records(Topics.of(settings))
    for frame in frames:
        records.add(decoded(frame, settings), settings)
    return records.memberships, frames


@remembered
def embedded_lines(
    settings: KafkaSettings, folder: Path, rules: Sequence[Rule], said: Sequence[bytes]
) -> tuple[list[bytes], list[bytes]]:
    """Events and alerts of the embedded engine."""
    teller = Teller(folder, settings.source_field, rules)
    for value in said:
        found = Memberships.decode(value, settings)
        every = np.ones(len(found.times), np.bool_)
        teller.add(found.judgement, found.times, every, found.log, found.sources)
    teller.close()
    return teller.events, teller.alerts
