"""A document beside another one of an index of stories: how similar they are follows from how rare their words are."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import orjson

from stream_lsh.documents.columns import Columns
from stream_lsh.documents.times import NO_TIME
from stream_lsh.families.terms import StoryWords
from stream_lsh.index.batch_run import BatchRun
from stream_lsh.index.index import Index


class Likened(NamedTuple):
    """similarity: as terms weigh now. terms: the weightiest words of the older one that the text has, too."""

    similarity: float
    terms: list[str]


def likened(index: Index, text: str, salt: int, shard: int, row: int) -> Likened:
    """A text beside a row, as if it came now. salt: of the row (`Columns.salts`), 0 where all may match; of another one
    all terms would be others. Nothing is stored, and the counts are not changed; for the thread that writes.

    A text without words is like nobody, and no row is looked at.
    """
    data, one = text.encode("utf-8", "surrogatepass"), np.ones(1, np.int64)
    columns = Columns([b'""'], data, one * len(data), one * NO_TIME, salts=one.view(np.uint64) * np.uint64(salt))
    batch, held = index.sign(columns, want_texts=False), index.shards[shard]
    similarity = float(BatchRun(held, batch, store=False, known=False).likened(row)[0])
    if not len(own := batch.shingles.known().shingles):
        return Likened(0.0, [])
    (said,) = StoryWords(index.settings.signing)(data, [held.stored.signature(row)], own)
    return Likened(similarity, orjson.loads(b"{" + said[1:] + b"}")["terms"])
