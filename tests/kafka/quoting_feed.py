"""Texts that quote each other, for the pipeline under test: parts of earlier ones, in more or in less, repeated and
reused ids, deletions, and what is no document."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

QUOTATIONS: dict[str, Any] = {"likeness": "quotations", "threshold": 0.6, "passage_words": 8}


def quoting(n: int, seed: int, changes: float = 0.0) -> list[bytes]:
    """So many lines; changes: a share of deletions, and as many under an id that was there."""
    chance = np.random.default_rng(seed)
    out: list[bytes] = []
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
        if i and chance.random() < changes:
            out.append(json.dumps({"id": f"d{chance.integers(i)}", "deleted": True}).encode())
        document: dict[str, Any] = {"id": f"d{i}", "text": "  ".join(words) + "."}
        dice = chance.random()
        if dice < 0.02 + changes and i:
            document["id"] = f"d{int(chance.integers(i))}"
        elif dice < 0.04 + changes:
            document["text"] = (None, 7, "", " ? ")[int(chance.integers(4))]
        document["lang"] = ("en", "de", None)[i % 3]
        out.append(json.dumps(document).encode())
        if dice > 0.97:
            out.append(out[int(chance.integers(len(out)))])
        elif dice > 0.965:
            out.append(out[-1][:-7])
    return out[:n]
