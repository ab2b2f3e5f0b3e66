"""Texts that quote each other, for the pipeline under test: parts of earlier ones, in more or in less, repeated and
reused ids, deletions, and what is no document."""

from __future__ import annotations

from typing import Any

import numpy as np

from support.kafka.spoiled import NO_TEXTS, Spoiled

QUOTATIONS: dict[str, Any] = {"likeness": "quotations", "threshold": 0.6, "passage_words": 8}


def quoting(n: int, seed: int, changes: float = 0.0) -> list[bytes]:
    """So many lines; changes: a share of deletions, and as many under an id that was there."""
    chance = np.random.default_rng(seed)
    feed = Spoiled(chance, changes, NO_TEXTS)
    told: list[list[str]] = []
    for i in range(n):
        words = [f"w{k}" for k in chance.integers(10**6, size=int(chance.choice((5, 20, 60, 200))))]
        if told and chance.random() < 0.6:
            old = told[int(chance.integers(max(0, len(told) - 200), len(told)))]
            begin = int(chance.integers(len(old)))
            part = old[begin : begin + int(chance.choice((10, 40, 200)))]
            around = words[: int(chance.choice((0, 0, 5, 20)))]
            words = [*around, *part, *around[::-1]]
        told.append(words)
        feed.delete(i)
        document: dict[str, Any] = {"id": f"d{i}", "text": "  ".join(words) + "."}
        feed.spoil(i, document)
        document["lang"] = ("en", "de", None)[i % 3]
        feed.add(document)
        feed.again()
    return feed.lines[:n]
