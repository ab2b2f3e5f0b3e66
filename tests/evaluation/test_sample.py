"""Samples of documents, and the similarity of their pairs."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_lsh.evaluation.exact import Ranked
from stream_lsh.evaluation.sample import background, draw


def texts(count: int) -> list[bytes]:
    return [f"document {number}".encode() for number in range(count)]


def test_a_short_stream_is_taken_whole_and_in_order() -> None:
    sample = draw(texts(50), 100, 10**6)
    assert [sample.text(i) for i in range(len(sample))] == texts(50)
    assert sample.seen == 50


def test_the_same_stream_gives_the_same_sample() -> None:
    first, second = draw(texts(5000), 100, 10**6), draw(iter(texts(5000)), 100, 10**6)
    assert first.texts == second.texts
    assert len(first) == 100
    assert first.seen == 5000


def test_it_is_spread_over_the_stream() -> None:
    # 500 of 5,000: a quarter of the stream holds 125 on average, standard deviation below 9.7; 5 of them.
    sample = draw(texts(5000), 500, 10**6)
    places = [int(sample.text(i).split()[1]) for i in range(len(sample))]
    assert places == sorted(places)
    for quarter in range(4):
        assert abs(sum(quarter * 1250 <= place < (quarter + 1) * 1250 for place in places) - 125) < 49


def test_bytes_are_bounded() -> None:
    sample = draw([b"x" * 1000] * 500, 400, 50_000)
    assert len(sample) == 50
    assert len(draw([b"x" * 1000] * 5, 400, 100)) == 2  # two documents make one pair: fewer would be of no use
    assert len(draw([], 10, 10)) == 0


def test_a_part_of_a_sample() -> None:
    sample = draw(texts(100), 100, 10**6)
    assert [sample.first(4).text(i) for i in range(4)] == [
        b"document 0",
        b"document 25",
        b"document 50",
        b"document 75",
    ]
    assert sample.first(200) is sample


@given(groups=st.lists(st.sets(st.integers(0, 15), max_size=10), max_size=20))
@settings(max_examples=100, deadline=None)
def test_background_is_all_pairs(groups: list[set[int]]) -> None:
    members = np.array([value for group in groups for value in group], dtype=np.uint64)
    offsets = np.cumsum([0] + [len(group) for group in groups], dtype=np.int64)
    found = background(Ranked.of(members, offsets))
    pairs = [(a, b) for a, b in itertools.combinations([group for group in groups if group], 2)]
    similarities = [len(a & b) / len(a | b) for a, b in pairs]
    assert found.pairs == len(pairs)
    assert sum(count for _, count in found.histogram()) == len(pairs)
    for below in (0.5, 1.1):
        expected = [
            (s, len(a & b) * (1 / len(a) + 1 / len(b)) / 2) for s, (a, b) in zip(similarities, pairs, strict=True)
        ]
        low = [item for item in expected if item[0] < below]
        assert found.mean(below) == pytest.approx(sum(s for s, _ in low) / len(low) if low else 0)
        assert found.chance(below) == pytest.approx(sum(c for _, c in low) / len(low) if low else 0)
    assert found.alike(0.5) == sum(s >= 0.5 for s in similarities)
    assert found.quantile(1.0, 1.1) == pytest.approx(max(similarities, default=0), abs=0.001)
