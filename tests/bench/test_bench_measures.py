"""bench/measures.py, containment.py, weights.py and levenshtein.py: recipes, and small runs beside brute force."""

import random
from itertools import combinations
from pathlib import Path

import numpy as np
import orjson
import pytest
from support.long_form import rotating
from support.missing import extra
from support.models.distances import weighted_jaccard

from bench.containment import engine as contained_by
from bench.containment import longest_run, numbered, shingles_of, with_quotations, words_of
from bench.containment import scored as scored_pairs
from bench.levenshtein import beside
from bench.measures import BATCH, DIMENSIONS, Engine, Faiss, Feed, Run, feeds, once, scored
from bench.weights import baskets, streamed, true_pairs
from bench.weights import ours as weighted
from bench.weights import scored as scored_sets
from stream_lsh import Settings
from stream_lsh.evaluation.contained import Contained, EveryShare


def test_recall_is_of_what_the_same_system_had_kept() -> None:
    items = np.zeros((4, DIMENSIONS), np.float32)
    items[:, 0], items[3, 1] = 1, 10
    settings = Settings(measure="cosine", dimensions=DIMENSIONS)
    feed = Feed("cosine", items, np.array([1, 2, 3]), 0.9, settings)
    missed = Run(np.array([-1, 0, -1, 1]))
    assert scored(feed, missed, 10) == {"recall": 0.5, "precision": 0.5, "due": 2}
    nothing = Run(np.array([-1]))
    assert scored(feed, nothing, 10) == {"recall": None, "precision": None, "due": 0}


@pytest.mark.parametrize("measure", rotating(["cosine", "euclidean", "hamming"], 1))
def test_faiss_keeps_what_the_engine_keeps(measure: str, tmp_path: Path) -> None:
    extra("faiss")
    feed = next(feeds(400, [measure]))
    ours = once(Engine(feed.settings), feed.items, tmp_path)
    flat = once(Faiss(measure, "flat", feed.most), feed.items, tmp_path)
    assert ((flat.of < 0) == (ours.of < 0)).all()
    stopped = once(Faiss(measure, "flat", feed.most, 0.0), np.repeat(feed.items, 4, axis=0), tmp_path)
    assert len(stopped.of) == BATCH


def texts(n: int = 60, least: int = 3) -> list[str]:
    chance = random.Random(1)
    found = []
    for _ in range(n):
        words = [f"w{chance.randrange(3000)}" for _ in range(chance.choice((least, 30, 400)))]
        if found and chance.random() < 0.5:
            words += chance.choice(found).split()[: chance.choice((20, 60))]
        found.append(" ".join(words))
    return found


@pytest.mark.parametrize("kind", ["words:3", "chars:8"])
@pytest.mark.parametrize("threshold", [0.3, 0.8])
def test_the_truth_is_that_of_plain_python(kind: str, threshold: float) -> None:
    documents = with_quotations(texts(), share=0.5)
    sets = [shingles_of(text, kind) for text in documents]
    true = {}
    for i, j in combinations(range(len(sets)), 2):
        share = len(sets[i] & sets[j]) / min(len(sets[i]), len(sets[j]))
        if share >= threshold:
            true[i, j] = share
    every = Contained(numbered(documents, kind))
    found = EveryShare(every, threshold).run()
    pairs = list(zip(found.first.tolist(), found.second.tolist(), strict=True))
    assert sorted(pairs) == sorted(true)
    assert [true[pair] for pair in pairs] == pytest.approx(found.similarity.tolist())
    assert every.similarities(found.first, found.second).tolist() == pytest.approx(found.similarity.tolist())
    assert len(pairs) > 20


def test_the_engine_finds_the_truth(tmp_path: Path) -> None:
    # Texts, and which are contained in which.
    documents = with_quotations(texts(least=30), share=0.5)
    truth = EveryShare(Contained(numbered(documents, "words:3")), 0.5).run()
    true = {*zip(truth.first.tolist(), truth.second.tolist(), strict=True)}
    run = contained_by(documents, "words:3", 0.5, tmp_path / "index")
    assert scored_pairs(run.pairs, true) == {"recall": 1.0, "precision": 1.0}
    assert scored_pairs(set(), set()) == {"recall": None, "precision": None}


def test_passages_are_cut_from_long_texts() -> None:
    made = with_quotations(texts(), share=0.5)
    assert made[:60] == texts()
    originals = [set(text.split()) for text in made[:60]]
    for text in made[60:]:
        words = text.split()
        inside = max(sum(word in original for word in words) for original in originals)
        assert inside >= 0.6 * len(words)
    assert with_quotations(["我们" * 400], "", share=5)[1:]
    assert longest_run(words_of("a B c d e"), words_of("x b, c d y a")) == 3
    assert longest_run([], ["a"]) == 0


def test_the_engine_finds_baskets() -> None:
    made = baskets(300)
    true = true_pairs(made, 0.5)
    assert true == {
        (older, newer) for newer in range(300) for older in range(newer)
        if weighted_jaccard(made[older], made[newer]) >= 0.5
    }  # fmt: skip
    assert len(true) > 30
    pairs, seconds = weighted(made, 0.5)
    assert scored_sets(pairs, true) == {"pairs": len(true), "recall": 1.0, "precision": 1.0}
    assert seconds > 0


def test_a_stream_is_scored_by_what_was_kept() -> None:
    """Within a bucket of two hardly anything is found of groceries, and verdicts say so; all with defaults."""
    made = baskets(300)
    true = true_pairs(made, 0.3)
    narrow, usual = streamed(made, true, 0.3, max_bucket_rows=2), streamed(made, true, 0.3)
    assert (narrow["bucket"], usual["bucket"]) == (2, 1024)
    assert usual["due"] > 30
    assert usual["recall"] == 1.0
    assert narrow["not_compared"] > usual["not_compared"]
    assert narrow["kept"] >= usual["kept"]


def test_the_engine_and_brute_force_find_the_same() -> None:
    titles = [f"{'abcdefgh'[i % 8] * (5 + i % 30)} title {i % 97}" for i in range(400)]
    engine, brute = beside(titles, 2)
    assert (engine["system"], brute["system"]) == ("stream-lsh", "rapidfuzz, brute force")
    assert engine["recall"] == engine["precision"] == 1
    assert 0 < engine["dropped"] < 100
    assert engine["disk"] > 0
    assert orjson.dumps([engine, brute])
