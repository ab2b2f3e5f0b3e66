"""Documents and verdicts meet in order, each once, whatever is compacted or begins again."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson
import pytest
from aiokafka.structs import ConsumerRecord
from hypothesis import given, settings
from hypothesis import strategies as st
from support.long_form import LONG

from stream_lsh.errors import ForeignError
from stream_lsh.kafka.forward.join import Join, Joined, Verdict, weight
from stream_lsh.kafka.forward.partition import forwarded, read_verdict, tombstone
from stream_lsh.kafka.settings import KafkaSettings


@dataclass(frozen=True)
class Document:
    offset: int
    value: bytes | None = b"text"
    key: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()


def verdicts(*places: tuple[int, int]) -> list[Verdict]:
    return [Verdict(at, document, "unique") for at, document in places]


def offsets(join: Join[Document], most: int = 100, most_bytes: int = 1 << 20) -> list[int]:
    found = join.take(most, most_bytes)
    for joined in found:
        assert joined.document is not None and joined.document.offset == joined.verdict.document
    return [joined.verdict.document for joined in found]


def state(join: Join[Document]) -> tuple[int, int, int]:
    return join.position, join.needed, join.lost


def test_a_tombstone_is_written_although_the_document_was_compacted_away() -> None:
    """Or deleted, where that loss is accepted; once."""
    for lost in (False, True):
        join: Join[Document] = Join(0, 0)
        if lost:
            join.documents_deleted(2)
        join.add_documents([Document(offset) for offset in ((2, 4) if lost else (0, 4))])
        ended = [Verdict(at, document, "deleted", tombstone=[("id", b"1")]) for at, document in enumerate(range(5))]
        ended[2] = ended[2]._replace(tombstone=(), new_representatives=[(b"h", [("new-representative", b"1")])])
        join.add_verdicts([ended[0]._replace(tombstone=()), *ended[1:]])
        found = join.take(100, 1 << 20)
        there = {0, 4} if not lost else {2, 4}
        assert [joined.verdict.document for joined in found] == ([0] if not lost else []) + [1, 2, 3, 4]
        assert {joined.verdict.document for joined in found if joined.document is not None} == there
        assert (join.position, join.needed) == (5, 5)


def test_documents_that_were_judged_and_have_no_verdict_are_named_without_a_later_one() -> None:
    join: Join[Document] = Join(0, 0)
    join.add_documents([Document(offset) for offset in (0, 2, 3, 5)])
    join.add_verdicts(verdicts((0, 0)))
    join.judged(4)  # the first has its verdict
    assert offsets(join) == [0] and join.without_verdict == []
    join.judged(4)
    assert join.without_verdict == [2, 3] and join.position == 4
    join.add_verdicts(verdicts((1, 5)))
    assert offsets(join) == [5] and join.without_verdict == [2, 3]
    assert join.size == 0 and join.waiting == (0, 0)


def test_limits() -> None:
    join: Join[Document] = Join(0, 0)
    documents = [Document(offset, b"x" * 1000) for offset in range(6)]
    join.add_documents(documents)
    assert join.size == 6 * weight(documents[0])
    join.add_verdicts(verdicts(*((at, at) for at in range(6))))
    assert offsets(join, most=2) == [0, 1]
    assert state(join) == (2, 2, 0)
    assert offsets(join, most_bytes=1) == [2]
    assert offsets(join, most_bytes=weight(documents[0]) + 1) == [3, 4]
    assert offsets(join) == [5]


def test_all_of_a_document_has_its_weight() -> None:
    empty = weight(Document(0, None))
    whole = Document(0, bytes(100), bytes(20), [("name", bytes(3)), ("none", None)])
    assert weight(whole) == empty + 100 + 20 + 4 + 3 + 4


def test_a_verdict_that_arrives_when_the_position_is_behind_its_compacted_document() -> None:
    join: Join[Document] = Join(0, 0)
    join.reached(3, 0)
    join.add_verdicts([Verdict(0, 1, "deleted", tombstone=[("id", b"1")])])
    assert [(joined.document, joined.verdict.at) for joined in join.take(100, 1 << 20)] == [(None, 0)]
    assert state(join) == (3, 1, 0) and join.compacted == 1


def test_deleted_documents_without_later_ones() -> None:
    join: Join[Document] = Join(0, 0)
    join.add_verdicts(verdicts((0, 0), (1, 1), (2, 2)))
    assert offsets(join) == [] and state(join) == (0, 0, 0)
    join.documents_deleted(2)
    assert offsets(join) == [] and state(join) == (2, 2, 2)
    join.add_documents([Document(2)])
    assert offsets(join) == [2]


def test_verdicts_that_were_joined_before_are_read_again_for_another_topic() -> None:
    join: Join[Document] = Join(3, 7)
    join.add_documents([Document(3)])
    join.add_verdicts(verdicts((4, 1), (6, 2), (8, 3)))
    assert join.first_verdict == 8
    assert offsets(join) == [3] and state(join) == (4, 9, 0)


def test_documents_deleted_before_a_topic_was_added() -> None:
    join: Join[Document] = Join(2, 7, new=True)
    join.add_verdicts(verdicts((8, 1)))
    assert offsets(join) == [] and join.lost == 1


def test_deleted_verdicts() -> None:
    join: Join[Document] = Join(0, 0)
    join.add_documents([Document(offset) for offset in range(5)])
    join.verdicts_deleted()
    join.add_verdicts(verdicts((7, 3), (8, 4)))
    assert offsets(join) == [3, 4]
    assert state(join) == (5, 9, 3) and join.size == 0


def test_a_later_verdict_shows_that_a_document_has_none() -> None:
    """It was read in time, but compacted before it was signed; or its verdict is lost."""
    join: Join[Document] = Join(0, 0)
    join.add_documents([Document(offset) for offset in range(4)])
    join.add_verdicts(verdicts((0, 0)))
    assert offsets(join) == [0] and not join.without_verdict
    join.add_verdicts(verdicts((1, 2), (2, 3)))
    assert offsets(join) == [2, 3]
    assert state(join) == (4, 3, 0) and join.without_verdict == [1] and join.size == 0


def test_where_nothing_waits_the_position_follows_the_consumer() -> None:
    join: Join[Document] = Join(0, 0)
    join.add_documents([Document(0)])
    join.reached(2, 2)
    assert state(join) == (0, 0, 0)  # a document waits
    join.add_verdicts(verdicts((0, 0)))
    assert offsets(join) == [0]
    join.reached(2, 3)
    assert state(join) == (2, 3, 0)
    join.add_documents([Document(2)])
    join.add_verdicts(verdicts((3, 2)))
    assert offsets(join) == [2]


def test_documents_read_again_are_taken_once() -> None:
    join: Join[Document] = Join(5, 0)
    join.add_documents([Document(4), Document(5)])
    join.add_documents([Document(5), Document(6)])
    assert join.waiting == (2, 0)


@st.composite
def partitions(draw: st.DrawFn) -> tuple[list[int], list[tuple[int, int]]]:
    """Offsets of documents, and the log of verdicts on them, both with holes."""
    gaps = draw(st.lists(st.integers(1, 3), min_size=1, max_size=8))
    places = [sum(gaps[: i + 1]) - 1 for i in range(len(gaps))]
    steps = draw(st.lists(st.integers(1, 2), min_size=len(places), max_size=len(places)))
    return places, [(sum(steps[: i + 1]) - 1, place) for i, place in enumerate(places)]


@settings(max_examples=2000 if LONG else 200, deadline=None)
@given(
    partitions(),
    st.lists(
        st.tuples(st.sampled_from(["documents", "verdicts", "take", "crash", "look", "compact"]), st.integers(1, 4))
    ),
    st.sets(st.integers(0, 7)),
)
def test_each_document_once_and_in_order(
    made: tuple[list[int], list[tuple[int, int]]], steps: Sequence[tuple[str, int]], unsigned: set[int]
) -> None:
    """But for those that are compacted: those that are `unsigned` were before they had a verdict."""
    places, log = made
    never = {places[i] for i in unsigned if i < len(places) - 1}
    log = [(at, place) for at, place in log if place not in never]
    there = set(places)
    committed = 0, 0
    join: Join[Document] = Join(*committed)
    read = 0, 0  # positions of the consumer
    out: list[int] = []

    def fetch(kind: str, number: int) -> None:
        nonlocal read
        if kind == "documents":
            found = [place for place in sorted(there) if place >= read[0]][:number]
            join.add_documents([Document(place) for place in found])
            read = (found[-1] + 1 if found else read[0], read[1])
        else:
            taken = [(at, place) for at, place in log if at >= read[1]][:number]
            # Who signed these has met no document before them that has no verdict.
            there.difference_update(place for place in never if taken and place < max(taken, key=lambda t: t[1])[1])
            join.add_verdicts(verdicts(*taken))
            read = (read[0], taken[-1][0] + 1 if taken else read[1])

    def look() -> None:
        """What the stage does from time to time."""
        nonlocal read
        if not any(place >= read[0] for place in there):
            read = max(read[0], places[-1] + 1), read[1]
            join.reached(*read)

    last = [("documents", 99), ("verdicts", 99), ("take", 99), ("look", 1)]
    for kind, number in [*steps, *last, *last, *last]:
        if kind == "take":
            out += offsets(join, most=number)
            assert join.position >= committed[0] and join.needed >= committed[1]
            committed = join.position, join.needed
        elif kind == "crash":  # before the commit of what it might just be doing
            join, read = Join(*committed), committed
        elif kind == "look":
            look()
        elif kind == "compact":  # but for the last one
            there -= set(places[number - 1 : -1 : 4])
        else:
            fetch(kind, number)
    assert out == sorted(set(out)) and not never & set(out)
    assert set(out) >= there
    assert join.lost == 0 and join.waiting == (0, 0) and join.size == 0
    assert join.needed == log[-1][0] + 1 if log and log[-1][1] == places[-1] else True


SOURCE = {"topic": "docs", "partition": 3, "offset": 70}
REPRESENTATIVE = {
    "new_representative": {"id": 17, "seq": 4096},
    "new_representative_source": {"topic": "docs", "partition": 1, "offset": 5},
}
WHERE = [
    ("new-representative-topic", b"docs"),
    ("new-representative-partition", b"1"),
    ("new-representative-offset", b"5"),
]


def record(value: bytes | None, key: bytes | None, timestamp: int = 7, **more: Any) -> ConsumerRecord[Any, Any]:
    return ConsumerRecord("docs", 3, 9, timestamp, 0, key, value, None, -1, -1, more.get("headers", ()))


def said(**more: Any) -> ConsumerRecord[Any, Any]:
    return record(orjson.dumps({"id": "ä", "kind": "deleted", "source": SOURCE, **more}), "ä".encode(), 8)


@pytest.mark.parametrize("key", [b"another key", None])
@pytest.mark.parametrize(
    ("more", "new_representative"), [({}, []), (REPRESENTATIVE, [*WHERE, ("new-representative", b"17")])]
)
def test_its_headers_name_the_removed_document_and_the_representative(
    key: bytes | None, more: dict[str, Any], new_representative: list[Any]
) -> None:
    # As another pipeline passed it on, which had a new representative.
    theirs = (("id", b'"other"'), ("new-representative", b"4"), *WHERE)
    document = record(b"whatever", key, headers=(("traceparent", b"00"), *theirs))
    verdict = read_verdict(said(tombstone=True, **more), "docs")
    found_key, value, headers, timestamp = tombstone(document, verdict)
    assert (found_key, value, timestamp) == (key or "ä".encode(), None, 7)
    assert headers[0] == ("traceparent", b"00")
    assert sorted(headers[1:]) == sorted([("id", '"ä"'.encode()), *new_representative])
    # Of a document that was compacted away there is the verdict.
    assert tombstone(None, verdict) == ("ä".encode(), None, headers[1:], 8)


def test_representatives_that_are_known_later_have_tombstones_under_their_own_keys() -> None:
    places = [{"topic": "docs", "partition": 1, "offset": 5}, {"topic": "docs", "partition": 2, "offset": 6}]
    named = [{"group": 3, "id": 17, "seq": 4096}, {"group": 4, "id": 'ü"', "seq": 5}]
    verdict = read_verdict(said(new_representatives=named, new_representative_sources=places), "docs")
    assert not verdict.tombstone
    document = record(b"whatever", b"k", headers=(("traceparent", b"00"),))
    rows = forwarded([Joined(document, verdict)], KafkaSettings())[0]
    assert [(key, value, timestamp) for key, value, _, timestamp in rows] == [
        (b"17", None, 7), ('ü"'.encode(), None, 7)
    ]  # fmt: skip
    assert sorted(rows[0][2]) == sorted([("new-representative", b"17"), *WHERE])
    assert dict(rows[1][2])["new-representative"] == '"ü\\""'.encode()
    assert [timestamp for *_, timestamp in forwarded([Joined(None, verdict)], KafkaSettings())[0]] == [8, 8]


@pytest.mark.parametrize(("json_keys", "key"), [(False, "ö".encode()), (True, '"ö"'.encode())])
def test_a_superseded_document_has_a_tombstone_under_its_own_id(json_keys: bool, key: bytes) -> None:
    verdict = read_verdict(said(kind="unique", supersedes="ö"), "docs")
    document = record(b"whatever", b"k", headers=(("traceparent", b"00"),))
    settings = KafkaSettings(on_conflict="update", key_is_id="json") if json_keys else KafkaSettings()
    found, _ = forwarded([Joined(document, verdict)], settings)
    assert found == [
        (key, None, [("id", '"ö"'.encode())], 7), (b"k", b"whatever", [("traceparent", b"00")], 7),
    ]  # fmt: skip
    # Also if the document was compacted away.
    assert forwarded([Joined(None, verdict)], settings)[0] == [(key, None, [("id", '"ö"'.encode())], 8)]


@pytest.mark.parametrize("id", [2**63, 2**64 + 1, -(2**64) - 1, 10**30], ids=str)
def test_integers_of_any_size_stay_what_they_are(id: int) -> None:
    one = {"group": 3, "id": id, "seq": 4096}
    place = {"topic": "docs", "partition": 1, "offset": 5}
    value = {
        "id": id, "kind": "deleted", "source": SOURCE, "tombstone": True, "supersedes": id, "new_representative": one,
        "new_representative_source": place, "new_representatives": [one], "new_representative_sources": [place],
    }  # fmt: skip
    text = b"%d" % id
    for separators in ((",", ":"), (", ", ": ")):
        verdict = read_verdict(record(json.dumps(value, separators=separators).encode(), text, 8), "docs")
        assert verdict.supersedes == text
        assert dict(verdict.tombstone) == {"id": text, "new-representative": text, **dict(WHERE)}
        ((key, headers),) = verdict.new_representatives
        assert key == dict(headers)["new-representative"] == text


def test_most_verdicts_have_no_tombstone() -> None:
    assert not read_verdict(said(), "docs").tombstone
    assert not read_verdict(said(**REPRESENTATIVE), "docs").tombstone


@pytest.mark.parametrize(
    "more",
    [
        {"new_representative": {"id": 1}},
        {"new_representatives": [{"id": 1}]},
        {"new_representative": {}, "new_representative_source": {}},
        {"id": 1.5},
    ],
)
def test_what_is_no_verdict(more: dict[str, Any]) -> None:
    with pytest.raises(ForeignError, match="a record is no verdict"):
        read_verdict(said(**{"tombstone": True, **more}), "docs")
