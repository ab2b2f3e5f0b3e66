"""The ring of events: who reads on gets every event once, and who comes too late is told so."""

import json
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.serving import events

from stream_lsh.serve.events import KINDS, Block, Event, Kind, Kinds, Place, Ring, place_of

ALL = frozenset(KINDS)


def block(first: int, documents: int, kinds: tuple[Kind, ...] = ("verdict", "pair")) -> Block:
    """Events of so many documents, one of each kind."""
    made = [
        Event((seq, n), kind, json.dumps([seq, kind]).encode())
        for seq in range(first, first + documents)
        for n, kind in enumerate(kinds, 1)
    ]
    return Block((first, 0), (first + documents, 0), made)


def read(ring: Ring, place: Place, kinds: Kinds = ALL) -> Iterator[tuple[str, object]]:
    """What a listener at a place is told, until there is no more; the places that it is told must rise."""
    while True:
        text, reached = ring.after(place, kinds)
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
def test_whoever_goes_on_misses_nothing_and_gets_nothing_twice(
    sizes: list[int], seq: int, n: int, kinds: set[Kind]
) -> None:
    ring, at = Ring(3), 3
    for size in sizes:
        ring.add(block(at, size))
        at += size
    wanted = frozenset(kinds)
    found = list(read(ring, (seq, n), wanted))
    everything = [
        (place, (kind, [place[0], kind]))
        for s in range(3, at)
        for place, kind in (((s, 1), "verdict"), ((s, 2), "pair"))
        if kind in wanted
    ]
    outside = not (3, 0) <= (seq, n) <= (at, 0)
    assert [event[0] for event in found].count("gap") == outside
    after = [event for place, event in everything if place > (seq, n)] if (seq, n) <= (at, 0) else []
    assert [event for event in found if event[0] != "gap"] == after


def test_what_is_too_long_ago_is_a_gap() -> None:
    ring = Ring(0, most_events=4)
    for seq in range(5):
        ring.add(block(seq, 1))
    assert list(read(ring, (1, 1))) == [
        ("gap", {"from": "1.1", "to": "3.0"}), ("verdict", [3, "verdict"]), ("pair", [3, "pair"]),
        ("verdict", [4, "verdict"]), ("pair", [4, "pair"]),
    ]  # fmt: skip


def test_the_bytes_that_are_kept_are_bounded() -> None:
    ring = Ring(0, most_bytes=400)
    for seq in range(50):
        ring.add(block(seq, 1))
    assert ring.begin == (48, 0)


def test_a_new_ring_continues_after_the_last_delivered_event() -> None:
    before, after = Ring(0), Ring(7)
    before.add(block(0, 7, ("verdict",)))
    text, place = before.after((0, 0), frozenset[Kind](["alert"]))
    assert text == b"id: 7.0\n\n" and place == (7, 0)  # nothing for this listener, but he knows how far it is
    after.add(block(7, 1, ("verdict",)))
    assert list(read(after, place)) == [("verdict", [7, "verdict"])]
    assert next(read(after, (6, 1))) == ("gap", {"from": "6.1", "to": "7.0"})


def test_a_place_of_another_stream_is_a_gap() -> None:
    assert list(read(Ring(5), (900, 0))) == [("gap", {"from": "900.0", "to": "5.0"})]


@pytest.mark.parametrize("text", ["", "1", "1.", ".1", "-1.0", "1.0.0", "1.x", "²" * 3 + ".0", "9" * 50 + ".0"])
def test_an_id_that_is_none(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no place in the stream of events: give seq\.n"):
        place_of(text)
