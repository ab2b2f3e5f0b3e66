"""bench/likeness.py: its recipe, and small runs of the engine; of faiss where it is installed."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from bench.likeness import DIMENSIONS, Engine, Faiss, Run, close, feeds, near, once, rows_of_bits, scored, vectors


def test_the_recipe_is_what_it_says() -> None:
    made = vectors(600)
    assert (made == vectors(600)).all()
    unit = made / np.linalg.norm(made, axis=1, keepdims=True)
    cosines = (unit @ unit.T)[np.tril_indices(600, -1)]
    assert 0.05 < (cosines > 0.88).sum() / 600 < 0.25
    assert ((cosines > 0.3) & (cosines < 0.7)).sum() > 1000
    bits = rows_of_bits(600)
    alike = np.tril(close("hamming", bits, bits, 3), -1)
    assert 0.05 < alike.any(axis=1).mean() < 0.2
    assert near(made[0], 0.95, np.random.default_rng(0)) @ made[0] / (made[0] @ made[0]) == pytest.approx(
        0.95, abs=1e-4
    )


def test_recall_is_of_what_the_same_system_had_kept() -> None:
    items = np.zeros((4, DIMENSIONS), np.float32)
    items[:, 0], items[3, 1] = 1, 10
    missed = Run(np.array([-1, 0, -1, 1]), 1.0, 1.0, 0, 0.0)
    assert scored("cosine", items, 0.9, missed, 10) == {"recall": 0.5, "precision": 0.5, "due": 2}
    nothing = Run(np.array([-1]), 1.0, 1.0, 0, 0.0)
    assert scored("cosine", items[:1], 0.9, nothing, 10) == {"recall": None, "precision": None, "due": 0}


@pytest.mark.parametrize("likeness", ["cosine", "euclidean", "hamming"])
def test_the_engine_and_faiss_find_the_same(likeness: str, tmp_path: Path) -> None:
    _, items, most, settings = next(feeds(400, [likeness]))
    ours = once(Engine(settings), items, tmp_path)
    assert scored(likeness, items, most, ours, 400)["recall"] == 1
    assert scored(likeness, items, most, ours, 400)["precision"] == 1
    assert ours.disk > 0
    if importlib.util.find_spec("faiss") is not None:
        flat = once(Faiss(likeness, "flat", most), items, tmp_path)
        assert ((flat.of < 0) == (ours.of < 0)).all()
