"""What a service makes of the records of the outputs, over its runs, and remembers of verdicts."""

import json
import logging
from itertools import permutations
from typing import Any

import pytest
from aiokafka import ConsumerRecord, TopicPartition

from stream_lsh.serve.counts import Tally
from stream_lsh.serve.event_filter import EventFilter, Kind
from stream_lsh.serve.events import Ring
from stream_lsh.serve.pipeline.outputs import Outputs
from stream_lsh.serve.pipeline.verdicts import ARRIVED, Verdicts


def verdict(id: str | int | None, seq: int, kind: str, **more: Any) -> dict[str, Any]:
    group = more.pop("group", seq)
    place = {"topic": "documents", "partition": seq % 3, "offset": seq}
    return {
        "id": id, "seq": seq, "kind": kind, "duplicate_of": None, "similarity": None, "group": group, "matches": [],
        "source": place, "time": None, **more,
    }  # fmt: skip


def fed(*said: dict[str, Any], most: int = 100, keeps: bool = True) -> Verdicts:
    found = Verdicts(most, keeps=keeps)
    for one in said:
        found.add(json.dumps(one).encode(), one)
    return found


def state(found: Verdicts, id: str | int) -> str | None:
    known = found.of(id)
    return None if known is None else known["state"]


def test_what_was_kept_and_what_was_dropped() -> None:
    said = verdict("a", 1, "unique"), verdict("b", 2, "near_duplicate"), verdict(17, 3, "exact_duplicate")
    found = fed(*said)
    assert [state(found, id) for id in ("a", "b", 17, "17")] == ["kept", "dropped", "dropped", None]
    assert state(fed(*said, keeps=False), "b") == "kept"


def test_a_group_has_its_representative_in_any_order_of_partitions() -> None:
    dropped = verdict("b", 2, "near_duplicate")
    gone = verdict("a", 5, "deleted", new_representative={"id": "b", "seq": 2})
    later = verdict("c", 6, "unique", new_representatives=[{"group": 1, "id": "b", "seq": 2}])
    for representatives in (gone, later):
        assert state(fed(dropped, representatives), "b") == state(fed(representatives, dropped), "b") == "kept"
    found = fed(verdict("a", 1, "unique"), dropped, gone)
    assert found.of("a") is None


def test_a_superseded_document_is_dropped_in_any_order_of_partitions() -> None:
    said = [
        verdict("a", 1, "unique"), verdict("b", 2, "unique", supersedes="a"),
        verdict("b", 3, "deleted", new_representative={"id": "a", "seq": 1}), verdict("c", 4, "unique", supersedes="a"),
        verdict("a", 5, "unique", replaces=1),
    ]  # fmt: skip
    for n, expected in (2, "dropped"), (3, "kept"), (4, "dropped"), (5, "kept"):
        for order in permutations(said[:n]):
            assert state(fed(*order), "a") == expected, order


async def test_a_repetition_is_answered_as_it_was_the_first_time() -> None:
    again = verdict("a", 9, "redelivered", first_kind="unique", group=1)
    found = fed(verdict("a", 1, "unique"), again)
    answer = json.loads(await found.wait((0, 9)))
    assert (answer["seq"], answer["kind"], answer["redelivered"], answer["group"]) == (1, "unique", 9, 1)
    assert "first_kind" not in answer
    unknown = json.loads(await fed(again).wait((0, 9)))  # its first verdict was too long ago
    assert (unknown["seq"], unknown["kind"]) == (None, "unique")
    provisional = {**again, "first_kind": None}
    assert json.loads(await fed(provisional).wait((0, 9))) == provisional


async def test_a_verdict_is_sent_to_waiting_and_late_readers() -> None:
    found = Verdicts(10, keeps=True)
    waiting = found.wait((1, 4))
    for seq in range(6):
        one = verdict(f"d{seq}", seq, "unique")
        found.add(json.dumps(one).encode(), one)
    assert json.loads(await waiting)["id"] == "d4"
    assert json.loads(await found.wait((2, 5)))["id"] == "d5"
    given_up = found.wait((0, 9))
    found.give_up((0, 9))
    one = verdict("d9", 9, "unique")
    found.add(json.dumps(one).encode(), one)
    assert not given_up.done()


def test_memory_has_a_bound() -> None:
    found = fed(*(verdict(f"d{i}", i, "unique") for i in range(ARRIVED + 50)), most=40)
    assert found.of("d0") is None and found.of(f"d{ARRIVED + 49}") is not None
    assert len(found._known) == 40 and len(found._arrived) == ARRIVED


def test_repeats_and_rejections_take_nothing_back() -> None:
    first, update = verdict("a", 1, "unique"), verdict("a", 4, "near_duplicate", replaces=1)
    found = fed(first, update, first, verdict("a", 6, "rejected", reason="id_reused", detail="x"))
    known = found.of("a")
    assert known is not None and (known["seq"], known["state"]) == (4, "dropped")
    rejected = fed(verdict("b", 2, "rejected", reason="empty", detail="nothing")).of("b")
    assert rejected is not None and (rejected["state"], rejected["reason"]) == ("rejected", "empty")


ALL = EventFilter()
PLACES: dict[Kind, TopicPartition] = {
    "verdict": TopicPartition("verdicts", 0), "pair": TopicPartition("pairs", 0), "group": TopicPartition("groups", 0),
    "alert": TopicPartition("alerts", 0),
}  # fmt: skip


class Made:
    """Outputs, and what came of them."""

    def __init__(self, most: int = 1000) -> None:
        self.ring, self.verdicts = Ring(0, most), Verdicts(most, keeps=True)
        self.tally = Tally(lambda: 0, lambda: 0, lambda: 0)
        self.outputs = Outputs(self.ring, self.verdicts, self.tally, most)

    def begin(self, *partial: Kind) -> None:
        whole = [place for kind, place in PLACES.items() if kind not in partial]
        self.outputs.begin({place: kind for kind, place in PLACES.items()}, whole)

    def take(self, kind: Kind, offset: int, value: bytes | dict[str, Any] | None) -> None:
        place, data = PLACES[kind], json.dumps(value).encode() if isinstance(value, dict) else value
        record = ConsumerRecord(place.topic, place.partition, offset, 0, 0, None, data, None, 0, 0, ())
        self.outputs.take(record)

    def verdict(self, seq: int) -> None:
        source = {"topic": "documents", "partition": 0, "offset": seq}
        said = {"id": f"d{seq}", "seq": seq, "kind": "unique", "duplicate_of": None, "similarity": None, "group": seq}
        self.take("verdict", seq, {**said, "matches": [], "source": source, "time": None})

    @property
    def sent(self) -> list[str]:
        place, found = self.ring.begin, []
        while place != self.ring.end:
            text, place = self.ring.after(place, ALL)
            found += [line[4:].decode() for line in text.splitlines() if line.startswith(b"id: ")]
        return [id for id in found if not id.endswith(".0")]


def test_an_idle_partition_holds_nothing_up_and_loses_nothing() -> None:
    made = Made()
    made.begin("alert")  # before where it is read from there was something, nobody knows with which document
    made.verdict(10)
    made.outputs.reach(20, 1)
    assert made.ring.begin == made.ring.end == (20, 0)
    for seq in (20, 25, 31):
        made.verdict(seq)
        made.outputs.reach(seq + 1, seq)
    assert made.sent == ["20.1", "25.1", "31.1"] and made.ring.begin == (20, 0)


def test_a_restart_continues_and_counts_nothing_twice() -> None:
    made = Made()
    made.begin()
    made.verdict(1)
    made.outputs.reach(2, 1)  # what was there before the service began is no work of its time
    made.verdict(2)
    made.take("pair", 0, b'{"older":"\\"newer_seq\\":9","newer":"d2","older_seq":1,"newer_seq":2,"similarity":0.9}')
    assert made.outputs.waiting == 2
    made.begin("verdict")
    made.verdict(1)
    made.verdict(2)
    made.take("pair", 0, b'{"older":"d1","newer":"d2","older_seq":1,"newer_seq":2,"similarity":0.9}')
    made.take("group", 0, b'{"event":"created","seq":2,"id":"d2","group":1}')
    made.take("group", 1, None)
    made.verdict(3)
    made.outputs.reach(4, 3)
    assert made.sent == ["1.1", "2.1", "2.2", "2.3", "3.1"]
    totals = made.tally.totals
    assert (totals["documents"], totals["pairs"], totals["group_events"]) == (2, 1, 1)


def test_other_topics_under_the_same_names_are_a_gap() -> None:
    made = Made()
    made.begin()
    for seq in range(100):
        made.verdict(seq)
    made.outputs.reach(100, 100)
    made.begin()
    made.verdict(5)
    made.outputs.reach(6, 1)
    assert made.ring.after((100, 0), ALL)[0].startswith(b"event: gap") and made.verdicts.of("d50") is None


def test_what_cannot_be_read_is_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    made = Made()
    made.begin()
    with caplog.at_level(logging.WARNING, "stream_lsh.serve"):
        made.take("verdict", 0, b"\xff")
        made.take("verdict", 1, b'{"seq":0}')
        made.take("pair", 0, b"{}")
    assert [record.message.partition(":")[0] for record in caplog.records] == [
        "verdicts, partition 0, offset 0", "verdicts, partition 0, offset 1", "pairs, partition 0, offset 0",
    ]  # fmt: skip
    made.verdict(2)
    made.outputs.reach(3, 1)
    assert made.sent == ["2.1"]


@pytest.mark.parametrize("id", ["\ud800", 2**63, 2**64 + 1, -(2**64) - 1, 10**30], ids=ascii)
def test_ids_stay_what_they_are(id: str | int) -> None:
    made = Made()
    made.begin()
    made.take("verdict", 0, verdict(id, 0, "unique"))
    made.take("verdict", 1, verdict("b", 1, "unique", supersedes=id))
    known = made.verdicts.of(id)
    assert known is not None and (known["id"], known["state"]) == (id, "dropped")
