"""Events of several topics in one order; who reads on gets each once, and who comes too late is told so."""

import json
import random
import tracemalloc
from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.serving import events

from stream_lsh.serve.event_filter import KINDS, EventFilter, Kind
from stream_lsh.serve.events import Block, Event, Place, Ring, Said, place_of
from stream_lsh.serve.pipeline.outputs import BLOCK, Merge, tell

ALL = EventFilter()


def block(first: int, documents: int, kinds: tuple[Kind, ...] = ("verdict", "pair")) -> Block:
    """Events of so many documents, one of each kind."""
    made = [
        Event((seq, n), kind, json.dumps([seq, kind]).encode())
        for seq in range(first, first + documents)
        for n, kind in enumerate(kinds, 1)
    ]
    return Block((first, 0), (first + documents, 0), made)


def read(ring: Ring, place: Place, wanted: EventFilter = ALL) -> Iterator[tuple[str, object]]:
    """What a listener at a place is told, until there is no more; the places that it is told must rise."""
    while True:
        text, reached = ring.after(place, wanted)
        if not text:
            return
        for event in events(iter(text.decode().split("\n"))):
            at = place_of(event["id"])
            assert at >= place or event.get("event") == "gap"
            place = at
            if "data" in event:
                yield event["event"], event["data"]
        assert place == reached


@given(st.lists(st.integers(1, 5), max_size=12), st.integers(0, 40), st.integers(0, 2), st.sets(st.sampled_from(KINDS)))
def test_a_client_that_continues_misses_nothing_and_gets_nothing_twice(
    sizes: list[int], seq: int, n: int, kinds: set[Kind]
) -> None:
    ring, at = Ring(3), 3
    for size in sizes:
        ring.add(block(at, size))
        at += size
    wanted = EventFilter(frozenset(kinds))
    found = list(read(ring, (seq, n), wanted))
    everything = [
        (place, (kind, [place[0], kind]))
        for s in range(3, at)
        for place, kind in (((s, 1), "verdict"), ((s, 2), "pair"))
        if kind in kinds
    ]
    outside = not (3, 0) <= (seq, n) <= (at, 0)
    assert [event[0] for event in found].count("gap") == outside
    after = [event for place, event in everything if place > (seq, n)] if (seq, n) <= (at, 0) else []
    assert [event for event in found if event[0] != "gap"] == after


def test_latest_events_of_a_kind_come_newest_first() -> None:
    ring = Ring(0)
    for seq in range(3):
        ring.add(block(seq, 1))
    assert [event.place for event in ring.backwards("pair", None)] == [(2, 2), (1, 2), (0, 2)]
    assert [event.place for event in ring.backwards("pair", (1, 2))] == [(0, 2)]


def test_what_is_too_long_ago_is_a_gap() -> None:
    ring = Ring(0, most_events=4)
    for seq in range(5):
        ring.add(block(seq, 1))
    assert list(read(ring, (1, 1))) == [
        ("gap", {"from": "1.1", "to": "3.0"}), ("verdict", [3, "verdict"]), ("pair", [3, "pair"]),
        ("verdict", [4, "verdict"]), ("pair", [4, "pair"]),
    ]  # fmt: skip


def test_memory_of_events_and_of_their_texts_is_bounded() -> None:
    ring = Ring(0, most_bytes=1 << 18, most_text_bytes=1 << 18)
    some = [EventFilter(frozenset[Kind]([kind])) for kind in ("verdict", "pair")] + [ALL]
    tracemalloc.start()
    try:
        for seq in range(2000):
            ring.add(block(seq, 1))
            assert all(ring.after((seq, 0), kinds)[1] == (seq + 1, 0) for kinds in some)
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert ring.begin > (1000, 0)
    assert taken < 1.2 * (2 << 18)


def test_a_new_ring_continues_after_the_last_delivered_event() -> None:
    before, after = Ring(0), Ring(7)
    before.add(block(0, 7, ("verdict",)))
    text, place = before.after((0, 0), EventFilter(frozenset[Kind](["alert"])))
    assert text == b"id: 7.0\n\n" and place == (7, 0)  # nothing for this listener, but he knows how far it is
    after.add(block(7, 1, ("verdict",)))
    assert list(read(after, place)) == [("verdict", [7, "verdict"])]
    assert next(read(after, (6, 1))) == ("gap", {"from": "6.1", "to": "7.0"})


@pytest.mark.parametrize("text", ["", "1", "1.", ".1", "-1.0", "1.0.0", "1.x", "²" * 3 + ".0", "9" * 50 + ".0"])
def test_an_id_that_is_none(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no place in the stream of events: give seq\.n"):
        place_of(text)


def stream(seed: int, documents: int) -> list[list[Said]]:
    """Partitions of the outputs: two of verdicts, two of pairs, one of groups, one of alerts."""
    chance = random.Random(seed)
    partitions: list[list[Said]] = [[] for _ in range(6)]
    for number in range(documents):
        seq, partition = 7 * number, chance.randrange(2)
        partitions[partition].append((seq, "verdict", b"v%d" % seq))
        for i in range(chance.choice([0, 0, 1, 3])):
            partitions[2 + partition].append((seq, "pair", b"p%d,%d" % (seq, i)))
        if chance.random() < 0.3:
            partitions[4].append((seq, "group", b"g%d" % seq))
        if chance.random() < 0.05:
            partitions[5].append((seq, "alert", b"a%d" % seq))
    return partitions


def merged(partitions: list[list[Said]], seed: int, most: int) -> Ring:
    """The ring of somebody who reads these partitions in an order of his own."""
    chance, ring, merge = random.Random(seed), Ring(0, most), Merge(most)
    at = [0] * len(partitions)
    last = max(records[-1][0] for records in partitions if records) + 1
    while any(place < len(records) for place, records in zip(at, partitions, strict=True)):
        before = chance.randrange(last + 1)
        for _ in range(chance.randrange(40)):
            number = chance.randrange(len(partitions))
            if at[number] < len(partitions[number]):
                seq, kind, data = partitions[number][at[number]]
                at[number] += 1
                merge.add(seq, kind, data)
        for number, records in enumerate(partitions):  # all are read that far
            while at[number] < len(records) and records[at[number]][0] < before:
                seq, kind, data = records[at[number]]
                at[number] += 1
                merge.add(seq, kind, data)
        before = max(before, ring.end[0])
        tell(ring, merge.take(before), merge.begin, before)
    tell(ring, merge.take(last), merge.begin, last)
    return ring


def all_of(ring: Ring) -> bytes:
    place, found = ring.begin, []
    while place != ring.end:
        text, place = ring.after(place, ALL)
        found.append(b"\n".join(line for line in text.split(b"\n\n") if b"event:" in line))
    return b"\n".join(found)


@given(st.integers(0, 2**32), st.integers(1, 300))
def test_the_order_is_the_same_for_all_clients(seed: int, documents: int) -> None:
    partitions = stream(seed, documents)
    one, other = merged(partitions, seed, 10**6), merged(partitions, seed + 1, 10**6)
    assert all_of(one) == all_of(other)
    wanted = sorted(
        (item for records in partitions for item in records), key=lambda item: (item[0], KINDS.index(item[1]))
    )
    assert [line.partition(b"data: ")[2] for line in all_of(one).splitlines() if line.startswith(b"data")] == [
        data for _, _, data in wanted
    ]
    kept = merged(partitions, seed, 50)
    assert all_of(one).endswith(all_of(kept))
    assert (kept.end == one.end and kept.begin[0] > 0) or len(wanted) <= 50 + 10


def test_a_restart_continues_where_the_last_run_was() -> None:
    ring = Ring(0)
    first: list[Said] = [(seq, "verdict", b"%d" % seq) for seq in range(10)]
    tell(ring, first, 0, 10)
    more: list[Said] = [(seq, "verdict", b"%d" % seq) for seq in range(4, 20)]
    tell(ring, more, 4, 20)
    assert all_of(ring).count(b"event: verdict") == 20 and ring.begin == (0, 0) and ring.end == (20, 0)
    tell(ring, [(30, "verdict", b"30")], 25, 40)  # from 20 to 25 something is missing
    assert (ring.begin, ring.end) == ((25, 0), (31, 0))
    assert ring.after((20, 0), ALL)[0].startswith(b'event: gap\ndata: {"from":"20.0","to":"25.0"}')
    tell(ring, [(3, "verdict", b"3")], 0, 5)  # the topics were made anew
    assert (ring.begin, ring.end) == ((0, 0), (4, 0))


def test_blocks_do_not_part_a_document() -> None:
    ring = Ring(0)
    said: list[Said] = [(seq, "verdict", b"v") for seq in range(BLOCK - 1)]
    said += [(BLOCK, "pair", b"%d" % i) for i in range(5)] + [(BLOCK + 1, "verdict", b"w")]
    tell(ring, said, 0, BLOCK + 2)
    text, place = ring.after((BLOCK, 2), ALL)
    assert text.count(b"event: pair") == 3 and place >= (BLOCK + 1, 0)
    blocks = [(block.begin, block.end) for block in ring._blocks]
    assert all(one[1] == other[0] for one, other in pairwise(blocks))


def test_latest_of_each_kind_are_given_again() -> None:
    ring = Ring(0)
    ring.add(block(0, 2, ("verdict", "alert")))
    ring.add(block(2, 50))
    text = ring.latest(3, EventFilter(frozenset[Kind]({"pair", "alert"}))).decode()
    assert [event["data"] for event in events(iter(text.split("\n"))) if "data" in event] == [
        [0, "alert"], [1, "alert"], [49, "pair"], [50, "pair"], [51, "pair"]
    ]  # fmt: skip
    assert text.endswith("id: 52.0\n\n") and Ring(7).latest(3, ALL) == b"id: 7.0\n\n"
