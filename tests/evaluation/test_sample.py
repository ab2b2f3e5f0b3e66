"""Samples of documents, the similarity of their pairs, and advice on the length of shingles."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_lsh.evaluation.advice import Length, advise, continuous_share, current_length, lengths, measure_lengths
from stream_lsh.evaluation.exact import Ranked
from stream_lsh.evaluation.sample import background, draw
from stream_lsh.settings.model import Settings


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
        low = [similarity for similarity in similarities if similarity < below]
        assert found.mean(below) == pytest.approx(sum(low) / len(low) if low else 0)
    shares = [len(a & b) * (1 / len(a) + 1 / len(b)) / 2 for a, b in pairs]
    assert found.typical_chance(1.0) == pytest.approx(sum(shares) / len(shares) if shares else 0)
    assert found.alike(0.5) == sum(s >= 0.5 for s in similarities)
    assert found.quantile(1.0, 1.1) == pytest.approx(max(similarities, default=0), abs=0.001)


def length(shingles: str, chance: float, candidates: float) -> Length:
    return Length(shingles, chance, 0.0, 0.0, candidates)


FREQUENCIES = [length("words:1", 0.2, 400.0), length("words:2", 0.02, 15.0), length("words:3", 0.001, 1.0)]


def test_the_shortest_that_is_rare_and_cheap_is_right() -> None:
    assert advise(FREQUENCIES, "words:3").startswith("words:3 is right")
    assert advise(FREQUENCIES, "words:2").startswith("words:2 is too short: a typical other document has 2.0 %")
    assert "from 400 to 1 a document" in advise(FREQUENCIES, "words:1")
    longer = [*FREQUENCIES, length("words:4", 0.0, 0.9)]
    assert advise(longer, "words:4").startswith("words:4 is long enough, and words:3 is too")
    # Rare shingles with many false candidates are still too short.
    titles = [length("words:1", 0.009, 126.0), length("words:2", 0.0, 4.0)]
    assert advise(titles, "words:2").startswith("words:2 is right")


def test_what_texts_have_in_common_is_not_cured_by_length() -> None:
    versions = [length("words:3", 0.04, 62.0), length("words:5", 0.006, 59.0)]
    assert "the false candidates stay" in advise(versions, "words:3")
    news = [length("words:3/4", 0.1, 60.0), length("words:3/8", 0.07, 10.0), length("words:3/12", 0.05, 2.0)]
    assert "passages in common" in advise(news, "words:3/8")
    assert "words:3/8 is all right all the same" in advise(news, "words:3/8")
    assert "words:3/8 has 10 false candidates a document instead of 60" in advise(news, "words:3/4")


def names(settings: Settings, continuous: float) -> list[str]:
    return [name for name, _ in lengths(settings, continuous)]


def test_what_is_tried_fits_the_texts_and_has_the_setting_in_it() -> None:
    assert names(Settings(shingles="words:3"), 0.0) == ["words:1", "words:2", "words:3", "words:4", "words:5"]
    assert names(Settings(shingles="words:3/8"), 0.0)[:3] == ["words:1/3", "words:2/5", "words:3/8"]
    assert names(Settings(shingles="words:3/8"), 0.9) == [
        "words:3/4",
        "words:3/6",
        "words:3/8",
        "words:3/10",
        "words:3/12",
    ]
    assert names(Settings(shingles="words:3"), 0.9)[0] == "words:1"
    assert names(Settings(set_field="tags"), 0.0) == []
    for shingles in ("words:7", "words:7/9", "words:3/7", "chars:11", "chars:5"):
        for continuous in (0.0, 0.9):
            settings = Settings(shingles=shingles)
            assert current_length(settings, continuous) in names(settings, continuous)


def test_each_length_is_the_setting_it_names() -> None:
    for shingles in ("words:3", "words:3/8", "words:2/5", "chars:9"):
        for tokens in (None, "word", "unicode"):
            for continuous in (0.0, 0.9):
                for name, signing in lengths(Settings(shingles=shingles, tokens=tokens), continuous):
                    assert Settings(shingles=name, tokens=tokens).signing == signing


def test_scripts_without_spaces_are_noticed() -> None:
    assert continuous_share(draw(["今天的新闻".encode(), b"a"], 10, 1000)) == pytest.approx(5 / 6)
    assert continuous_share(draw(["ข่าววันนี้".encode()], 10, 1000)) > 0.5
    assert continuous_share(draw(["오늘의 뉴스".encode(), "सुबह".encode()], 10, 1000)) == 0.0
    assert continuous_share(draw([b" "], 10, 1000)) == 0.0


def test_longer_shingles_are_rarer() -> None:
    texts = [f"the cat sat on the mat number {i} and the dog {i % 7} on the rug".encode() for i in range(60)]
    chances = [length.chance for length in measure_lengths(draw(texts, 100, 10**6), Settings(), 1000)]
    assert chances == sorted(chances, reverse=True)
    assert chances[0] > 0.5
