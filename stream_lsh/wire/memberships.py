"""Memberships: what the verdicts on a frame mean for groups and alerts. docs/internals/formats.md has the sections.

The judge writes one record for each frame, in the order of the log and in the transaction of its verdicts. The role
group folds them.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import orjson
from numpy.typing import NDArray

from stream_lsh.documents.times import NO_TIME
from stream_lsh.errors import FormatError
from stream_lsh.index.rows.layout import UNKNOWN
from stream_lsh.judging.verdicts import Judgement, Kind
from stream_lsh.settings.model import Settings
from stream_lsh.wire.envelope import Section, Sections, join, pack
from stream_lsh.wire.replies import ReplyNames
from stream_lsh.wire.source import MOST_ROWS, Headers, Source, numbers, parsed_headers, plain_headers
from stream_lsh.wire.trace_context import trace_of

VERSION = 2
_HEAD = struct.Struct("<qqq")  # offset, predecessor, shift


@dataclass(frozen=True, slots=True, eq=False)
class Memberships:
    """The verdicts on the n accepted documents of a frame.

    Attributes:
        offset, predecessor: of the frame, as in `Sequenced`.
        judgement: without matches.
        times: int64[n], event times in ms; NO_TIME: none, or the document cannot be compared.
        log: int64[n], stream times; empty without a window; shift: of them, as in `Sequenced`.
        sources: as JSON text, b"" for none; empty without `source_field`.
        traces: the trace contexts of documents that have one.
    """

    offset: int
    predecessor: int
    judgement: Judgement
    times: NDArray[np.int64]
    log: NDArray[np.int64]
    sources: list[bytes]
    shift: int = 0
    traces: dict[int, Headers] = field(default_factory=dict)

    @classmethod
    def encoded(
        cls, offset: int, predecessor: int, shift: int, judgement: Judgement, source: Source,
        log: NDArray[np.int64] | None, rows: NDArray[np.int64], settings: Settings,
    ) -> bytes:  # fmt: skip
        """The record of a frame's judgement.

        Args:
            log: stream times, with a window; shift: of them.
            rows: places of the accepted documents.
        """
        j, found = judgement, dict[bytes, int]()
        kinds = j.kinds[rows]
        of = np.full(len(rows), -1, np.int32)
        joined = (kinds == Kind.NEAR_DUPLICATE) | (kinds == Kind.EXACT_DUPLICATE) | np.isin(rows, j.superseding)
        for place in np.flatnonzero(joined).tolist():
            of[place] = found.setdefault(j.oldest(int(rows[place])), len(found))
        removed = np.flatnonzero(j.replaces[rows] >= 0)
        at = rows[removed]
        representatives = [
            found.setdefault(name, len(found)) if (name := j.representative(i)) else -1 for i in at.tolist()
        ]
        facts = np.stack((j.replaces[at], j.was_representative[at], j.left[at], j.representative_seqs[at]), axis=1)
        later = j.later.copy()
        later[:, 0] = np.searchsorted(rows, later[:, 0])
        later[:, 3] = [found.setdefault(j.names.id_of(*named), len(found)) for named in j.later[:, 2:4].tolist()]
        standing: Sequence[Section] = ()
        if settings.late and settings.updates:
            standing = later[:, 0].astype(np.uint16), np.ascontiguousarray(later[:, [1, 3, 4]])
        traces = {k: trace for k, i in enumerate(rows.tolist()) if (trace := trace_of(source.headers.get(i, ())))}
        timed = j.reused.copy()
        timed[list(j.failed)] = True
        times = np.where((kinds == Kind.REJECTED) & ~timed[rows], NO_TIME, source.times[rows])
        sources: Sequence[Section] = b"", b""
        if source.sources:
            sources = join([source.sources[i] for i in rows.tolist()])
        return pack(
            b"M", VERSION, settings.fingerprint,
            [
                _HEAD.pack(offset, predecessor, shift), rows.astype(np.uint16), kinds, j.groups[rows],
                j.similarities[rows], of, *join(list(found)), times, b"" if log is None else log[rows],
                *join([source.ids[i] for i in rows.tolist()]), *sources, j.of_seqs[rows],
                removed.astype(np.uint16), facts.astype(np.int64), np.array(representatives, np.int32), *standing,
                *([orjson.dumps(plain_headers(traces))] if traces else ()),
            ],
        )  # fmt: skip

    @classmethod
    def decode(cls, data: bytes | memoryview, settings: Settings) -> Memberships:
        """Read a record.

        Raises:
            FormatError: it cannot be read; the message has the cause and the remedy.
        """
        sections = Sections(b"M", VERSION, settings.fingerprint, data)
        offset, predecessor, shift = sections.numbers(_HEAD)
        rows = sections.column(np.uint16).astype(np.int64)
        n = len(rows)
        kinds, groups = sections.column(np.uint8, n), sections.column(np.int64, n)
        similarities, of = sections.column(np.float64, n), sections.column(np.int32, n).astype(np.int64)
        names = sections.texts()
        times = sections.column(np.int64, n).copy()  # numba would compile its kernels again for read-only arrays
        log = sections.column(np.int64)
        ids, sources, of_seqs = sections.texts(), sections.texts(), sections.column(np.int64, n)
        removed = sections.column(np.uint16).astype(np.int64)
        facts = sections.column(np.int64, len(removed), 4)
        representatives = sections.column(np.int32, len(removed)).astype(np.int64)
        most = max(of.max(initial=-1), representatives.max(initial=-1))
        if len(ids) != n or len(sources) not in (0, n) or len(log) != (0 if settings.window is None else n):
            raise _damaged()
        later = np.empty((0, 5), np.int64)
        if settings.late and settings.updates:
            standing = sections.column(np.uint16).astype(np.int64)
            theirs, named, seqs = sections.column(np.int64, len(standing), 3).T
            later = np.column_stack((standing, theirs, np.zeros_like(named), named, seqs))
            most = max(most, named.max(initial=-1))
        traces = _traces(sections.next(), n) if sections.left else {}
        sections.end()
        if most >= len(names) or max(removed.max(initial=-1), later[:, 0].max(initial=-1)) >= n:
            raise _damaged()
        nothing, zeros = np.empty(0, np.int64), np.zeros(n, np.int64)
        columns = np.full((n, 5), -1)
        columns[removed, :4], columns[removed, 4] = facts, representatives
        replaces, was_representative, left, representative_seqs, representative = columns.T
        judgement = Judgement(
            ids=ids, seqs=numbers(offset, MOST_ROWS)[rows], kinds=kinds,
            first_kinds=np.full(n, UNKNOWN, np.uint8), reused=np.zeros(n, np.bool_),
            of=np.stack((np.minimum(of, 0), of), axis=1), of_seqs=of_seqs,
            similarities=similarities, groups=groups,
            starts=np.zeros(n + 1, np.int64), matched_shards=nothing, matched_rows=nothing, matched_seqs=nothing,
            matched_similarities=np.empty(0), truncated=zeros, not_compared=zeros, replaces=replaces,
            was_representative=was_representative > 0,
            left=left,
            representatives=np.stack((np.minimum(representative, 0), representative), axis=1),
            representative_seqs=representative_seqs, names=ReplyNames([names]), later=later,
        )  # fmt: skip
        return cls(offset, predecessor, judgement, times, log, sources, shift, traces)


def _traces(section: memoryview, n: int) -> dict[int, Headers]:
    """The trace contexts of n documents."""
    try:
        found = parsed_headers(orjson.loads(section))
    except ValueError:
        raise _damaged() from None
    if not all(0 <= place < n for place in found):
        raise _damaged()
    return found


def _damaged() -> FormatError:
    return FormatError("memberships are damaged: their parts do not fit together; delete and rebuild them")
