"""Exhaustive comparison: against the definition, and against the truth files."""

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from support.real_pairs import CORPORA, lines, true_pairs

from stream_lsh.evaluation.exact import AllPairs, Ranked
from stream_lsh.families.signer import Signer
from stream_lsh.settings.model import Settings as LshSettings

Flat = tuple[NDArray[np.uint64], NDArray[np.int64]]


def flat(sets: list[set[int]]) -> Flat:
    """Sets of small numbers as arrays; the numbers are spread as hashes are."""
    members = [(value * 0x9E3779B97F4A7C15) % 2**64 for group in sets for value in group]
    offsets = np.cumsum([0] + [len(group) for group in sets], dtype=np.int64)
    return np.array(members, dtype=np.uint64), offsets


def by_definition(sets: list[set[int]], threshold: float) -> list[tuple[int, int, float]]:
    found = []
    for newer, older in itertools.product(range(len(sets)), repeat=2):
        union = sets[older] | sets[newer]
        if older < newer and union:
            jaccard = len(sets[older] & sets[newer]) / len(union)
            if jaccard >= threshold:
                found.append((older, newer, jaccard))
    return found


def listed(sets: list[set[int]], threshold: float, workers: int = 1) -> list[tuple[int, int, float]]:
    pairs = AllPairs(Ranked.of(*flat(sets)), threshold, workers).run()
    return list(zip(pairs.first.tolist(), pairs.second.tolist(), pairs.similarity.tolist(), strict=True))


GROUPS = st.lists(st.sets(st.integers(0, 12), max_size=9), max_size=25)


@given(sets=GROUPS, threshold=st.sampled_from([0.01, 0.2, 1 / 3, 0.5, 0.6, 2 / 3, 0.75, 0.8, 0.9, 1.0]))
@settings(max_examples=200, deadline=None)
def test_it_is_the_definition(sets: list[set[int]], threshold: float) -> None:
    assert listed(sets, threshold) == by_definition(sets, threshold)


def test_thresholds_that_a_pair_meets_exactly() -> None:
    # j / n for small numbers: rounding must neither lose nor invent a pair.
    for size in range(1, 41):
        for shared in range(1, size + 1):
            sets = [set(range(size)), set(range(shared))]
            assert listed(sets, shared / size) == [(0, 1, shared / size)]
            if shared < size:
                assert listed(sets, np.nextafter(shared / size, 2)) == []


def test_chunks_and_threads_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(7)
    sets = [set(random.integers(0, 60, 30).tolist()) for _ in range(300)]
    expected = by_definition(sets, 0.4)
    assert len(expected) > 100
    monkeypatch.setattr(AllPairs, "CHUNK", 17)
    seen: list[tuple[int, int]] = []
    pairs = AllPairs(Ranked.of(*flat(sets)), 0.4, 3).run(lambda done, total: seen.append((done, total)))
    assert list(zip(pairs.first, pairs.second, pairs.similarity, strict=True)) == expected
    assert seen[0] == (17, 300)
    assert seen[-1] == (300, 300)


def test_the_threshold_is_checked() -> None:
    for threshold in (0.0, -0.1, 1.1, float("nan")):
        with pytest.raises(ValueError, match="threshold"):
            AllPairs(Ranked.of(*flat([{1}])), threshold)


def test_seconds_is_an_estimate() -> None:
    assert AllPairs(Ranked.of(*flat([{1, 2}, {2, 3}] * 50)), 0.5).seconds() > 0
    assert AllPairs(Ranked.of(*flat([])), 0.5).seconds() == 0


@given(sets=st.lists(st.sets(st.integers(0, 12), max_size=9), min_size=2, max_size=10))
@settings(max_examples=50, deadline=None)
def test_overlap_of_given_pairs(sets: list[set[int]]) -> None:
    places = list(itertools.product(range(len(sets)), repeat=2))
    first, second = np.array(places, dtype=np.int64).T
    expected = [len(sets[i] & sets[j]) / (len(sets[i] | sets[j]) or 1) for i, j in places]
    assert (
        Ranked.of(*flat(sets)).similarities(np.ascontiguousarray(first), np.ascontiguousarray(second)).tolist()
        == expected
    )


def shingled(documents: list[dict[str, Any]], fields: tuple[str, ...]) -> Flat:
    texts = [" ".join(document[field] for field in fields).encode("utf-8", "surrogatepass") for document in documents]
    ends = np.cumsum([len(text) for text in texts], dtype=np.int64)
    signer = Signer(LshSettings(shingles="words:3", tokens="word", normalize="lower").signing)
    signed = signer.sign(b"".join(texts), ends, want_shingles=True)
    return signed.shingles, signed.offsets


@pytest.mark.parametrize("corpus", ["posts", pytest.param("terms", marks=pytest.mark.long)])
def test_it_reproduces_the_truth_files(shared_data: Path, corpus: str) -> None:
    documents = [json.loads(line) for line in lines(shared_data, corpus)]
    ids = [document["id"] for document in documents]
    expected = true_pairs(shared_data, corpus, set(ids))
    found = AllPairs(Ranked.of(*shingled(documents, CORPORA[corpus].fields)), 0.5, 2).run()
    named = {
        frozenset((ids[i], ids[j])): jaccard
        for i, j, jaccard in zip(found.first.tolist(), found.second.tolist(), found.similarity.tolist(), strict=True)
    }
    assert named.keys() == expected.keys()
    assert all(abs(jaccard - expected[pair]) < 1e-6 for pair, jaccard in named.items())
