"""Answers to documents: a verdict as a JSON line, and for a repeated document the first answer again."""

from __future__ import annotations

import numpy as np
import orjson

from stream_lsh.embedded.engine import Judged
from stream_lsh.index.index import Index
from stream_lsh.index.rows import layout
from stream_lsh.judging.verdicts import Judgement, Kind, verdicts


def verdict_lines(judged: Judged) -> list[bytes]:
    """The verdicts as JSON objects, as `dedup` writes them. Rejected documents have the reason."""
    lines = verdicts(judged.judgement)
    for i, why in judged.reasons.items():
        lines[i] += b"," + orjson.dumps({"reason": why.reason, "detail": why.detail})[1:-1]
    return [line + b"}" for line in lines]


def answers(lines: list[bytes], judged: Judged, index: Index) -> list[bytes]:
    """The answers to documents with these verdicts.

    A client that sends a document again, because it does not know whether it arrived, gets the first answer again, but
    without `matches`: seq, kind, `duplicate_of`, similarity and group of the first time. `redelivered` is the seq of
    the repetition.
    """
    judgement = judged.judgement
    if (judgement.seqs < 0).any():  # nothing was added
        return lines
    again = np.flatnonzero((judgement.kinds == Kind.REDELIVERED) & (judgement.first_kinds != layout.UNKNOWN))
    if not len(again):
        return lines
    said = list(lines)
    for i in again.tolist():
        shard, row = next(
            (number, int(found.known[i]))
            for number, found in enumerate(judged.found)
            if found.status[i] == layout.REDELIVERED
        )
        said[i] = _again(lines[i], judgement, i, int(index.words(shard, row)[layout.SEQ]))
    return said


def _again(line: bytes, judgement: Judgement, i: int, first: int) -> bytes:
    kind = Kind(int(judgement.first_kinds[i])).label.encode()
    head = b'{"id":%b,"seq":%d,"kind":"redelivered","first_kind":"%b"' % (judgement.ids[i], judgement.seqs[i], kind)
    rest = line[len(head) : -1]
    return b'{"id":%b,"seq":%d,"kind":"%b"%b,"redelivered":%d}' % (
        judgement.ids[i], first, kind, rest, judgement.seqs[i],
    )  # fmt: skip
