"""bench/weights.py: its recipe, and a small run of the engine."""

from support.models.distances import weighted_jaccard

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
