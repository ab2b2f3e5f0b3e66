"""The stories of the demo: complete, varied, the same for the same seed; and what differs between two texts."""

import re
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_lsh.demo import desks
from stream_lsh.demo.differences import Piece, differences
from stream_lsh.demo.story import Desk, Topic, write

TOPICS = [
    pytest.param(desk, topic, id=f"{desk.name}-{number}")
    for desk in (*desks.ENGLISH, *desks.OTHERS, desks.NOTICES)
    for number, topic in enumerate(desk.topics)
]


@pytest.mark.parametrize(("desk", "topic"), TOPICS)
def test_nothing_of_the_templates_shows(desk: Desk, topic: Topic) -> None:
    for seed in range(20):
        story = write(Random(seed), desk, topic)
        text = "\n".join([story.title(), story.other_title(), *story.body(len(story.extras))])
        assert not re.search(r"[{}|\[\]]", text)
        assert story.title() != story.other_title()
        assert not re.search(r"(^|[.] )[a-z]", text, re.MULTILINE)


WORDS = st.lists(st.sampled_from(["one", "two", "three", "four", "中", "文", "five."]), max_size=40).map(" ".join)


def plain(pieces: list[Piece]) -> str:
    return "".join(piece.text for piece in pieces)


def test_a_changed_word() -> None:
    left, right = differences("the price rose to 17 euros", "the price rose to 19 euros")
    assert left == [Piece("the price rose to", False), Piece(" 17", True), Piece(" euros", False)]
    assert right == [Piece("the price rose to", False), Piece(" 19", True), Piece(" euros", False)]


def test_scripts_without_spaces_are_compared_by_character() -> None:
    left, right = differences("全长三十公里，共设车站", "全长五十公里，共设车站")
    assert [piece.text for piece in left if piece.changed] == ["三"]
    assert [piece.text for piece in right if piece.changed] == ["五"]


@given(WORDS, WORDS)
def test_with_room_for_all_nothing_is_lost(first: str, second: str) -> None:
    left, right = differences(first, second, opening=10**6, context=10**6, longest=10**6)
    assert plain(left) == " ".join(first.split())
    assert plain(right) == " ".join(second.split())
