"""Feeds of nasty documents, and how the tests put them through an index."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from stream_lsh.documents.columns import Document, columns
from stream_lsh.index.index import Index
from stream_lsh.judging.verdicts import judge, verdicts
from stream_lsh.settings import Settings

WORDS = [f"w{i}" for i in range(300)]
EMPTY = ("", "  ", "\u00a0\t\n")


def nasty(
    seed: int, n: int, *, sizes: Sequence[int] = (1, 2, 5, 30, 45), words: Sequence[str] = WORDS
) -> list[Document]:
    """Copies, templates, chains of edits, texts of one word, empty ones, redeliveries, ids that are used again."""
    chance = random.Random(seed)

    def fresh() -> list[str]:
        return [chance.choice(words) for _ in range(chance.choice(sizes))]

    templates, drifting = [fresh() for _ in range(4)], fresh()
    hot = fresh()
    out: list[Document] = []
    for number in range(n):
        dice = chance.random()
        id: int | str = number if chance.random() < 0.8 else f"d{number}"
        if dice < 0.06 and out:
            out.append(chance.choice(out))  # delivered again
            continue
        if dice < 0.1 and out:
            id = chance.choice(out).id
        if dice < 0.13:
            out.append(Document(id, chance.choice(EMPTY)))
            continue
        if dice < 0.25:
            text = fresh()
        elif dice < 0.35:
            text = hot
        elif dice < 0.55:
            drifting = edited(drifting, 1, chance, words)
            text = drifting
        elif dice < 0.65 and out:
            text = (chance.choice(out).text or "").split() or fresh()
        else:
            text = edited(chance.choice(templates), chance.choice((0, 1, 1, 2, 4, 8)), chance, words)
        joined = " ".join(text)
        out.append(Document(id, joined.upper() if chance.random() < 0.1 else joined))
    return out


def changing(seed: int, n: int, *, words: Sequence[str] = WORDS) -> list[Document]:
    """The same under few ids, of which many are deleted."""
    chance, documents = random.Random(seed), nasty(seed, n, words=words)
    ids = chance.choice((3, 20, 100))
    out = [Document(chance.randrange(ids), d.text) if chance.random() < 0.7 else d for d in documents]
    return [Document(d.id, deleted=True) if chance.random() < 0.2 else d for d in out]


def edited(text: Sequence[str], edits: int, chance: random.Random, words: Sequence[str] = WORDS) -> list[str]:
    """A text with some words replaced."""
    text = list(text)
    for _ in range(edits):
        text[chance.randrange(len(text))] = chance.choice(words)
    return text


def fed(index: Index, documents: Sequence[Document], first: int, batch: int) -> list[dict[str, Any]]:
    """The verdicts on documents with the numbers from `first` on, in batches, as JSON has them."""
    out: list[dict[str, Any]] = []
    settings = index.settings
    for start in range(0, len(documents), batch):
        signed = index.sign(columns(documents[start : start + batch], sets=settings.set_field is not None))
        seqs = np.arange(first + start, first + start + len(signed))
        found = judge(index.match(signed, seqs), signed.ids, seqs, settings.max_matches, index)
        out += [orjson.loads(line + b"}") for line in verdicts(found)]
    return out


def once(documents: Sequence[Document], settings: Settings, folder: Path, batch: int = 64) -> list[dict[str, Any]]:
    """The verdicts of a new index that is closed afterwards."""
    index = Index(settings, folder, durable=False)
    try:
        out = fed(index, documents, 0, batch)
        index.commit({})
    finally:
        index.close()
    return out


def asked(index: Index, documents: Sequence[Document], *, known: bool = True) -> list[dict[str, Any]]:
    """What an index says of documents that are not stored; their numbers are -1."""
    signed = index.sign(columns(documents, sets=index.settings.set_field is not None), want_texts=False)
    seqs = np.full(len(signed), -1)
    found = judge(index.query(signed, known=known), signed.ids, seqs, index.settings.max_matches, index)
    return [orjson.loads(line + b"}") for line in verdicts(found)]
