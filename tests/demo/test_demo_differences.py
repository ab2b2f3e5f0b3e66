"""What differs between two texts."""

from hypothesis import given
from hypothesis import strategies as st

from stream_lsh.demo.differences import Piece, differences

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
