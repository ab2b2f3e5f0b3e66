"""Texts that tell of the same events in other words, for the pipeline under test: of outlets and two languages,
repeated and reused ids, deletions, and what is no document."""

from __future__ import annotations

import json
import time
from typing import Any

import numpy as np

STORIES: dict[str, Any] = {"likeness": "stories", "match_within": ("lang",), "time_field": "ts"}
LETTERS = np.array(list("bdfgklmnprstvz")), np.array(list("aeiou"))
TOLD = 40  # events that are told of at a time


def telling(n: int, seed: int, changes: float = 0.0) -> list[bytes]:
    """So many lines; changes: a share of deletions, and as many under an id that was there."""
    chance = np.random.default_rng(seed)
    common = [_word(chance) for _ in range(200)]
    told = [_event(chance) for _ in range(TOLD)]
    out: list[bytes] = []
    begin = int(time.time()) - n
    for i in range(n):
        if chance.random() < 0.1:  # something else happens
            told[int(chance.integers(TOLD))] = _event(chance)
        event = told[int(chance.integers(TOLD) * chance.random())]  # some are told more than others
        words = [str(chance.choice(event if chance.random() < 0.3 else common)) for _ in range(chance.integers(5, 40))]
        if i and chance.random() < changes:
            out.append(json.dumps({"id": f"d{chance.integers(i)}", "deleted": True, "ts": begin + i}).encode())
        document: dict[str, Any] = {"id": f"d{i}", "text": " ".join(words), "ts": begin + i}
        dice = chance.random()
        if dice < 0.02 + changes and i:
            document["id"] = f"d{int(chance.integers(i))}"
        elif dice < 0.04 + changes:
            document["text"] = (None, 7, "", " ? ")[int(chance.integers(4))]
        document |= {"lang": ("en", "en", "de", None)[i % 4], "outlet": f"paper {chance.integers(9)}"}
        out.append(json.dumps(document).encode())
        if dice > 0.97:
            out.append(out[int(chance.integers(len(out)))])
        elif dice > 0.965:
            out.append(out[-1][:-7])
    return out[:n]


def _word(chance: np.random.Generator) -> str:
    return "".join(str(chance.choice(LETTERS[k % 2])) for k in range(8))


def _event(chance: np.random.Generator) -> list[str]:
    """Its names, a number, and words of its own."""
    names = [_word(chance).title() for _ in range(4)] + [str(chance.integers(10, 3000))]
    return [*names, *(_word(chance) for _ in range(8))]
