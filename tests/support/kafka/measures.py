"""Documents for each measure, for the pipeline under test: families of documents; with repeated and reused ids,
deletions, and lines that are no document."""

import json
import time
from collections.abc import Callable
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
    values = iter(feed_of(measure, seed, n // 15).value, None)
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
