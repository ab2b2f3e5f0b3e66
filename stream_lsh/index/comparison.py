"""Comparison of a text with a row under `tf-idf`, where the similarity depends on the document frequencies of the
index."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import orjson

from stream_lsh.documents.columns import Columns
from stream_lsh.documents.times import NO_TIME
from stream_lsh.families.terms import StoryWords
from stream_lsh.index.batch_run import BatchRun
from stream_lsh.index.index import Index


class Comparison(NamedTuple):
    """Result of a comparison.

    Attributes:
        similarity: by the document frequencies as they are now.
        terms: the weightiest terms of the row that the text has.
    """

    similarity: float
    terms: list[str]


def compare_with_row(index: Index, text: str, scope: int, shard: int, row: int) -> Comparison:
    """Compare a text with a row, as if the text arrived now. Nothing is stored or counted. Must run in the thread that
    writes. A text without terms has similarity 0.

    Args:
        scope: hash of the scope of the row (`Columns.scope_hashes`), 0 without `match_within`; with another one no term
            would be equal.
    """
    data, one = text.encode("utf-8", "surrogatepass"), np.ones(1, np.int64)
    columns = Columns([b'""'], data, one * len(data), one * NO_TIME, scopes=one.view(np.uint64) * np.uint64(scope))
    batch, held = index.sign(columns, want_texts=False), index.shards[shard]
    similarity = float(BatchRun(held, batch, store=False, known=False).similarities_to(row)[0])
    if not len(own := batch.shingles.known().shingles):
        return Comparison(0.0, [])
    (said,) = StoryWords(index.settings.signing)(data, [held.stored.signature(row)], own)
    return Comparison(similarity, orjson.loads(b"{" + said[1:] + b"}")["terms"])
