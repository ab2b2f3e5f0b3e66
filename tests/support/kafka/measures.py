"""Documents for each measure, for the pipeline under test: families of documents; with repeated and reused ids,
deletions, and lines that are no document."""

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from support.measure_feeds import GIVEN, feed_of

SETTINGS: dict[str, dict[str, Any]] = {
    **GIVEN,
    "euclidean": GIVEN["euclidean"] | {"vector_field": "where.at"},
    "hamming": GIVEN["hamming"] | {"bits_field": "hash"},
    "weighted-jaccard": GIVEN["weighted-jaccard"] | {"set_field": "basket"},
    "containment": GIVEN["containment"] | {"min_passage_words": 8},
    "tf-idf": GIVEN["tf-idf"] | {"match_within": ("lang",), "time_field": "ts"},
}
LANGUAGES = ("en", "de", None, 7)
NO_TEXTS: tuple[Any, ...] = (None, 7, "", " ? ")
WRONG: tuple[Any, ...] = (
    "no base64!", [1.0], "ab", [0] * 32, None, True, 2**70, [True] * 32,
)  # fmt: skip
"""Values that no field takes, unless it is one of texts."""
FIELDS: dict[str, Callable[[Any], dict[str, Any]]] = {
    "cosine": lambda value: {"vector": value},
    "euclidean": lambda value: {"where": {"at": value}},
    "hamming": lambda value: {"hash": value},
    "weighted-jaccard": lambda value: {"basket": value},
}


def feed(measure: str, n: int, seed: int, changes: float = 0.0) -> list[bytes]:
    """n lines. changes: a share of deletions, and as many documents under an id that was there."""
    chance = np.random.default_rng(seed)
    field = FIELDS.get(measure, lambda value: {"text": value})
    wrong = WRONG if measure in FIELDS else NO_TEXTS
    values = _stories(chance) if measure == "tf-idf" else iter(feed_of(measure, seed, n // 15).value, None)
    begin, lines = int(time.time()) - n, list[bytes]()
    for i in range(n):
        ts = {"ts": begin + i} if measure == "tf-idf" else {}
        if i and chance.random() < changes:
            lines.append(json.dumps({"id": f"d{chance.integers(i)}", "deleted": True, **ts}).encode())
        document = {"id": f"d{i}", **field(next(values)), **ts}
        document |= {"lang": LANGUAGES[i % 7 % 4], "outlet": f"paper {i % 9}"}
        dice = chance.random()
        if i and dice < 0.02 + changes:
            document["id"] = f"d{chance.integers(i)}"
        elif dice < 0.05 + changes:
            document |= field(wrong[int(chance.integers(len(wrong)))])
        lines.append(json.dumps(document).encode())
        if dice > 0.97:
            lines.append(lines[int(chance.integers(len(lines)))])
        elif dice > 0.965:
            lines.append(lines[-1][:-7])
    return lines[:n]


def _stories(chance: np.random.Generator) -> Iterator[str]:
    """Texts about forty events at a time, in other words each; few words weigh the same."""

    def word() -> str:
        return "".join(str(chance.choice(list(("bdfgklmnprstvz", "aeiou")[k % 2]))) for k in range(8))

    def event() -> list[str]:
        """Its names, a number, and words of its own."""
        return [*(word().title() for _ in range(4)), str(chance.integers(10, 3000)), *(word() for _ in range(8))]

    common, events = [word() for _ in range(200)], [event() for _ in range(40)]
    while True:
        if chance.random() < 0.1:
            events[int(chance.integers(40))] = event()
        about = events[int(chance.integers(40) * chance.random())]  # some have more texts than others
        size = int(chance.integers(5, 40))
        yield " ".join(str(chance.choice(about if chance.random() < 0.3 else common)) for _ in range(size))
