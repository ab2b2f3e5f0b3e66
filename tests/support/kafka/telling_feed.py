"""Texts that tell of the same events in other words, for the pipeline under test: of outlets and two languages,
repeated and reused ids, deletions, and what is no document."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from support.kafka.spoiled import NO_TEXTS, Spoiled

STORIES: dict[str, Any] = {"likeness": "stories", "match_within": ("lang",), "time_field": "ts"}
LETTERS = np.array(list("bdfgklmnprstvz")), np.array(list("aeiou"))
TOLD = 40  # events that are told of at a time


def telling(n: int, seed: int, changes: float = 0.0) -> list[bytes]:
    """So many lines; changes: a share of deletions, and as many under an id that was there."""
    chance = np.random.default_rng(seed)
    common = [_word(chance) for _ in range(200)]
    told = [_event(chance) for _ in range(TOLD)]
    feed = Spoiled(chance, changes, NO_TEXTS)
    begin = int(time.time()) - n
    for i in range(n):
        if chance.random() < 0.1:  # something else happens
            told[int(chance.integers(TOLD))] = _event(chance)
        event = told[int(chance.integers(TOLD) * chance.random())]  # some are told more than others
        words = [str(chance.choice(event if chance.random() < 0.3 else common)) for _ in range(chance.integers(5, 40))]
        feed.delete(i, ts=begin + i)
        document: dict[str, Any] = {"id": f"d{i}", "text": " ".join(words), "ts": begin + i}
        feed.spoil(i, document)
        document |= {"lang": ("en", "en", "de", None)[i % 4], "outlet": f"paper {chance.integers(9)}"}
        feed.add(document)
        feed.again()
    return feed.lines[:n]


def _word(chance: np.random.Generator) -> str:
    return "".join(str(chance.choice(LETTERS[k % 2])) for k in range(8))


def _event(chance: np.random.Generator) -> list[str]:
    """Its names, a number, and words of its own."""
    names = [_word(chance).title() for _ in range(4)] + [str(chance.integers(10, 3000))]
    return [*names, *(_word(chance) for _ in range(8))]
