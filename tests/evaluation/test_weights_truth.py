"""Exhaustive comparison of sets with weights: against the definition."""

from __future__ import annotations

import json

import numpy as np
import pytest
from support.models.distances import weighted_jaccard

from stream_lsh.documents.weights import weights_text
from stream_lsh.evaluation import weights
from stream_lsh.evaluation.weights import EverySet, WeightedSets
from stream_lsh.families.family import signer_of
from stream_lsh.settings import Settings


def some(count: int = 120) -> tuple[list[dict[str, float]], WeightedSets]:
    chance = np.random.default_rng(3)
    sets = [{f"e{x}": float(chance.integers(1, 8)) / 4 for x in chance.choice(12, 5)} for _ in range(count)]
    sets[7] = sets[3]
    texts = [weights_text(one, "", b"").encode() for one in sets]
    signer = signer_of(Settings(likeness="sets").signing)
    words, offsets = signer.shingle(b"".join(texts), np.cumsum(list(map(len, texts))))
    assert [json.loads(text) for text in texts] == sets
    return sets, WeightedSets(words, offsets, np.array([i % 3 == 0 for i in range(count)], np.uint64))


@pytest.mark.parametrize("block", [7, 256])
@pytest.mark.parametrize("least", [0.1, 0.4, 1.0])
def test_every_pair_of_the_definition_and_no_other(least: float, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "_BLOCK", block)
    sets, all = some()
    expected = [
        (older, newer) for newer in range(len(sets)) for older in range(newer)
        if all.salts[older] == all.salts[newer] and weighted_jaccard(sets[older], sets[newer]) >= least
    ]  # fmt: skip
    told: list[tuple[int, int]] = []
    pairs = EverySet(all, least).run(progress=lambda *done: told.append(done))
    assert list(zip(pairs.older.tolist(), pairs.newer.tolist(), strict=True)) == expected
    assert len(expected) > 20 or least == 1.0
    values = [weighted_jaccard(sets[a], sets[b]) for a, b in expected]
    assert pairs.jaccard.tolist() == pytest.approx(values)
    assert told[-1] == (120, 120)
    assert EverySet(all, least).seconds() > 0


def test_similarities_and_the_background() -> None:
    sets, all = some()
    found = all.similarities(np.array([0, 0]), np.array([3, 1]))
    assert found.tolist() == pytest.approx([weighted_jaccard(sets[0], sets[3]), 0.0])  # the others are not to match
    background = all.background()
    assert background.pairs == 120 * 119 // 2
    values = [weighted_jaccard(sets[i], sets[j]) for i in range(120) for j in range(i)]
    assert abs(background.alike(0.5) - sum(value >= 0.5 for value in values)) < 20
