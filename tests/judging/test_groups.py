"""Groups: events and ends as a model says that steps from document to document, however the feed is cut."""

import json
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from support.long_form import LONG
from support.models.changes import Model, Verdict
from support.models.spreading import Spreading, reached

from stream_lsh.documents.times import LAST_TIME, NO_TIME
from stream_lsh.index.rows import layout
from stream_lsh.index.segments.window import SHARE
from stream_lsh.judging.ending import Ending
from stream_lsh.judging.folding import fold
from stream_lsh.judging.groups import Group
from stream_lsh.judging.verdicts import Judgement, Kind


class Memtable:
    """Groups in dictionaries, which keeps rows as the store does, and names too."""

    def __init__(self) -> None:
        self.stored: dict[int, bytes] = {}
        self.kept: dict[int, tuple[int, bytes]] = {}
        self.more: set[tuple[int, bytes]] = set()
        self.ids: dict[int, bytes] = {}

    def rows(self, groups: Sequence[int]) -> dict[int, Group]:
        return {number: Group.of_json(self.stored[number]) for number in groups if number in self.stored}

    def first_member(self, seq: int) -> tuple[int, bytes]:
        return self.kept[seq]

    def has_source(self, group: int, source: bytes) -> bool:
        found = (group, source) in self.more
        self.more.add((group, source))
        return found

    def id_of(self, shard: int, row: int) -> bytes:
        return self.ids[row]

    def first_of(self, shard: int, row: int) -> bytes:
        raise AssertionError("a redelivered document is in no event")


@dataclass
class Step:
    """A document, the verdict on it, and of the version that went with it whether it was kept, and its group."""

    id: str
    time: int | None
    source: str | None
    verdict: Verdict
    was_representative: bool = False
    left: int | None = None


def judged(steps: list[Step], first: int, groups: Memtable) -> Judgement:
    """Verdicts on some documents, the numbers of which begin with `first`; their rows are their numbers."""
    n, seqs = len(steps), np.arange(first, first + len(steps))
    ids = [json.dumps(step.id).encode() for step in steps]
    groups.ids.update(zip(seqs.tolist(), ids, strict=True))

    def column(values: Sequence[int | None]) -> Any:
        return np.array([-1 if value is None else value for value in values], np.int64)

    verdicts = [step.verdict for step in steps]
    of = column([min((seq for _, seq, _ in verdict.matches), default=None) for verdict in verdicts])
    representatives = column([verdict.new_representative and verdict.new_representative[1] for verdict in verdicts])
    kinds = np.array([Kind[verdict.kind.upper()] for verdict in verdicts], np.uint8)
    none, zeros = np.zeros(0, np.int64), np.zeros(n, np.int64)
    return Judgement(
        ids=ids, seqs=seqs, kinds=kinds, first_kinds=np.full(n, layout.UNKNOWN, np.uint8), reused=np.zeros(n, np.bool_),
        of=np.stack((zeros, of), axis=1), of_seqs=of, similarities=np.full(n, 0.9),
        groups=column([verdict.group for verdict in verdicts]), starts=np.zeros(n + 1, np.int64), matched_shards=none,
        matched_rows=none, matched_seqs=none, matched_similarities=np.zeros(0), truncated=zeros, not_compared=zeros,
        replaces=column([verdict.replaces for verdict in verdicts]),
        was_representative=np.array([step.was_representative for step in steps]),
        left=column([step.left for step in steps]), representatives=np.stack((zeros, representatives), axis=1),
        representative_seqs=representatives,
        names=groups,
    )  # fmt: skip


@st.composite
def feeds(draw: st.DrawFn) -> list[Step]:
    """Families of similar texts, many changed and withdrawn; of few sources; times with gaps and at both ends."""
    times = st.none() | st.sampled_from([0, 1, LAST_TIME - 1]) | st.integers(10**12, 10**12 + 50)
    sources = st.none() | st.integers(0, draw(st.sampled_from([2, 40]))).map(lambda n: f"s{n}")
    texts = st.lists(st.sampled_from("abcde"), min_size=1, max_size=4).map(" ".join)
    ids = st.integers(0, draw(st.sampled_from([5, 100]))).map(lambda n: f'd"{n}\ud800')
    changing = draw(st.sampled_from([0, 1, 3]))
    model = Model(0, 0.45, unique=True, update=changing > 0)
    said, steps = Spreading(), list[Step]()
    for seq in range(draw(st.integers(1, 80))):
        id, time, source = draw(ids), draw(times), draw(sources)
        gone = draw(st.integers(0, 9)) < changing
        verdict = model.delete(seq, id, None) if gone else model.judge(seq, id, draw(texts | st.just("")), None)
        steps.append(Step(id, time, source, verdict, *said.before(verdict)))
        said.step(seq, id, verdict, time, source)
    return steps


def expected_events(steps: list[Step], sources: bool, reached: int = 0) -> tuple[list[Any], dict[int, Any]]:
    """The events by the model, and the table."""
    said = Spreading()
    events = [
        event for seq, step in enumerate(steps)
        for event in said.step(seq, step.id, step.verdict, step.time, step.source if sources else None)
        if event["group"] >= reached
    ]  # fmt: skip
    return events, {number: row for number, row in said.table.items() if number >= reached}


cuts = st.lists(st.integers(1, 79), max_size=6)


@settings(max_examples=100 if LONG else 60)
@given(feeds(), cuts, st.booleans(), st.sampled_from((0, 0, 5)))
def test_events_are_those_of_the_model(steps: list[Step], cuts: list[int], sources: bool, reached: int) -> None:
    # The events of a feed that comes in these batches, and what is kept in the end. reached: groups with smaller
    # numbers have ended before anything came.
    groups, events, first = Memtable(), [], 0
    for end in [*sorted({cut for cut in cuts if cut < len(steps)}), len(steps)]:
        batch = steps[first:end]
        judgement = judged(batch, first, groups)
        times = np.array([NO_TIME if step.time is None else step.time for step in batch], np.int64)
        said = [b"" if step.source is None else json.dumps(step.source).encode() for step in batch] if sources else []
        for i in np.flatnonzero(judgement.kinds == Kind.UNIQUE).tolist():
            groups.kept[first + i] = (int(times[i]), said[i] if sources else b"")
        found = fold(judgement, times, said, groups, np.full(len(batch), reached))
        for group in found.groups:
            groups.stored[group.group] = group.json
            if not group.live_members:
                del groups.stored[group.group]
        events += [json.loads(line) for line in b"".join(found.lines(judgement.ids, judgement.seqs)).splitlines()]
        first = end
    assert (events, {number: json.loads(row) for number, row in groups.stored.items()}) == expected_events(
        steps, sources, reached
    )
    # The last event of each group is its row, or says that it has none any more.
    folded = {event["group"]: {key: event[key] for key in list(event)[3:]} for event in events}
    ended = {event["group"] for event in events if event["event"] == "ended"}
    stored = {number: json.loads(row) for number, row in groups.stored.items()}
    assert stored == {number: row for number, row in folded.items() if number not in ended}


def test_a_row_is_read_as_it_was_written() -> None:
    row = Group(7, b'"\\ud800 \\u00e9"', 7, 3, 4, 4, 0, NO_TIME, 2, [b'"\\ud800"', b"17"])
    assert Group.of_json(row.json) == row


MINUTE = 60_000
steps = st.lists(st.sampled_from((0, 1, 1000, MINUTE, 10 * MINUTE, 400 * MINUTE)), min_size=1, max_size=300)
gaps = st.integers(1, 3)


@given(
    steps,
    st.lists(gaps, min_size=300, max_size=300),
    st.sampled_from((1000, MINUTE, 5 * MINUTE, 80 * MINUTE)),
    st.data(),
)
def test_it_is_a_function_of_the_log(
    given_steps: list[int], between: list[int], window: int, data: st.DataObject
) -> None:
    log = (1_700_000_000_000 + np.cumsum(given_steps)).tolist()
    seqs = np.cumsum([data.draw(st.sampled_from((0, 4096))), *between[: len(log) - 1]]).tolist()
    expected = reached(log, seqs, window)
    ending, found, at = Ending(window), [], 0
    while at < len(log):
        end = at + data.draw(st.integers(1, 100))
        found += ending.enter(np.array(log[at:end]), np.array(seqs[at:end])).tolist()
        assert len(ending.slots) <= 2 * SHARE + 3
        ending = Ending(window, ending.slots, ending.reached, ending.last)
        at = end
    assert found == expected
    assert ending.reached == expected[-1] <= ending.due
    for end, now in zip(found, log, strict=True):  # who founded a group that has ended came two windows ago
        before = log[: bisect_left(seqs, end)]
        assert not before or now - before[-1] > 2 * window - 1


def test_few_documents_with_many_numbers_catch_up() -> None:
    """On Kafka a frame has 4,096 numbers, be there one document in it."""
    ending, many = Ending(MINUTE), 1000
    seqs = np.arange(0, 2 * many) * 4096
    log = np.where(np.arange(2 * many) < many, 10**12, 10**12 + 10 * MINUTE)
    found = ending.enter(log, seqs)
    assert found[many - 1] == 0 and found[many + many // 4] == seqs[many] == ending.due < seqs[-1]


def test_what_was_rejected_before_the_first_time() -> None:
    """It has no stream time yet, or, if it came in one batch with the first time, that one."""
    for before in (-1, 10**12):
        ending = Ending(MINUTE)
        log = [before, before, 10**12, 10**12 + 10 * MINUTE, 10**12 + 10 * MINUTE]
        assert ending.enter(np.array(log), np.arange(5)).tolist() == [0, 0, 0, 3, 3]
        assert Ending(MINUTE, ending.slots, ending.reached).slots == ending.slots
