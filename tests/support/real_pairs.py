"""Real texts with all pairs whose Jaccard similarity is 0.5 or more."""

import lzma
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from support.long_form import LONG


class Corpus(NamedTuple):
    """A file of documents, that of their pairs, so many documents, and the fields of the text."""

    documents: str
    pairs: str
    count: int
    fields: tuple[str, ...]


CORPORA = {
    "posts": Corpus("posts-120k.jsonl.xz", "posts-40k.word3.pairs.tsv", 40_000 if LONG else 10_000, ("title", "text")),
    "terms": Corpus("terms-3k.jsonl.xz", "terms-3k.word3.pairs.tsv.xz", 3_000 if LONG else 1_000, ("text",)),
}


def lines(data: Path, corpus: str) -> list[bytes]:
    """The documents, one a line."""
    with lzma.open(data / CORPORA[corpus].documents) as file:
        return list(islice(file, CORPORA[corpus].count))


def true_pairs(data: Path, corpus: str, ids: set[str], threshold: float = 0.5) -> dict[frozenset[str], float]:
    """Jaccard of every true pair of these documents."""
    path = data / CORPORA[corpus].pairs
    text = lzma.decompress(path.read_bytes()) if path.suffix == ".xz" else path.read_bytes()
    rows = [line.split("\t") for line in text.decode().splitlines()]
    return {frozenset(row[:2]): float(row[2]) for row in rows if ids.issuperset(row[:2]) and float(row[2]) >= threshold}
