"""Documents for each measure, for the pipeline under test: made of earlier documents, similar enough or just not; with
repeated and reused ids, deletions, and lines that are no document."""

import base64
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

DIMENSIONS = 64
SETTINGS: dict[str, dict[str, Any]] = {
    "cosine": {"measure": "cosine", "dimensions": DIMENSIONS, "threshold": 0.9},
    "euclidean": {"measure": "euclidean", "dimensions": DIMENSIONS, "max_distance": 0.5, "vector_field": "where.at"},
    "hamming": {"measure": "hamming", "dimensions": DIMENSIONS, "max_distance": 3, "bits_field": "hash"},
    "levenshtein": {"measure": "levenshtein", "max_distance": 3},
    "weighted-jaccard": {"measure": "weighted-jaccard", "threshold": 0.4, "set_field": "basket"},
    "containment": {"measure": "containment", "threshold": 0.6, "min_passage_words": 8},
    "tf-idf": {"measure": "tf-idf", "match_within": ("lang",), "time_field": "ts"},
}
LANGUAGES = ("en", "de", None, 7)
NO_TEXTS: tuple[Any, ...] = (None, 7, "", " ? ")
WRONG: tuple[Any, ...] = (
    "no base64!", [1.0], "ab", [0] * DIMENSIONS, None, True, 2**70, [True] * DIMENSIONS,
)  # fmt: skip
"""Values that no field takes, unless it is one of texts."""
FIELDS: dict[str, Callable[[Any], dict[str, Any]]] = {
    "cosine": lambda value: {"vector": value},
    "euclidean": lambda value: {"where": {"at": value}},
    "hamming": lambda value: {"hash": value},
    "weighted-jaccard": lambda value: {"basket": value},
}
LETTERS = np.array(list("bdfgklmnprstvz")), np.array(list("aeiou"))
EVENTS = 40  # that texts are about at a time


def feed(measure: str, n: int, seed: int, changes: float = 0.0) -> list[bytes]:
    """n lines. changes: a share of deletions, and as many documents under an id that was there."""
    chance = np.random.default_rng(seed)
    field = FIELDS.get(measure, lambda value: {"text": value})
    wrong = WRONG if measure in FIELDS else NO_TEXTS
    values = _stories(chance) if measure == "tf-idf" else _values(chance, measure)
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


def _values(chance: np.random.Generator, measure: str) -> Iterator[Any]:
    """Three in five are made of one of the last 300."""
    make = {"hamming": _bits, "levenshtein": _title, "weighted-jaccard": _basket, "containment": _words}.get(
        measure, _vector
    )
    earlier: list[Any] = []
    while True:
        known = earlier[-300:] if chance.random() < 0.6 else []
        earlier.append(make(chance, known[int(chance.integers(len(known)))] if known else None))
        yield _written(earlier[-1], int(chance.integers(3)))


def _vector(chance: np.random.Generator, old: Any) -> Any:
    if old is None:
        return chance.standard_normal(DIMENSIONS).astype(np.float32)
    step = chance.standard_normal(DIMENSIONS)
    return (old + step / np.linalg.norm(step) * chance.choice((0.0, 0.1, 0.3, 0.45, 0.55))).astype(np.float32)


def _bits(chance: np.random.Generator, old: Any) -> int:
    if old is None:
        return int(chance.integers(2**64, dtype=np.uint64))
    for place in chance.choice(DIMENSIONS, int(chance.choice((0, 1, 2, 3, 4))), replace=False).tolist():
        old ^= 1 << place
    return int(old)


def _title(chance: np.random.Generator, old: Any) -> str:
    if old is None:
        return "".join(chance.choice(list("abcdefgh é"), int(chance.integers(3, 30)))) + "!"
    for _ in range(int(chance.integers(5))):
        at = int(chance.integers(len(old)))
        old = old[:at] + "xyz"[: int(chance.integers(2))] + old[at + int(chance.integers(2)) :] or "!"
    return str(old)


def _basket(chance: np.random.Generator, old: Any) -> dict[str, float]:
    if old is None:
        return {f"é{x}": float(chance.integers(1, 9)) / 4 for x in chance.integers(0, 400, 8)}
    kept = list(old.items())[int(chance.integers(3)) :]
    return {**dict(kept), f"é{int(chance.integers(400))}": float(chance.random())}


def _words(chance: np.random.Generator, old: Any) -> list[str]:
    """Words of a text; of an old one a part, with others around it."""
    words = [f"w{k}" for k in chance.integers(10**6, size=int(chance.choice((5, 20, 60, 200))))]
    if old is None:
        return words
    begin = int(chance.integers(len(old)))
    around = words[: int(chance.choice((0, 0, 5, 20)))]
    return [*around, *old[begin : begin + int(chance.choice((10, 40, 200)))], *around[::-1]]


def _written(value: Any, way: int) -> Any:
    """One of the ways in which documents have it."""
    if isinstance(value, dict):
        return value if way else [*value]
    if isinstance(value, list):
        return "  ".join(value) + "."
    if isinstance(value, str):
        return (value, value.upper(), value.replace(" ", "  "))[way]
    if isinstance(value, int):
        data = value.to_bytes(8, "big")
        return (data.hex(), base64.b64encode(data).decode(), value)[way]
    return value.tolist() if way else base64.b64encode(value.tobytes()).decode()


def _stories(chance: np.random.Generator) -> Iterator[str]:
    """Texts about events, in other words each."""

    def word() -> str:
        return "".join(str(chance.choice(LETTERS[k % 2])) for k in range(8))

    def event() -> list[str]:
        """Its names, a number, and words of its own."""
        return [*(word().title() for _ in range(4)), str(chance.integers(10, 3000)), *(word() for _ in range(8))]

    common, events = [word() for _ in range(200)], [event() for _ in range(EVENTS)]
    while True:
        if chance.random() < 0.1:
            events[int(chance.integers(EVENTS))] = event()
        about = events[int(chance.integers(EVENTS) * chance.random())]  # some have more texts than others
        size = int(chance.integers(5, 40))
        yield " ".join(str(chance.choice(about if chance.random() < 0.3 else common)) for _ in range(size))
