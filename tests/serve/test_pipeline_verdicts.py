"""What a service of a pipeline remembers of verdicts."""

import json
from typing import Any

from stream_lsh.serve.pipeline.verdicts import ARRIVED, Verdicts, parsed


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


def test_a_representative_stands_for_its_group_in_whatever_order_the_partitions_are_read() -> None:
    dropped = verdict("b", 2, "near_duplicate")
    gone = verdict("a", 5, "deleted", new_representative={"id": "b", "seq": 2})
    later = verdict("c", 6, "unique", new_representatives=[{"group": 1, "id": "b", "seq": 2}])
    for representatives in (gone, later):
        assert state(fed(dropped, representatives), "b") == state(fed(representatives, dropped), "b") == "kept"
    found = fed(verdict("a", 1, "unique"), dropped, gone)
    assert found.of("a") is None


async def test_what_comes_again_is_answered_as_it_was_the_first_time() -> None:
    again = verdict("a", 9, "redelivered", first_kind="unique", group=1)
    found = fed(verdict("a", 1, "unique"), again)
    answer = parsed(await found.wait((0, 9)))
    assert (answer["seq"], answer["kind"], answer["redelivered"], answer["group"]) == (1, "unique", 9, 1)
    assert "first_kind" not in answer
    unknown = parsed(await fed(again).wait((0, 9)))  # its first verdict was too long ago
    assert (unknown["seq"], unknown["kind"]) == (None, "unique")
    provisional = {**again, "first_kind": None}
    assert parsed(await fed(provisional).wait((0, 9))) == provisional


async def test_a_verdict_is_sent_to_waiting_and_late_readers() -> None:
    found = Verdicts(10, keeps=True)
    waiting = found.wait((1, 4))
    for seq in range(6):
        one = verdict(f"d{seq}", seq, "unique")
        found.add(json.dumps(one).encode(), one)
    assert parsed(await waiting)["id"] == "d4"
    assert parsed(await found.wait((2, 5)))["id"] == "d5"
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


def test_lone_surrogates_are_read() -> None:
    assert parsed(b'{"id":"\\ud800"}')["id"] == "\ud800"
