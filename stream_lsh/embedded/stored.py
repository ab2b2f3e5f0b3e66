"""What an index that is being written, or read, says of a document that is in it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stream_lsh.documents.times import NO_TIME
from stream_lsh.embedded.engine import Engine
from stream_lsh.embedded.group_store import row as group_row
from stream_lsh.index.rows import layout
from stream_lsh.judging.verdicts import Kind


class Stored(NamedTuple):
    """A document that is in an index.

    id: as JSON text. kind: of its first verdict, None while that is provisional. of, similarity: id of the oldest
    match, as JSON text, and the similarity with that one; b"" and None without one. group: None where there are none.
    time: event time, None without one. kept: whether newcomers are compared with it.
    """

    id: bytes
    seq: int
    kind: Kind | None
    of: bytes
    similarity: float | None
    group: int | None
    time: int | None
    kept: bool


def stored(engine: Engine, shard: int, row: int) -> Stored:
    """What the row of a document says."""
    index = engine.index
    words, (id, of) = index.words(shard, row), index.shards[shard].ids.named(row)
    seq, time, group = (int(words[word].view(np.int64)) for word in (layout.SEQ, layout.TIME, layout.GROUP))
    kind, unique = int(words[layout.FLAGS] >> layout.KIND_BITS) & 0xFF, index.settings.compare_with == "kept"
    kept = not unique or kind == Kind.UNIQUE
    if not kept and engine.groups is not None:  # perhaps it is the new representative
        whole = group_row(engine.groups.view, group)
        kept = whole is not None and whole.seq == seq
    return Stored(
        id, seq, None if kind == layout.UNKNOWN else Kind(kind), of,
        float(words[layout.SIMILARITY].view(np.float64)) if of else None,
        group if unique and group != layout.NO_GROUP else None, None if time == NO_TIME else time, kept,
    )  # fmt: skip
