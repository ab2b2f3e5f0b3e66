"""bench/weights.py and bench/levenshtein.py: recipes, and small runs of the engine beside brute force."""

import orjson
from support.models.distances import weighted_jaccard

from bench.levenshtein import beside
from bench.weights import baskets, ours, scored, streamed, true_pairs


def test_the_engine_finds_what_there_is() -> None:
    made = baskets(300)
    true = true_pairs(made, 0.5)
    assert true == {
        (older, newer) for newer in range(300) for older in range(newer)
        if weighted_jaccard(made[older], made[newer]) >= 0.5
    }  # fmt: skip
    assert len(true) > 30
    pairs, seconds = ours(made, 0.5)
    assert scored(pairs, true) == {"pairs": len(true), "recall": 1.0, "precision": 1.0}
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
