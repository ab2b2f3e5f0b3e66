"""Feeds for each measure: documents in families, near enough to be found or just not, said again and in other ways."""

import base64
import random
from dataclasses import dataclass
from typing import Any

import numpy as np

from support.histories import Changing

GIVEN: dict[str, dict[str, Any]] = {
    "cosine": {"measure": "cosine", "dimensions": 32, "threshold": 0.9},
    "euclidean": {"measure": "euclidean", "dimensions": 32, "max_distance": 3.0},
    "hamming": {"measure": "hamming", "dimensions": 64, "max_distance": 5},
    "levenshtein": {"measure": "levenshtein", "max_distance": 3},
    "weighted-jaccard": {"measure": "weighted-jaccard", "threshold": 0.4},
    "containment": {"measure": "containment", "threshold": 0.6, "shingles": "words:3"},
    "tf-idf": {"measure": "tf-idf"},
}
"""Settings by measure."""
FIELDS = {"cosine": "vector", "euclidean": "vector", "hamming": "bits", "weighted-jaccard": "set"}
"""Where documents are, if not in `text`."""
ITEMS = ("cosine", "euclidean", "hamming", "levenshtein", "weighted-jaccard")
LETTERS = "aabcdeeeefghiijklmnnoopqrrsttuvwxyz0123456789   -ßé漢字の🙂"


def feed_of(measure: str, seed: int, families: int = 20) -> Changing:
    if measure == "tf-idf":
        return Tellings(seed)
    return Quotations(seed, families) if measure == "containment" else Items(measure, seed, families)


@dataclass
class Items(Changing):
    """Families of near and equal items: vectors, bit vectors, short texts, sets with weights."""

    measure: str
    seed: int = 0
    families: int = 20

    def __post_init__(self) -> None:
        self.given = GIVEN[self.measure]
        self.field = FIELDS.get(self.measure, "text")
        self.chance = random.Random(self.seed)
        self.numbers = np.random.default_rng(self.seed)
        self.bases = [self._new() for _ in range(self.families)]
        self.said: list[Any] = []

    def _new(self) -> Any:
        if self.measure == "weighted-jaccard":
            return {f"é{self.chance.randrange(60)}": self.chance.choice((1, 2, 2.5, 0.125)) for _ in range(8)}
        if self.measure == "levenshtein":
            return "".join(self.chance.choices(LETTERS, k=self.chance.choice((1, 2, 3, 5, 9, 20, 40))))
        if self.measure == "hamming":
            return self.chance.getrandbits(self.given["dimensions"])
        return self.numbers.normal(size=self.given["dimensions"])

    def near(self, base: Any) -> Any:
        """Within the distance, or just beyond."""
        if self.measure == "weighted-jaccard":
            some = {element: weight * self.chance.choice((1, 1, 1, 1.5)) for element, weight in base.items()}
            some |= {f"more {self.chance.randrange(9)}": 1.0 for _ in range(self.chance.randrange(4))}
            return dict(self.chance.sample(sorted(some.items()), len(some) - self.chance.randrange(2)))
        if self.measure == "levenshtein":
            for _ in range(self.chance.choice((0, 1, 2, 3, 3, 4, 5))):
                at, drop = self.chance.randrange(len(base) + 1), self.chance.randrange(2)
                base = base[:at] + self.chance.choice(("", *LETTERS)) + base[at + drop :]
            return base
        if self.measure == "hamming":
            bits = self.chance.sample(range(64), self.chance.choice((0, 1, 2, 3, 4, 5, 6)))
            return base ^ sum(1 << bit for bit in bits)
        step = self.numbers.normal(size=32)
        return base + step / np.linalg.norm(step) * self.chance.choice((0, 0.5, 1, 1.5, 2, 2.5, 3.5))

    def value(self) -> Any:
        """One more, as JSON has it, in any of the ways to give it."""
        if self.said and self.chance.random() < 0.15:
            return self.chance.choice(self.said)
        item = self.near(self.chance.choice(self.bases)) if self.chance.random() < 0.85 else self._new()
        way = self.chance.randrange(3)
        if self.measure == "weighted-jaccard":
            found: Any = item if way else [*item, *item, *[*item][:2]]
        elif self.measure == "levenshtein":
            found = (item, item.upper().replace("SS", "ß"), item.replace(" ", " \t"))[way] if normal(item) else "x"
        elif self.measure == "hamming":
            found = (f"{item:016x}", item, base64.b64encode(item.to_bytes(8, "big")).decode())[way]
        else:
            single = item.astype("<f4")
            found = base64.b64encode(single.tobytes()).decode() if way else single.tolist()
        self.said.append(found)
        return found


def normal(text: str) -> str:
    """In small letters, with one blank where there are several."""
    return " ".join(text.lower().split())


class Quotations(Changing):
    """Texts that quote others, in part or in whole, and are quoted."""

    def __init__(self, seed: int, families: int = 20) -> None:
        self.chance = random.Random(seed)
        self.bases = [self._words(60) for _ in range(families)]
        self.said: list[str] = []

    def _words(self, n: int) -> list[str]:
        return [f"w{self.chance.randrange(100_000)}" for _ in range(n)]

    def value(self) -> str:
        """One more: new, said before, a part of what was, or that with more around it."""
        chance = self.chance
        if self.said and chance.random() < 0.15:
            return chance.choice(self.said)
        base = chance.choice(self.bases)
        begin = chance.randrange(0, 40)
        part = base[begin : begin + chance.choice((5, 10, 20, 30, 60))]
        around = chance.choice((0, 0, 3, 10, 30))
        words = self._words(around // 2) + part + self._words(around - around // 2)
        if chance.random() < 0.3:
            words[chance.randrange(len(words))] = "changed"
        if chance.random() < 0.1:
            words = self._words(chance.choice((1, 2, 40)))
        self.said.append(" ".join(words))
        return self.said[-1]


@dataclass
class Tellings(Changing):
    """Events with names and words of their own, among words that all use."""

    seed: int = 0

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.common = [self._word() for _ in range(60)]
        self.events = [self._event() for _ in range(30)]
        self.said: list[str] = []

    def _word(self) -> str:
        return "".join(self.chance.choice("bdfgklmnprstvz") + self.chance.choice("aeiou") for _ in range(4))

    def _event(self) -> list[str]:
        names = [self._word().title() for _ in range(4)] + [str(self.chance.randrange(10, 3000))]
        return [*names, *(self._word() for _ in range(8))]

    def value(self) -> str:
        if self.said and self.chance.random() < 0.1:
            return self.chance.choice(self.said)
        event, words = self.chance.choice(self.events), list[str]()
        for _ in range(self.chance.randrange(4, 40)):
            words.append(self.chance.choice(event if self.chance.random() < 0.35 else self.common))
        self.said.append(" ".join(words))
        return self.said[-1]
