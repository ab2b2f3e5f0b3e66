"""Documents that are vectors, rows of bits or short texts, for the pipeline under test: copies that are near enough or
just not, repeated and reused ids, and what is no such document."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

from support.kafka.spoiled import Spoiled

DIMENSIONS = 64
ITEMS: dict[str, dict[str, Any]] = {
    "cosine": {"likeness": "cosine", "dimensions": DIMENSIONS, "threshold": 0.9},
    "euclidean": {"likeness": "euclidean", "dimensions": DIMENSIONS, "distance": 0.5, "vector_field": "where.at"},
    "hamming": {"likeness": "hamming", "dimensions": DIMENSIONS, "distance": 3, "bits_field": "hash"},
    "edit": {"likeness": "edit", "distance": 3},
    "sets": {"likeness": "sets", "threshold": 0.4, "set_field": "basket"},
}
"""Settings by likeness."""
LANGUAGES = ("en", "de", None, 7)
WRONG: tuple[Any, ...] = (
    "no base64!", [1.0], "ab", [0] * DIMENSIONS, None, True, 2**70, [True] * DIMENSIONS,
)  # fmt: skip


def items(likeness: str, n: int, seed: int, changes: float = 0.0) -> list[bytes]:
    """So many lines, some three in five of them made of an earlier document. changes: a share of deletions, and as many
    under an id that was there."""
    chance = np.random.default_rng(seed)
    feed = Spoiled(chance, changes, [_field(likeness, value) for value in WRONG], bad=0.03)
    told: list[Any] = []
    for i in range(n):
        old = told[int(chance.integers(max(0, len(told) - 300), len(told)))] if told and chance.random() < 0.6 else None
        item = {"hamming": _bits, "edit": _title, "sets": _basket}.get(likeness, _vector)(chance, old)
        told.append(item)
        feed.delete(i)
        document = {"id": f"d{i}", **_field(likeness, _written(item, int(chance.integers(3))))}
        feed.spoil(i, document)
        document["lang"] = LANGUAGES[i % 7 % 4]
        feed.add(document)
        feed.again()
    return feed.lines[:n]


def _vector(chance: np.random.Generator, old: Any) -> Any:
    """Another one as far from the old one as may be near enough, or new."""
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


def _written(item: Any, way: int) -> Any:
    """One of the ways in which documents have it."""
    if isinstance(item, dict):
        return item if way else [*item]
    if isinstance(item, str):
        return (item, item.upper(), item.replace(" ", "  "))[way]
    if isinstance(item, int):
        data = item.to_bytes(8, "big")
        return (data.hex(), base64.b64encode(data).decode(), item)[way]
    return item.tolist() if way else base64.b64encode(item.tobytes()).decode()


def _field(likeness: str, value: Any) -> dict[str, Any]:
    return (
        {"basket": value}
        if likeness == "sets"
        else {"text": value}
        if likeness == "edit"
        else {"hash": value}
        if likeness == "hamming"
        else {"vector": value}
        if likeness == "cosine"
        else {"where": {"at": value}}
    )
