"""What rules would have said of an index, by what it has stored of its groups, for `stream-lsh alerts test`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stream_lsh.alerts.rule_state import Alert, RuleStates, Seen
from stream_lsh.alerts.rules import Rule
from stream_lsh.documents.times import NO_TIME
from stream_lsh.embedded.alerts import check_fields
from stream_lsh.embedded.group_ranking import NO_TIMES
from stream_lsh.embedded.group_store import (
    FIRST_MEMBER,
    MEMBER,
    decoded,
    dropped,
    group_of,
    member_removals,
    parse_member_removal,
    row,
)
from stream_lsh.embedded.group_table import reading_groups
from stream_lsh.errors import UsageError
from stream_lsh.index.segments.stream_time import StreamTime
from stream_lsh.index.store.rocksdb import FIRST_MEMBERS, MEMBERS, REMOVED_MEMBERS, Store
from stream_lsh.judging.verdicts import Kind

AT_ONCE = 8192  # documents
_DOCUMENT = np.dtype(
    [
        ("seq", "<i8"), ("group", "<i8"), ("time", "<i8"), ("similarity", "<f8"), ("source", "<i4"), ("dropped", "?"),
        ("joined", "?"),
    ]
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Rehearsed:
    """An alert that the rules would have fired. id, source: of its document; the id is JSON text, null if it is not
    stored: of a kept document only."""

    alert: Alert
    seq: int
    id: bytes
    source: bytes

    @property
    def line(self) -> bytes:
        group = b"%d" % self.alert.subject if isinstance(self.alert.subject, int) else b"null"
        return self.alert.line(self.seq, self.id, self.source, group)


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """The alerts that rules would have fired. documents: how many were judged. forgotten: as `RuleStates` counts it."""

    alerts: list[Rehearsed]
    documents: int
    forgotten: int


def rehearse(folder: Path, rules: Sequence[Rule]) -> Rehearsal:
    """The alerts of all documents of an index whose groups are kept, as if the rules had been there from the beginning.

    It takes some 40 bytes of memory for a document, and each source.

    Raises:
        StoreError: there is no index, or it keeps no groups. UsageError: its documents have no times, or no sources.
    """
    with reading_groups(folder) as (store, fact):
        if fact["latest"] is None:
            raise UsageError(NO_TIMES.format(folder, "a rule"))
        check_fields(rules, "time_field", fact["source_field"])
        documents, sources = _documents(store)
        states, log = RuleStates(rules), StreamTime()
        alerts: list[Rehearsed] = []
        shifts = fact.get("shifts", [])
        places = np.searchsorted(documents["seq"], [seq for seq, _ in shifts]).tolist()
        set_back = {place: shift for place, (_, shift) in zip(places, shifts, strict=True)}
        starts = sorted({*range(0, len(documents), AT_ONCE), *set_back, len(documents)})
        for start, end in pairwise(starts):
            log.follow(set_back.get(start, 0))
            seen = _seen(documents[start:end], log, documents, sources)
            alerts += [_rehearsed(store, alert, seen) for alert in states.look(seen)]
        return Rehearsal(alerts, len(documents), states.forgotten)


def _documents(store: Store) -> tuple[NDArray[Any], list[bytes]]:
    """All that was kept or dropped, in the order of the log, and the sources by number."""
    numbers: dict[bytes, int] = {b"": 0}
    found = [part for kind in (FIRST_MEMBERS, MEMBERS) for part in _parts(store, kind, numbers)]
    documents = np.concatenate(found) if found else np.empty(0, _DOCUMENT)
    documents = documents[np.argsort(documents["seq"], kind="stable")]
    last = np.append(documents["seq"][1:] != documents["seq"][:-1], True)[: len(documents)]
    documents = documents[last]  # one that superseded another is there as a kept document and as a member
    documents["joined"] &= ~_updates(store, documents)
    return documents, list(numbers)


def _updates(store: Store, documents: NDArray[Any]) -> NDArray[np.bool_]:
    """Which documents replaced a version in the same group."""
    removed = [(group_of(key), parse_member_removal(key, value)[1]) for key, value in store.scan(REMOVED_MEMBERS)]
    groups, by = np.array(removed, np.int64).reshape(-1, 2).T
    at = np.minimum(np.searchsorted(documents["seq"], by), len(documents) - 1)
    found = np.zeros(len(documents), np.bool_)
    found[at[(documents["seq"][at] == by) & (documents["group"][at] == groups)]] = True
    return found


def _parts(store: Store, kind: bytes, numbers: dict[bytes, int]) -> Iterator[NDArray[Any]]:
    for key, value in store.scan(kind):
        rows, *_, sources = (
            decoded(value, MEMBER, "id", "source") if kind == MEMBERS else decoded(value, FIRST_MEMBER, "source")
        )
        part = np.zeros(len(rows), _DOCUMENT)
        part["seq"], part["time"], part["joined"] = rows["seq"], rows["time"], kind == MEMBERS
        part["group"] = group_of(key) if kind == MEMBERS else rows["seq"]
        if kind == MEMBERS:
            part["similarity"], part["dropped"] = rows["similarity"], rows["kind"] != np.uint8(Kind.UNIQUE)
        part["source"] = [numbers.setdefault(source, len(numbers)) for source in sources]
        yield part


def _seen(part: NDArray[Any], log: StreamTime, documents: NDArray[Any], sources: list[bytes]) -> Seen:
    def first_member(seq: int) -> tuple[int, bytes]:
        at = int(np.searchsorted(documents["seq"], seq))
        if at < len(documents) and documents["seq"][at] == seq:
            return int(documents["time"][at]), sources[documents["source"][at]]
        return NO_TIME, b""

    return Seen(
        range(len(part)), part["seq"].tolist(), part["dropped"].tolist(), part["joined"].tolist(),
        part["group"].tolist(), log.advance(np.ascontiguousarray(part["time"])).tolist(), part["similarity"].tolist(),
        [sources[number] for number in part["source"].tolist()], first_member,
        log.shift,
    )  # fmt: skip


def _rehearsed(store: Store, alert: Alert, seen: Seen) -> Rehearsed:
    seq, group = seen.seqs[alert.at], seen.groups[alert.at]
    id = b"null"
    if seen.dropped[alert.at]:
        id = next((member.id for member in dropped(store, group) if member.seq == seq), id)
    elif (known := row(store, group)) is not None:
        id = known.id if known.seq == seq else member_removals(store, group).kept.get(seq, id)
    return Rehearsed(alert, seq, id, seen.sources[alert.at])
