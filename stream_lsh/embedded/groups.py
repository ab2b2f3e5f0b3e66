"""The groups of an index: their rows and members in its store, and what is folded since the last commit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stream_lsh.documents.times import NO_TIME
from stream_lsh.embedded.group_cache import GroupCache
from stream_lsh.embedded.group_erasing import without_ids
from stream_lsh.embedded.group_store import (
    FACT,
    MEMBER,
    SUPERSEDED,
    block_of,
    encoded,
    first_members_key,
    lengths,
    member_removal,
    member_removal_key,
    members_key,
    row_key,
    source_key,
)
from stream_lsh.embedded.pending import Pending, Readable
from stream_lsh.errors import StoreError, UsageError
from stream_lsh.index.index import Index
from stream_lsh.index.segments.stream_time import StreamTime, shown
from stream_lsh.index.store.rocksdb import Range, Store
from stream_lsh.judging.ending import Ending
from stream_lsh.judging.events import Change, Events
from stream_lsh.judging.folding import fold
from stream_lsh.judging.groups import Group
from stream_lsh.judging.verdicts import Judgement, Kind

NO_GROUPS = (
    "the index in {} keeps no groups: they are kept from the beginning on or not at all; feed it again into a new "
    "folder without --no-groups, or leave out what needs them (--groups, --alerts, --source-field)"
)
GROUPS = (
    "the index in {} keeps groups, from the beginning on and in every run; leave out --no-groups, or use another folder"
)

Part = tuple[NDArray[Any], NDArray[np.int64], list[bytes], list[bytes]]
"""Rows of MEMBER, their groups, ids and sources."""


class Groups:
    """The groups of a log, in a store. What is added counts with the commit that writes what `take` gives.

    Args:
        window: ms, 0 = nothing is forgotten. fact: what the store says of them.
    """

    def __init__(self, store: Store, window: int, fact: Mapping[str, Any]) -> None:
        self._store = store
        self._fact = dict(fact)
        self._cache = GroupCache(store)
        self._members: list[Part] = []  # since the last commit
        self._member_removals: dict[bytes, bytes] = {}
        self._view: Pending | None = None  # of these
        self._ending = None
        self._log = StreamTime(fact.get("log"))  # without a window, which has its own
        if window:
            self._ending = Ending(window, fact.get("slots"), fact.get("ended", 0), fact.get("last", -1))
        self._cleared: int = fact.get("cleared", 0)  # of smaller numbers nothing is in the store any more

    @property
    def source_field(self) -> str | None:
        """The field that holds the source of a document."""
        field: str | None = self._fact["source_field"]
        return field

    def first_member(self, seq: int) -> tuple[int, bytes]:
        """Event time and source of a kept document, NO_TIME and b"" where there is none."""
        return self._cache.first_member(seq)

    def stream_times(
        self, seqs: NDArray[np.int64], times: NDArray[np.int64], log: NDArray[np.int64], shift: int
    ) -> tuple[NDArray[np.int64], int]:
        """Stream times int64[n] of a batch and their shift: with a window those that are given, otherwise their own.

        seqs: int64[n], of the documents. times: int64[n], event times, NO_TIME for what is rejected at once.
        """
        if self._ending is None:
            self._log.follow(shift)
            log, shift = self._log.advance(times), self._log.shift
        if shift and len(log):
            shifts = self._fact.get("shifts", [])
            if not shifts or shifts[-1][1] < shift:
                self._fact["shifts"] = [*shifts, [int(seqs[0]), shift]]
            self._fact["now"] = int(log[-1]) - shift
        return log, shift

    @property
    def shown(self) -> int:
        """Without a window: stream time as people are shown it (`stream_time.shown`)."""
        return shown(self._log.facts)

    def set_back(self, time: int) -> None:
        """Set stream time back to `time`, ms since 1970."""
        self._log.set_back(time)
        self._fact["now"] = time

    def add(
        self, judgement: Judgement, times: NDArray[np.int64], log: NDArray[np.int64], sources: list[bytes]
    ) -> Events:
        """Fold a batch. times, log: int64[n], event times (NO_TIME for none) and, with a window, stream times; sources:
        of all n, or nothing."""
        self._view = None
        timed = times.tolist().count(NO_TIME) < len(times)
        if sources or timed:
            kept = judgement.of_kind(Kind.UNIQUE)
            if sources or (times[kept] != NO_TIME).any():
                self._cache.keep(judgement.seqs[kept], times[kept], chosen(sources, kept))
        before, reached = (
            (0, None) if self._ending is None else (self._ending.reached, self._ending.enter(log, judgement.seqs))
        )
        events = fold(judgement, times, sources, self._cache, reached)
        self._cache.put(events.groups)
        if len(events.places):
            self._remember(judgement, events, times, sources)
        if timed:
            accepted = judgement.kinds <= np.uint8(Kind.EXACT_DUPLICATE)
            latest = int(times[accepted].max(initial=NO_TIME))
            if latest != NO_TIME:
                self._fact["latest"] = max(latest, self._fact.get("latest") or 0)
        return events if reached is None else replace(events, ended=self._end(before, reached))

    def _end(self, begin: int, reached: NDArray[np.int64]) -> list[tuple[int, Group]]:
        """The groups that a window ends, from this number on, and the places of the documents before which it does."""
        if not len(reached) or reached[-1] == begin:
            return []
        found = self._cache.ending(begin, int(reached[-1]))
        places = np.searchsorted(reached, [group.group for group in found], "right").tolist()
        return list(zip(places, found, strict=True))

    def _clear(self) -> list[Range]:
        """What the store has of groups that have ended, seldom: deleted ranges have their price, too."""
        ending, store = self._ending, self._store
        if ending is None or not self._cleared < ending.reached == ending.due:
            return []
        begin, end = self._cleared, ending.reached
        ranges = [
            (row_key(begin), row_key(end)), (members_key(begin, 0), members_key(end, 0)),
            (member_removal_key(begin, 0), member_removal_key(end, 0)), (source_key(begin, b""), source_key(end, b"")),
        ]  # fmt: skip
        if (block := block_of(store, end)) is not None:
            ranges.append((first_members_key(0), block[0]))
        self._cleared = end
        return ranges

    def _remember(self, judgement: Judgement, events: Events, times: NDArray[np.int64], sources: list[bytes]) -> None:
        """Note the documents that were dropped for a group or supersede its representative, and the versions that left
        it."""
        superseding = np.isin(events.places, judgement.superseding)
        came = events.changes <= np.uint8(Change.UPDATED)
        came &= superseding | (judgement.kinds[events.places] != np.uint8(Kind.UNIQUE))
        self._join(judgement, events, came, times, sources)
        for event in np.flatnonzero(came & superseding).tolist():
            i = int(events.places[event])
            key = member_removal_key(int(judgement.groups[i]), int(judgement.of_seqs[i]))
            self._member_removals[key] = member_removal(SUPERSEDED, int(judgement.seqs[i]), judgement.oldest(i))
        late = (events.changes == np.uint8(Change.REPRESENTATIVE_CHANGED)) & (
            judgement.representative_seqs[events.places] < 0
        )  # no version leaves with it
        for event in np.flatnonzero((events.changes >= np.uint8(Change.UPDATED)) & ~late).tolist():
            i, group = int(events.places[event]), events.groups[events.of[event]].group
            key = member_removal_key(group, int(judgement.replaces[i]))
            superseded = key in self._member_removals or self._store.value(key) is not None
            id = judgement.ids[i] if judgement.was_representative[i] or superseded else b""
            self._member_removals[key] = member_removal(int(judgement.seqs[i]), int(times[i]), id)

    def _join(
        self, judgement: Judgement, events: Events, which: NDArray[np.bool_], times: NDArray[np.int64],
        sources: list[bytes],
    ) -> None:  # fmt: skip
        places = events.places[which]
        if not len(places):
            return
        ids, named = chosen(judgement.ids, places), chosen(sources, places) or [b""] * len(places)
        members = np.empty(len(places), MEMBER)
        members["seq"], members["time"] = judgement.seqs[places], times[places]
        members["similarity"], members["kind"] = judgement.similarities[places], judgement.kinds[places]
        members["id"], members["source"] = lengths(ids), lengths(named)
        self._members.append((members, judgement.groups[places], ids, named))

    def take(self) -> tuple[dict[str, Any], dict[bytes, bytes | None], list[Range]]:
        """What the next commit has to write: a fact, values by key (None deletes the key), and key ranges to delete."""
        ranges, values = self._clear(), self._values()
        self._cache.committed()
        self._members, self._member_removals, self._view = [], {}, None
        if (ending := self._ending) is None:
            self._fact["log"] = self._log.facts
        else:
            self._fact |= {
                "slots": ending.slots, "ended": ending.reached, "last": ending.last, "cleared": self._cleared
            }  # fmt: skip
        return {FACT: self._fact}, values, ranges

    @property
    def changed(self) -> Mapping[int, Group | None]:
        """The rows that have changed since the last commit, by number; None: it is not there any more."""
        return self._cache.changed

    @property
    def ended(self) -> int:
        """Groups with smaller numbers have left the window."""
        return self._ending.reached if self._ending is not None else 0

    @property
    def view(self) -> Readable:
        """The store as the next commit will leave it, to read groups and members from."""
        if self._view is None:
            self._view = Pending(self._store, self._values())
        return self._view

    def _values(self) -> dict[bytes, bytes | None]:
        """What the next commit has to write, by key; None deletes the key."""
        cache, reached = self._cache, self.ended
        values: dict[bytes, bytes | None] = {
            row_key(number): group.json if group is not None else None for number, group in cache.changed.items()
        }
        for block, sources in cache.kept:
            if block["seq"][-1] >= reached:
                values[first_members_key(int(block["seq"][0]))] = encoded(block, sources)
        for some, first in (
            (cache.sources, source_key(reached, b"")),
            (self._member_removals, member_removal_key(reached, 0)),
        ):
            values.update((key, value) for key, value in some.items() if key >= first)
        values.update(self._chunks(reached))
        return values

    def _chunks(self, reached: int) -> Iterator[tuple[bytes, bytes]]:
        """The new members of each group from this number on under one key: the group and the first of them."""
        if not self._members:
            return
        members, groups = (np.concatenate([batch[part] for batch in self._members]) for part in (0, 1))
        ids, sources = ([text for batch in self._members for text in batch[part]] for part in (2, 3))
        order = np.argsort(groups, kind="stable")
        members, groups, places = members[order], groups[order], order.tolist()
        begins = np.flatnonzero(np.diff(groups, prepend=-1)).tolist()
        for begin, end in zip(begins, [*begins[1:], len(groups)], strict=True):
            if groups[begin] < reached:
                continue
            at = places[begin:end]
            texts = [ids[i] for i in at] + [sources[i] for i in at]
            key = members_key(int(groups[begin]), int(members["seq"][begin]))
            yield key, encoded(members[begin:end], texts)


def chosen(texts: Sequence[bytes], places: NDArray[np.int64]) -> list[bytes]:
    """Those in these places; nothing of nothing."""
    return list(texts) if len(texts) in (0, len(places)) else [texts[i] for i in places.tolist()]


def opened(index: Index, wanted: bool | None, source_field: str | None) -> Groups | None:
    """The groups of an index that is being written, None if it keeps none.

    wanted: a new index is to keep them; None: if it can, and another is as it was made. source_field: as given for this
    run, which is to have groups then.

    Raises:
        UsageError: an index with compare_with = "all" has none.
        StoreError: there are documents already, or another source field.
    """
    fact = index.store.named(FACT)
    fed = bool((index.store.named("job") or {}).get("next_seq"))
    if wanted is None:
        wanted = source_field is not None or (index.settings.compare_with == "kept" and not fed)
    if fact is None and wanted:
        if index.settings.compare_with != "kept":
            raise UsageError(
                "--groups: only under --compare-with kept there are groups: what was dropped for one document"
            )
        if fed:
            raise StoreError(NO_GROUPS.format(index.folder))
        fact = {"source_field": source_field, "latest": None}
    if fact is None:
        return None
    if source_field not in (None, fact["source_field"]):
        raise StoreError(
            f"the groups of the index in {index.folder} have source_field = {fact['source_field']!r} "
            f"(now {source_field!r}); use that, leave it out, or use another folder"
        )
    groups = Groups(index.store, index.settings.window_ms, fact)
    index.erases_beside(partial(without_ids, index.store))
    return groups
