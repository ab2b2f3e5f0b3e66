"""Limits of what is read and compared: all answers are those of the rule, and of what went nothing counts."""

import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from support.feeds import WORDS, changing, drifting, nasty
from support.in_memory import temporary_folder
from support.indexes import agreed_with_limits, asked, fed, once, opened, same
from support.long_form import LONG, seeds
from support.models.matching import ProvisionalRows, Unique, entries, unique_verdicts

from stream_lsh.documents.document import Document
from stream_lsh.settings.model import Settings

VOCABULARIES = (WORDS, WORDS[:5], WORDS[:40])
TIGHT: dict[str, Any] = {
    "shingles": "words:1", "threshold": 0.5, "bands": 10, "rows": 2, "signature_size": 40, "max_bucket_rows": 3,
    "max_candidates": 4, "max_verified_matches": 2, "max_matches": 2,
}  # fmt: skip


def any_settings(seed: int, **more: Any) -> Settings:
    """Settings in which every limit is met, and answers are cut into segments."""
    chance = random.Random(seed)
    return Settings(
        **more,
        threshold=chance.choice((0.3, 0.5, 0.8, 1.0)), bands=chance.choice((1, 4, 10)), rows=chance.choice((1, 3, 4)),
        signature_size=chance.choice((40, 64, 130, 200)),
        shingles=chance.choice(("words:1", "words:2", "words:3/8", "chars:4")), bag=chance.choice((False, True)),
        max_bucket_rows=chance.choice((2, 3, 8, 64)), max_candidates=chance.choice((1, 2, 5, 32)),
        max_verified_matches=chance.choice((1, 2, 10)), max_matches=chance.choice((0, 1, 3)),
        verify=chance.choice(("exact", "exact", "signature")), memtable_documents=chance.choice((16, 16, 65536)),
        segment_documents=chance.choice((None, 100, 150, 1000)),
    )  # fmt: skip


@pytest.mark.parametrize("shards", [1, 2, 5])
@pytest.mark.parametrize("seed", seeds(1, 5, 48))
def test_answers_are_those_of_the_rule(tmp_path: Path, seed: int, shards: int) -> None:
    """All fields, with limits so small that all of them are met."""
    after = random.Random(seed).choice((2, 10, 64, 150, 1000))
    settings, chance = any_settings(seed, shards=shards, decision_lag=after), random.Random(-seed - 1)
    agreed_with_limits(nasty(seed, 300, words=chance.choice(VOCABULARIES)), settings, tmp_path, chance)


@pytest.mark.parametrize("seed", seeds(2, 6, 26))
def test_limits_count_what_was_not_deleted(tmp_path: Path, seed: int) -> None:
    settings, chance = any_settings(seed, on_conflict="update"), random.Random(seed)
    agreed_with_limits(changing(seed, 400, words=chance.choice(VOCABULARIES)), settings, tmp_path, chance)


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("seed", seeds(1, 3, 12))
def test_limits_count_what_is_in_the_window(tmp_path: Path, seed: int, shards: int) -> None:
    settings = Settings(
        **TIGHT, memtable_documents=16, shards=shards, decision_lag=64, window="5m", segment_documents=1000
    )
    found = agreed_with_limits(drifting(seed, 1500 if LONG else 500), settings, tmp_path, random.Random(seed))
    assert sum(verdict.get("not_compared", 0) for verdict in found) > 20


crowds = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 4), st.sampled_from(("", "", "deleted"))), max_size=100)


@hypothesis_settings(max_examples=40 if LONG else 10, deadline=None)
@given(crowds, st.integers(2, 5), st.integers(0))
def test_a_bucket_of_which_most_were_deleted(crowd: Any, bucket: int, seed: int) -> None:
    """One text in some variations, first eighty that go again: ranges of deleted rows of any length."""
    settings = Settings(
        shingles="words:1", threshold=0.9, bands=4, rows=1, signature_size=64, max_bucket_rows=bucket, max_candidates=5,
        memtable_documents=16, on_conflict="update",
    )  # fmt: skip
    chance, base = random.Random(seed), WORDS[:20]
    texts = [" ".join([*base, *chance.sample(WORDS[20:], 4)]) for _ in range(85)]
    documents = [Document(f"old {i}", texts[i]) for i in range(80)]
    documents += [Document(f"old {i}", deleted=True) for i in chance.sample(range(80), chance.choice((60, 77)))]
    for id, text, what in crowd:
        name = f"old {id}" if what else str(id)
        documents.append(Document(name, deleted=True) if what else Document(name, texts[80 + text]))
    with temporary_folder() as folder:
        agreed_with_limits(documents, settings, folder, chance)


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
def test_the_smallest_sets(feed: Any, batch: int, threshold: float) -> None:
    """Ids that come again and sets of a few elements, many of them equal though the texts are not."""
    settings = Settings(
        shingles="words:1", threshold=threshold, bands=6, rows=2, signature_size=16, max_bucket_rows=2,
        max_candidates=2,
        max_verified_matches=1, memtable_documents=16, segment_documents=11,
    )  # fmt: skip
    documents = [Document(id, text) for id, text in feed]
    with temporary_folder() as folder:
        same(once(documents, settings, folder, batch), unique_verdicts(documents, settings))


@pytest.mark.parametrize("shards", [1, 2])
def test_a_query_says_what_the_verdict_would_be_and_changes_nothing(tmp_path: Path, shards: int) -> None:
    settings = any_settings(3, shards=shards, decision_lag=10).model_copy(update={"memtable_documents": 16})
    model = (ProvisionalRows if settings.late else Unique)(settings)
    with opened(settings, tmp_path) as index:
        for entry in entries(nasty(31, 120), settings):
            (answer,) = asked(index, [entry.document])
            (verdict,) = fed(index, [entry.document], entry.seq, 1)
            assert verdict == model.judge(entry)
            own = {"seq": None, "group": answer["group"] if verdict["group"] == entry.seq else verdict["group"]}
            assert answer == verdict | own
            if entry.seq % 40 == 39:
                index.commit({})
