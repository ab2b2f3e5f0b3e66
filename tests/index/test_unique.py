"""`against = "unique"`: all answers are those of a slow model, however the log was cut, flushed, merged, reopened."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from support.feeds import WORDS, asked, fed, nasty, once
from support.long_form import LONG
from support.models.matching import Late, Unique, entries, unique_verdicts

from stream_lsh.documents.columns import Document
from stream_lsh.index.index import Index
from stream_lsh.settings import Settings

N = 300
SEEDS = [*range(8), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(8, 48 if LONG else 28))]


def any_settings(seed: int, **more: Any) -> Settings:
    """Settings in which every limit is met, and answers are cut into generations."""
    chance = random.Random(seed)
    return Settings(
        **more,
        threshold=chance.choice((0.3, 0.5, 0.8, 1.0)), bands=chance.choice((1, 4, 10)), rows=chance.choice((1, 3, 4)),
        signature_size=chance.choice((40, 64, 130, 200)),
        shingles=chance.choice(("words:1", "words:2", "words:3/8", "chars:4")), bag=chance.choice((False, True)),
        bucket_size=chance.choice((2, 3, 8, 64)), candidates=chance.choice((1, 2, 5, 32)),
        verify_matches=chance.choice((1, 2, 10)), max_matches=chance.choice((0, 1, 3)),
        verify=chance.choice(("exact", "exact", "signature")), memory_documents=chance.choice((16, 16, 65536)),
        generation_documents=chance.choice((None, 50, 77, 1000)),
    )  # fmt: skip


def same(found: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    """Verdict by verdict, so that the first difference is what is told."""
    for one, other in zip(found, expected, strict=True):
        assert one == other


@pytest.mark.parametrize("shards", [1, 2, 5])
@pytest.mark.parametrize("seed", SEEDS)
def test_answers_are_those_of_the_model(tmp_path: Path, seed: int, shards: int) -> None:
    """All fields, with limits so small that all of them are met; closed, or only left, and opened again."""
    after = random.Random(seed).choice((2, 10, 64, 150, 1000))
    settings, chance = any_settings(seed, shards=shards, decided_after=after), random.Random(-seed - 1)
    documents = nasty(seed, N, words=chance.choice((WORDS, WORDS[:5], WORDS[:40])))
    expected = unique_verdicts(documents, settings)
    same(once(documents, settings, tmp_path / "whole", batch=N), expected)
    at = 0
    while at < N:
        index = Index(settings, tmp_path / "pieces", durable=False)
        for _ in range(chance.choice((1, 1, 2, 5, 30))):
            size = min(chance.choice((1, 2, 7, 20, 60, 150)), N - at)
            same(fed(index, documents[at : at + size], at, max(size, 1)), expected[at : at + size])
            at += size
            if chance.random() < 0.5:
                index.commit({})
        index.commit({})
        # What comes after the last commit never was.
        fed(index, [Document(f"lost {i}", " ".join(chance.choices(WORDS, k=9))) for i in range(20)], at, 7)
        index.close()
    again = Index(settings, tmp_path / "pieces", durable=False)
    try:
        known = [d for d, e in zip(documents, expected, strict=True) if e["kind"] not in ("rejected", "redelivered")]
        firsts = {(type(e["id"]), e["id"]): e for e in expected if e["kind"] not in ("rejected", "redelivered")}
        for verdict in fed(again, known, N, 64):
            first = firsts[type(verdict["id"]), verdict["id"]]
            said = (verdict["first_kind"], *(verdict[name] for name in ("of", "similarity", "group")))
            assert verdict["kind"] == "redelivered"
            assert said == tuple(first[name] for name in ("kind", "of", "similarity", "group"))
    finally:
        again.close()


@hypothesis_settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 12), st.lists(st.sampled_from("abc"), max_size=5).map(" ".join)),
        min_size=1,
        max_size=40,
    ),
    st.integers(1, 41),
    st.sampled_from((0.3, 0.6, 1.0)),
)
def test_the_smallest_sets(tmp_path_factory: pytest.TempPathFactory, feed: Any, batch: int, threshold: float) -> None:
    """Ids that come again and sets of a few elements, many of them equal though the texts are not."""
    settings = Settings(
        shingles="words:1", threshold=threshold, bands=6, rows=2, signature_size=16, bucket_size=2, candidates=2,
        verify_matches=1, memory_documents=16, generation_documents=11,
    )  # fmt: skip
    documents = [Document(id, text) for id, text in feed]
    same(once(documents, settings, tmp_path_factory.mktemp("index"), batch), unique_verdicts(documents, settings))


def test_sets_are_compared_as_sets(tmp_path: Path) -> None:
    chance = random.Random(5)
    documents = [
        Document(i, set=chance.sample(["red", "green", "blue", "black", "white"], chance.randrange(1, 5)))
        for i in range(200)
    ]
    settings = Settings(set_field="tags", threshold=0.6, bands=8, rows=2, signature_size=16)
    same(once(documents, settings, tmp_path, 9), unique_verdicts(documents, settings))


@pytest.mark.parametrize("shards", [1, 2])
def test_asking_is_like_telling_and_changes_nothing(tmp_path: Path, shards: int) -> None:
    """A query says what the document's verdict would be; what follows is as if it had not been asked."""
    settings = any_settings(3, shards=shards, decided_after=10).model_copy(update={"memory_documents": 16})
    documents = nasty(31, N)
    model, index = (Late if settings.late else Unique)(settings), Index(settings, tmp_path, durable=False)
    told = entries(documents, settings)
    try:
        for at in range(0, N, 50):
            for entry in told[at : at + 50]:
                (answer,) = asked(index, [entry.document])
                (verdict,) = fed(index, [entry.document], entry.seq, 1)
                assert verdict == model.judge(entry)
                own = {"seq": None, "group": answer["group"] if verdict["group"] == entry.seq else verdict["group"]}
                assert answer == verdict | own
            index.commit({})
    finally:
        index.close()


def test_one_bucket_of_the_whole_feed(tmp_path: Path) -> None:
    """Hundreds of documents that share all buckets and are not similar enough: what is read is bounded, and counted."""
    settings = Settings(
        shingles="words:1", threshold=0.9, bands=4, rows=1, signature_size=64, bucket_size=5, candidates=3,
        memory_documents=16, generation_documents=90,
    )  # fmt: skip
    chance = random.Random(8)
    base = WORDS[:30]
    documents = [Document(i, " ".join([*base, *chance.sample(WORDS[30:], 4)])) for i in range(500)]
    expected = unique_verdicts(documents, settings)
    assert sum(verdict.get("incomplete", 0) for verdict in expected) > 1000
    same(once(documents, settings, tmp_path, 33), expected)


FAMILY = Settings(shingles="words:1", threshold=0.85, decided_after=4096)
"""All of a family of some hundreds stay undecided; each has 50 words of its text, and some of its own."""


def family(size: int, own: int) -> list[Document]:
    chance = random.Random(8)
    texts = ([*WORDS[:50], *(f"own{chance.randrange(10**6)}" for _ in range(own))] for _ in range(size))
    return [Document(i, " ".join(text)) for i, text in enumerate(texts)]


@pytest.mark.parametrize("shards", [1, 2, 4])
def test_a_partner_late_in_a_family_just_below_the_threshold(tmp_path: Path, shards: int) -> None:
    """Hundreds in its buckets that nearly match, all before it in the log, do not hide the one that does."""
    settings = FAMILY.where_not_given(shards=shards)
    documents = family(700, 7)
    for newer in range(500, 700, 10):
        documents[newer] = Document(newer, f"{documents[newer - 55].text} other")
    expected = unique_verdicts(documents, settings)
    same(once(documents, settings, tmp_path, 64), expected)
    assert [(v["seq"], v["of"]) for v in expected if v["kind"] != "unique"] == [
        (newer, newer - 55) for newer in range(500, 700, 10)
    ]
    assert sum("incomplete" in verdict for verdict in expected) > 500


@pytest.mark.parametrize("shards", [1, 2, 4])
def test_of_a_family_of_copies_the_oldest_is_kept(tmp_path: Path, shards: int) -> None:
    """However many, that were dropped for it, agree better with the next one."""
    settings = FAMILY.where_not_given(shards=shards)
    verdicts = once(family(700, 3), settings, tmp_path)
    assert [v["seq"] for v in verdicts if v["kind"] == "unique"] == [0]
    assert {v["of"] for v in verdicts[1:]} == {0}
