"""Groups: every event as a model says that steps from document to document, however the feed is cut into batches."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from stream_lsh.documents.times import LAST_TIME, NO_TIME
from stream_lsh.index import layout
from stream_lsh.judging.groups import LISTED, Group, fold
from stream_lsh.judging.verdicts import Judgement, Kind


@dataclass
class Model:
    """The groups, slowly: documents as (seq, id, kind, group, time, source)."""

    documents: dict[int, list[tuple[int, str, int | None, str | None]]] = field(default_factory=dict)

    def step(self, seq: int, id: str, kind: Kind, group: int, time: int | None, source: str | None) -> dict | None:
        """The event of a document, if there is one."""
        if kind == Kind.UNIQUE:
            self.documents[seq] = [(seq, id, time, source)]
        if kind not in (Kind.NEAR_DUPLICATE, Kind.EXACT_DUPLICATE):
            return None
        members = self.documents[group]
        members.append((seq, id, time, source))
        times = [member[2] for member in members if member[2] is not None]
        sources = list(dict.fromkeys(member[3] for member in members if member[3] is not None))
        return {
            "event": "created" if len(members) == 2 else "joined", "seq": seq, "id": id, "group": group,
            "representative": {"id": members[0][1], "seq": group}, "version": len(members) - 1, "size": len(members),
            "living": len(members), "first": min(times, default=None), "last": max(times, default=None),
            "sources": len(sources), "first_sources": sources[:LISTED],
        }  # fmt: skip


class Memory:
    """A shelf in dictionaries, which keeps rows as the store does, and names too."""

    def __init__(self) -> None:
        self.stored: dict[int, bytes] = {}
        self.kept: dict[int, tuple[int, bytes]] = {}
        self.more: set[tuple[int, bytes]] = set()
        self.ids: dict[int, bytes] = {}

    def rows(self, groups: list[int]) -> dict[int, Group]:
        return {number: Group.of_json(self.stored[number]) for number in groups if number in self.stored}

    def founder(self, seq: int) -> tuple[int, bytes]:
        return self.kept[seq]

    def has_source(self, group: int, source: bytes) -> bool:
        found = (group, source) in self.more
        self.more.add((group, source))
        return found

    def id_of(self, shard: int, row: int) -> bytes:
        return self.ids[row]

    def first_of(self, shard: int, row: int) -> bytes:
        raise AssertionError("a redelivered document is in no event")


Step = tuple[str, Kind, int, int | None, str | None]  # id, kind, group, time, source


def judged(steps: list[Step], first: int, shelf: Memory) -> Judgement:
    """Verdicts on some documents, the numbers of which begin with `first`; their rows are their numbers."""
    n, seqs = len(steps), np.arange(first, first + len(steps))
    ids = [json.dumps(step[0]).encode() for step in steps]
    shelf.ids.update(zip(seqs.tolist(), ids, strict=True))
    groups = np.array([step[2] for step in steps], np.int64)
    none, zeros = np.zeros(0, np.int64), np.zeros(n, np.int64)
    return Judgement(
        ids, seqs, np.array([step[1] for step in steps], np.uint8), np.full(n, layout.UNKNOWN, np.uint8),
        np.zeros(n, np.bool_), np.stack((zeros, groups), axis=1), np.full(n, 0.9), groups, np.zeros(n + 1, np.int64),
        none, none, none, np.zeros(0), zeros, zeros, zeros - 1, zeros > 0, np.full((n, 2), -1), zeros - 1, shelf,
    )  # fmt: skip


def fold_all(steps: list[Step], cuts: list[int], sources: bool) -> tuple[list[dict], Memory]:
    """The events of a feed that comes in these batches, and what is kept in the end."""
    shelf, events, first = Memory(), [], 0
    for end in [*sorted({cut for cut in cuts if cut < len(steps)}), len(steps)]:
        batch = steps[first:end]
        judgement = judged(batch, first, shelf)
        times = np.array([NO_TIME if step[3] is None else step[3] for step in batch], np.int64)
        said = [b"" if step[4] is None else json.dumps(step[4]).encode() for step in batch] if sources else []
        for i in np.flatnonzero(judgement.kinds == Kind.UNIQUE).tolist():
            shelf.kept[first + i] = (int(times[i]), said[i] if sources else b"")
        found = fold(judgement, times, said, shelf)
        shelf.stored.update((group.group, group.json) for group in found.groups)
        events += [json.loads(line) for line in b"".join(found.lines(judgement.ids, judgement.seqs)).splitlines()]
        first = end
    return events, shelf


@st.composite
def feeds(draw: st.DrawFn) -> list[Step]:
    """Few groups and many, few sources and more than are listed, times with gaps and at both ends."""
    times = st.none() | st.sampled_from([0, 1, LAST_TIME - 1]) | st.integers(10**12, 10**12 + 50)
    sources = st.none() | st.integers(0, draw(st.sampled_from([2, 40]))).map(lambda n: f"s{n}")
    steps: list[Step] = []
    kept: list[int] = []
    for seq in range(draw(st.integers(1, 80))):
        kind = draw(st.sampled_from([*Kind, Kind.NEAR_DUPLICATE, Kind.EXACT_DUPLICATE])) if kept else Kind.UNIQUE
        group = seq if kind == Kind.UNIQUE else draw(st.sampled_from(kept[:3])) if kept else seq
        if kind == Kind.UNIQUE:
            kept.append(seq)
        if kind == Kind.REJECTED:
            group = -1
        steps.append((f'd"{seq}\ud800', kind, group, draw(times), draw(sources)))
    return steps


@given(feeds(), st.lists(st.integers(1, 79), max_size=6), st.booleans())
def test_events_are_those_of_the_model(steps: list[Step], cuts: list[int], sources: bool) -> None:
    events, shelf = fold_all(steps, cuts, sources)
    model = Model()
    told = [
        event for seq, (id, kind, group, time, source) in enumerate(steps)
        if (event := model.step(seq, id, kind, group, time, source if sources else None)) is not None
    ]  # fmt: skip
    assert events == told
    # The last event of each group is its row.
    folded = {event["group"]: {key: event[key] for key in list(event)[3:]} for event in events}
    assert {number: json.loads(row) for number, row in shelf.stored.items()} == folded


@given(feeds(), st.lists(st.integers(1, 79), max_size=6), st.lists(st.integers(1, 79), max_size=6))
def test_the_lines_do_not_depend_on_batches(steps: list[Step], cuts: list[int], others: list[int]) -> None:
    assert fold_all(steps, cuts, True)[0] == fold_all(steps, others, True)[0]


def test_more_sources_than_are_listed_are_counted() -> None:
    steps: list[Step] = [("kept", Kind.UNIQUE, 0, None, "s0")]
    steps += [(f"d{n}", Kind.NEAR_DUPLICATE, 0, None, f"s{n % 50}") for n in range(1, 120)]
    events, _ = fold_all(steps, [7, 30, 31, 90], True)
    assert [event["sources"] for event in events] == [min(n + 1, 50) for n in range(1, 120)]
    assert events[-1]["first_sources"] == [f"s{n}" for n in range(LISTED)]


def test_a_row_is_read_as_it_was_written() -> None:
    row = Group(7, b'"\\ud800 \\u00e9"', 7, 3, 4, 4, 0, NO_TIME, 2, [b'"\\ud800"', b"17"])
    assert Group.of_json(row.json) == row
