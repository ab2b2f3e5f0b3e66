"""Exhaustive comparison of short texts: against the definition."""

from __future__ import annotations

import random

import numpy as np
import pytest
from support.models.distances import levenshtein_distance

from stream_lsh.evaluation import edits
from stream_lsh.evaluation.edits import EveryText, ShortTexts


def some(count: int = 120) -> tuple[list[str], ShortTexts]:
    chance = random.Random(3)
    texts = ["".join(chance.choices("abcé漢 ", k=chance.randrange(9))) for _ in range(count)]
    points = np.array([ord(x) for text in texts for x in text], np.uint64)
    offsets = np.cumsum([0, *map(len, texts)])
    return texts, ShortTexts(points, offsets, np.array([i % 3 == 0 for i in range(count)], np.uint64))


@pytest.mark.parametrize("block", [7, 256])
@pytest.mark.parametrize("most", [0, 1, 3])
def test_every_pair_of_the_definition_and_no_other(most: int, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(edits, "_BLOCK", block)
    texts, short = some()
    expected = [
        (older, newer, 1 / (1 + levenshtein_distance(texts[older], texts[newer])))
        for newer in range(len(texts)) for older in range(newer)
        if texts[older] and texts[newer] and short.salts[older] == short.salts[newer]
        and levenshtein_distance(texts[older], texts[newer]) <= most
    ]  # fmt: skip
    told: list[tuple[int, int]] = []
    pairs = EveryText(short, most).run(progress=lambda *done: told.append(done))
    assert list(zip(pairs.older.tolist(), pairs.newer.tolist(), pairs.jaccard.tolist(), strict=True)) == expected
    assert len(expected) > 10 or most == 0
    assert told[-1] == (120, 120)
    assert EveryText(short, most).seconds() > 0


def test_similarities_and_the_background() -> None:
    texts, short = some()
    first, second = np.array([0, 3, 1]), np.array([3, 6, 2])
    found = short.similarities(first, second)
    assert found[0] == 1 / (1 + levenshtein_distance(texts[0], texts[3]))
    assert found[2] == (1 / (1 + levenshtein_distance(texts[1], texts[2])))
    assert short.similarities(np.array([0]), np.array([1])).tolist() == [0.0]  # they are not to match
    apart = [levenshtein_distance(texts[i], texts[j]) for i in range(120) for j in range(i)]
    background = short.background(4)
    assert background.counts.tolist() == [apart.count(k) for k in range(5)] + [sum(x > 4 for x in apart)]
    assert background.alike(2) == sum(x <= 2 for x in apart)
    assert background.quantile(1.0) == np.inf
