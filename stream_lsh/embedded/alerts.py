"""The alerts of a log: what rules remember lies in the store of its groups, and counts with its commits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stream_lsh.alerts.rule_state import RuleStates, Seen
from stream_lsh.alerts.rules import SOURCED, Rule
from stream_lsh.embedded.groups import Groups, chosen
from stream_lsh.embedded.report import Alerted
from stream_lsh.errors import UsageError
from stream_lsh.index.store.rocksdb import Store
from stream_lsh.judging.events import Events
from stream_lsh.judging.verdicts import Judgement, Kind

FACT = "alerts"
WATCHED = "alerts/"  # and a number: what a rule remembers of a group or a source


class Alerts:
    """What rules say of a log. What is added counts with the commit that writes what `take` gives.

    Args:
        fact: what the store says of them.
    """

    def __init__(self, store: Store, groups: Groups, rules: Sequence[Rule], fact: Mapping[str, Any]) -> None:
        self._groups = groups
        known = ((int(name.removeprefix(WATCHED)), value) for name, value in store.items(WATCHED))
        self._states = RuleStates(rules, known, fact.get("forgotten", 0))
        self._alerts = 0

    def add(
        self, judgement: Judgement, log: NDArray[np.int64], shift: int, sources: list[bytes], events: Events
    ) -> bytes:
        """The alerts of a batch that was folded into the groups, as JSON lines.

        log, shift: as `Groups.stream_times` gives them. sources: as for the groups.
        """
        places = np.flatnonzero(judgement.kinds <= Kind.EXACT_DUPLICATE)
        seen = Seen(
            places.tolist(), judgement.seqs[places].tolist(), (judgement.kinds[places] != Kind.UNIQUE).tolist(),
            np.isin(places, events.arrivals, assume_unique=True).tolist(), judgement.groups[places].tolist(),
            log[places].tolist(), judgement.similarities[places].tolist(),
            chosen(sources, places) or [b""] * len(places), self._groups.first_member,
            shift,
        )  # fmt: skip
        lines = []
        for alert in self._states.look(seen):
            place, group = seen.places[alert.at], b"null"
            if isinstance(alert.subject, int):
                group = events.arrival(place).json
            lines.append(alert.line(seen.seqs[alert.at], judgement.ids[place], seen.sources[alert.at], group))
        self._alerts += len(lines)
        return b"".join(lines)

    def take(self) -> dict[str, Any]:
        """The facts that the next commit has to write."""
        changed = {f"{WATCHED}{number}": value for number, value in self._states.take().items()}
        return {FACT: {"forgotten": self._states.forgotten}, **changed}

    @property
    def counts(self) -> Alerted:
        """The counts of this run."""
        return Alerted(self._alerts, self._states.forgotten)


def check_fields(rules: Sequence[Rule], time_field: str | None, source_field: str | None) -> None:
    """Raise UsageError if the documents do not say what the rules need."""
    if time_field is None:
        raise UsageError("alerts go by the times of the documents: name the field that has them with --time-field")
    for rule in rules:
        if source_field is None and isinstance(rule, SOURCED):
            raise UsageError(
                f"rule {rule.name!r} ({rule.kind}) needs the source of each document: name the field with "
                "--source-field when the index is made, or leave the rule out"
            )
