"""bench/measures.py: its recipe, and small runs of the engine; of faiss where it is installed."""

from pathlib import Path

import numpy as np
import pytest
from support.long_form import rotating
from support.missing import extra

from bench.measures import BATCH, DIMENSIONS, Engine, Faiss, Feed, Run, feeds, once, scored
from stream_lsh import Settings


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
