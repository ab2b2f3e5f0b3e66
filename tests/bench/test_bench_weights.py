"""bench/weights.py: its recipe, and a small run of the engine."""

from __future__ import annotations

from oracles.distances import weighted_jaccard

from bench.weights import baskets, ours, scored, true_pairs


def test_the_engine_finds_what_there_is() -> None:
    made = baskets(300)
    true = true_pairs(made, 0.5)
    assert true == {
        (older, newer) for newer in range(300) for older in range(newer)
        if weighted_jaccard(made[older], made[newer]) >= 0.5
    }  # fmt: skip
    assert len(true) > 30
    pairs, seconds, _ = ours(made, 0.5)
    assert scored(pairs, true) == {"pairs": len(true), "recall": 1.0, "precision": 1.0}
    assert seconds > 0
