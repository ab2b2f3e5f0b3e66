"""Documents and verdicts meet in order, each once, whatever repeats, is missing for a while, or begins again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from stream_lsh.kafka.forward.join import Join, Verdict, weight


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
        assert joined.document.offset == joined.verdict.document
    return [joined.document.offset for joined in found]


def state(join: Join[Document]) -> tuple[int, int, int]:
    return join.position, join.settled, join.lost


def test_whoever_comes_first_waits() -> None:
    join: Join[Document] = Join(0, 0)
    join.add_verdicts(verdicts((0, 0), (1, 1)))
    assert offsets(join) == []
    join.add_documents([Document(0)])
    assert offsets(join) == [0]
    assert state(join) == (1, 1, 0)
    join.add_documents([Document(1), Document(4), Document(5)])
    assert offsets(join) == [1]
    assert state(join) == (2, 2, 0) and join.waiting == (2, 0)
    join.add_verdicts(verdicts((5, 4), (6, 5)))
    assert offsets(join) == [4, 5]
    assert state(join) == (6, 7, 0) and join.waiting == (0, 0) and join.size == 0


def test_repeats_are_dropped_even_while_no_document_is_there() -> None:
    join: Join[Document] = Join(3, 10)
    join.add_verdicts(verdicts((10, 1), (11, 2), (13, 3), (14, 2), (15, 3)))
    assert offsets(join) == []
    assert state(join) == (3, 12, 0) and join.waiting == (0, 3)
    join.add_documents([Document(3)])
    assert offsets(join) == [3]
    assert offsets(join) == []
    assert state(join) == (4, 16, 0)


def test_a_hole_is_waited_for_and_its_place_stays_committed() -> None:
    join: Join[Document] = Join(0, 0)
    join.add_documents([Document(offset) for offset in range(4)])
    join.add_verdicts(verdicts((0, 0), (1, 2), (2, 3)))
    assert offsets(join) == [0]
    assert offsets(join) == []
    assert state(join) == (1, 1, 0) and join.hole  # whoever begins again reads the early ones again
    join.add_verdicts(verdicts((3, 1), (4, 2), (5, 3)))
    assert offsets(join) == [1, 2, 3]
    assert state(join) == (4, 6, 0) and not join.hole


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


def test_documents_that_are_missing_are_counted() -> None:
    join: Join[Document] = Join(0, 0)
    join.add_documents([Document(2)])
    join.add_verdicts(verdicts((0, 0), (1, 1), (2, 2)))
    assert offsets(join) == [2]
    assert state(join) == (3, 3, 2)


def test_documents_that_are_gone_and_none_has_come_since() -> None:
    join: Join[Document] = Join(0, 0)
    join.add_verdicts(verdicts((0, 0), (1, 1), (2, 2)))
    assert offsets(join) == [] and state(join) == (0, 0, 0)
    join.gone(2)
    assert offsets(join) == [] and state(join) == (2, 2, 2)
    join.add_documents([Document(2)])
    assert offsets(join) == [2]


def test_documents_that_were_gone_before_the_beginning() -> None:
    join: Join[Document] = Join(2, 0)
    join.add_verdicts(verdicts((0, 0), (1, 1), (2, 2), (3, 1)))
    assert offsets(join) == [] and state(join) == (2, 2, 2)
    join.add_documents([Document(2)])
    assert offsets(join) == [2] and state(join) == (3, 4, 2)  # the last one is a repeat


def test_verdicts_that_are_gone() -> None:
    join: Join[Document] = Join(0, 0)
    join.add_documents([Document(offset) for offset in range(5)])
    join.verdicts_gone()
    join.add_verdicts(verdicts((7, 3), (8, 4)))
    assert offsets(join) == [3, 4]
    assert state(join) == (5, 9, 3) and join.size == 0


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
    """Offsets of documents, with holes, and the log of verdicts that judges without transactions leave: each life
    sends from its commit on, some are lost and later ones land, late ones of zombies come anywhere."""
    gaps = draw(st.lists(st.integers(1, 3), min_size=1, max_size=8))
    places = [sum(gaps[: i + 1]) - 1 for i in range(len(gaps))]
    log: list[int] = []
    committed = 0
    for _ in range(draw(st.integers(0, 3))):
        sent = draw(st.lists(st.booleans(), max_size=len(places) - committed))
        log += [places[committed + i] for i, landed in enumerate(sent) if landed]
        whole = sent.index(False) if False in sent else len(sent)
        committed = draw(st.integers(committed, committed + whole))
    log += places[committed:]
    for place in draw(st.lists(st.sampled_from(places), max_size=3)):
        log.insert(draw(st.integers(0, len(log))), place)
    at, numbered = 0, []
    for place in log:
        at += draw(st.integers(0, 1))
        numbered.append((at, place))
        at += 1
    return places, numbered


@settings(max_examples=400, deadline=None)
@given(
    partitions(), st.lists(st.tuples(st.sampled_from(["documents", "verdicts", "take", "crash"]), st.integers(1, 4)))
)
def test_each_document_once_and_in_order(
    made: tuple[list[int], list[tuple[int, int]]], steps: Sequence[tuple[str, int]]
) -> None:
    places, log = made
    committed = 0, 0
    join: Join[Document] = Join(*committed)
    read = 0, 0  # positions of the consumer
    out: list[int] = []

    def fetch(kind: str, number: int) -> None:
        nonlocal read
        if kind == "documents":
            found = [place for place in places if place >= read[0]][:number]
            join.add_documents([Document(place) for place in found])
            read = (found[-1] + 1 if found else read[0], read[1])
        else:
            taken = [(at, place) for at, place in log if at >= read[1]][:number]
            join.add_verdicts(verdicts(*taken))
            read = (read[0], taken[-1][0] + 1 if taken else read[1])

    for kind, number in [*steps, ("documents", 99), ("verdicts", 99), ("take", 99)]:
        if kind == "take":
            out += offsets(join, most=number)
            assert join.position >= committed[0] and join.settled >= committed[1]
            committed = join.position, join.settled
        elif kind == "crash":  # before the commit of what it might just be doing
            join, read = Join(*committed), committed
        else:
            fetch(kind, number)
    assert out == places
    assert join.lost == 0 and join.waiting == (0, 0) and join.size == 0
    assert join.settled == log[-1][0] + 1 if log[-1][1] == places[-1] else True
