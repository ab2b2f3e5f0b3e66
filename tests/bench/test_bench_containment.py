"""bench/containment.py: its recipe and its scores on a few texts; its truth against plain Python."""

import random
from itertools import combinations
from pathlib import Path

import pytest

from bench.containment import engine, longest_run, numbered, scored, shingles_of, with_quotations, words_of
from stream_lsh.evaluation.contained import Contained, EveryShare


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
    run = engine(documents, "words:3", 0.5, tmp_path / "index")
    assert scored(run.pairs, true) == {"recall": 1.0, "precision": 1.0}
    assert scored(set(), set()) == {"recall": None, "precision": None}


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
