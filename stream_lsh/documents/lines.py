"""From JSON lines to columns of documents: kernels read plain values, and one slow reader decides about all others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import orjson
from numpy.typing import NDArray

from stream_lsh.documents.columns import NO_RANKS, Columns, Rejection
from stream_lsh.documents.engine_errors import isolating
from stream_lsh.documents.envelopes import Headers, unwrapped
from stream_lsh.documents.fields import (
    LINE_ID,
    LITERALS,
    MAX_ID_BYTES,
    MAX_SOURCE_BYTES,
    MAX_WITHIN_BYTES,
    Fields,
    Record,
    id_text,
    json_text,
    utf8_size,
)
from stream_lsh.documents.json_gather import gather_integers, gather_texts
from stream_lsh.documents.json_numbers import gather_numbers
from stream_lsh.documents.json_reader import read_object
from stream_lsh.documents.json_scan import ACCEPTED, ESCAPED, INTEGER, LEFT, MISSING, OTHER, PLAIN, scan_lines
from stream_lsh.documents.ranks import LOWEST, rank_of_json
from stream_lsh.documents.refused import Refused
from stream_lsh.documents.times import LAST_TIME, MILLISECONDS_FROM, NO_TIME, milliseconds


def parse_lines(
    data: bytes,
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    fields: Fields,
    *,
    input: str = "-",
    line_numbers: NDArray[np.int64] | None = None,
    rejected: Mapping[int, Rejection] | None = None,
    key: Callable[[int], bytes | None] = lambda _: None,
    headers: Sequence[Headers] = (),
) -> Columns:
    """Documents from the JSON lines data[starts[i]:ends[i]].

    Args:
        input, line_numbers: for ids made of them (`Fields.id_field` = LINE_ID; numbered from 1 by default).
        rejected: lines that the reader has rejected already; they are not parsed. Lines with which parsing fails are
            rejected, too.
        key, headers: of records on Kafka, which envelopes need (`Fields.envelope`); `key` gets the place of a record.
    """
    if fields.envelope is not None:
        rejected = dict(rejected or {})
        data, starts, ends, fields = unwrapped(data, starts, ends, fields, rejected, key, headers)
    numbers = np.arange(1, len(starts) + 1) if line_numbers is None else line_numbers

    def parse(begin: int, end: int, found: Mapping[int, Rejection]) -> Columns:
        given = {i - begin: why for i, why in (rejected or {}).items() if begin <= i < end} | dict(found)
        return _parsed(data, starts[begin:end], ends[begin:end], fields, input, numbers[begin:end], given)

    return isolating(parse, len(starts))


def _parsed(
    data: bytes, starts: NDArray[np.int64], ends: NDArray[np.int64], fields: Fields, input: str,
    line_numbers: NDArray[np.int64], given: dict[int, Rejection],
) -> Columns:  # fmt: skip
    """As `parse_lines`; given: the rejected lines, to which more are added."""
    count = len(starts)
    line_ids = None
    if fields.id_field == LINE_ID:
        line_ids = [id_text(f"{input}:{number}") for number in line_numbers.tolist()]
    if given:
        ends = ends.copy()
        for i in given:
            ends[i] = starts[i]  # nothing to parse
    plan = _plan(fields)
    buffer = np.frombuffer(data, np.uint8)
    width = len(plan.name_ends)
    spans = np.zeros((count, width, 2), np.int64)
    kinds = np.empty((count, width), np.uint8)
    status = np.empty(count, np.uint8)
    scan_lines(buffer, starts, ends, plan.names, plan.name_ends, spans, kinds, status)
    status[ends - starts > fields.max_document_bytes] = LEFT
    parsed = _Parsed(data, starts, ends, fields, line_ids, given, buffer, spans, kinds, status)
    return parsed.flat(plan) if plan.flat else parsed.nested(parsed.vectors() if width else {})


@dataclass(frozen=True)
class _Plan:
    """What the kernels look for.

    Attributes:
        flat: top-level texts. Otherwise paths, sets and items, which the kernels check and do not read, except for
            lists of vectors, whose field is then the only name.
        names, name_ends: the wanted keys, concatenated, and where each ends.
        first_text: number of the first text among them.
        time, source, deleted: their numbers, -1 = none.
        within: the numbers of the fields of `match_within`.
        rank: that of `rank_field`, -1 = none.
    """

    flat: bool
    names: NDArray[np.uint8]
    name_ends: NDArray[np.int64]
    first_text: int
    time: int
    source: int
    deleted: int
    within: tuple[int, ...]
    rank: int


@lru_cache(maxsize=64)
def _plan(fields: Fields) -> _Plan:
    before = [] if fields.id_field == LINE_ID else [fields.id_field]
    places = []
    for name in (fields.time_field, fields.source_field, fields.deleted_field):
        places.append(-1 if name is None else len(before))
        before += [] if name is None else [name]
    time, source, deleted = places
    more = [*fields.match_within, *([] if fields.rank_field is None else [fields.rank_field])]
    before += dict.fromkeys(name for name in more if name not in before)
    names = [*before, *fields.text_fields]
    texts = fields.set_field is None and fields.item is None
    flat = texts and not any("." in name for name in names) and len(set(names)) == len(names)
    if not flat:
        item = fields.item
        names = [item.name] if item is not None and item.kind == "vector" and "." not in item.name else []
    encoded = [name.encode("utf-8", "surrogatepass") for name in names]
    return _Plan(
        flat,
        np.frombuffer(b"".join(encoded), np.uint8),
        np.cumsum([len(name) for name in encoded], dtype=np.int64),
        len(before),
        time,
        source,
        deleted,
        tuple(before.index(name) for name in fields.match_within),
        -1 if fields.rank_field is None else before.index(fields.rank_field),
    )


class _Vector(NamedTuple):
    """A list of numbers, data[begin:end], float32[dimensions]."""

    begin: int
    end: int
    numbers: NDArray[np.float32]


@dataclass(frozen=True)
class _Parsed:
    """One call of `parse_lines`. buffer: the data. spans, kinds, status: what `scan_lines` has found."""

    data: bytes
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    fields: Fields
    line_ids: list[bytes] | None
    rejected: dict[int, Rejection]
    buffer: NDArray[np.uint8]
    spans: NDArray[np.int64]
    kinds: NDArray[np.uint8]
    status: NDArray[np.uint8]

    def flat(self, plan: _Plan) -> Columns:
        """Columns from the kernels' results, and from the slow reader for what they left."""
        data, buffer, spans, kinds, status = self.data, self.buffer, self.spans, self.kinds, self.status
        times = np.full(len(status), NO_TIME, np.int64)
        if self.line_ids is None:
            kind = kinds[:, 0]
            readable = (kind == PLAIN) | (kind == ESCAPED) | (kind == INTEGER)
            status[~readable | (spans[:, 0, 1] - spans[:, 0, 0] > MAX_ID_BYTES)] = LEFT
        if plan.deleted >= 0:
            status[~_is_false_or_null(buffer, spans[:, plan.deleted], kinds[:, plan.deleted])] = LEFT
        if plan.time >= 0:
            self._flat_times(plan, times)
        within = self._flat_within(plan)
        out = np.empty(int((self.ends - self.starts).sum()), np.uint8)
        text_ends = np.empty(len(status), np.int64)
        size = gather_texts(buffer, spans, kinds, plan.first_text, status, out, text_ends)
        if self.line_ids is None:
            ids = [data[a:b] for a, b in zip(spans[:, 0, 0].tolist(), spans[:, 0, 1].tolist(), strict=True)]
            _make_canonical(ids, (kinds[:, 0] == ESCAPED) & (status == ACCEPTED), status)
        else:
            ids = list(self.line_ids)
        sources = self._flat_sources(spans[:, plan.source], kinds[:, plan.source]) if plan.source >= 0 else []
        ranks = self._flat_ranks(plan.rank) if plan.rank >= 0 else NO_RANKS
        found = Columns(ids, out[:size].tobytes(), text_ends, times, self.rejected, sources, within, [], [], ranks)
        found.put({i: self._slowly(i) for i in np.flatnonzero(status == LEFT).tolist()})
        return found

    def _flat_within(self, plan: _Plan) -> list[bytes]:
        """The scopes, as `within_text` has them. Lines with an invalid value are left."""
        spans, kinds, status, fields = self.spans, self.kinds, self.status, []
        for place in plan.within:
            kind = kinds[:, place]
            texts = [self.data[a:b] for a, b in spans[:, place].tolist()]
            for i in np.flatnonzero(kind == MISSING).tolist():
                texts[i] = b"null"
            _make_canonical(texts, (kind == ESCAPED) & (status == ACCEPTED), status)
            odd = [i for i in np.flatnonzero(kind == OTHER).tolist() if texts[i] not in LITERALS.values()]
            status[odd] = LEFT
            status[np.fromiter(map(len, texts), np.int64, len(texts)) > MAX_WITHIN_BYTES] = LEFT
            fields.append(texts)
        return [b",".join(values) for values in zip(*fields, strict=True)]

    def _flat_sources(self, spans: NDArray[np.int64], kinds: NDArray[np.uint8]) -> list[bytes]:
        """The sources that the kernels have found. Lines with one that is not UTF-8 are left."""
        said = (kinds == PLAIN) | (kinds == ESCAPED) | (kinds == INTEGER)
        begins, ends = (np.where(said, spans[:, side], 0).tolist() for side in (0, 1))
        sources = [self.data[a:b] for a, b in zip(begins, ends, strict=True)]
        _make_canonical(sources, kinds == ESCAPED, self.status)
        for i in np.flatnonzero(kinds == OTHER).tolist():
            if self.data[slice(*spans[i].tolist())] == b"-0":
                sources[i] = b"0"
        return [source if len(source) <= MAX_SOURCE_BYTES else b"" for source in sources]

    def _flat_ranks(self, place: int) -> NDArray[np.float64]:
        """The ranks by what the kernels have found."""
        order, known = self.fields.rank_order, {b"": LOWEST}
        ranks = np.empty(len(self.status))
        spans = np.where(self.kinds[:, place, None] == MISSING, 0, self.spans[:, place])
        for i, (start, end) in enumerate(spans.tolist()):
            text = self.data[start:end]
            if (rank := known.get(text)) is None:
                rank = known[text] = rank_of_json(text, order)
            ranks[i] = rank
        return ranks

    def _flat_times(self, plan: _Plan, times: NDArray[np.int64]) -> None:
        """Fill in the times. Lines without a valid one are left."""
        spans, kinds, status = self.spans, self.kinds, self.status
        values = np.full(len(times), -1, np.int64)
        gather_integers(self.buffer, spans, kinds, plan.time, values)
        times[:] = _milliseconds_of(values)
        for i in np.flatnonzero((kinds[:, plan.time] == PLAIN) & (status == ACCEPTED)).tolist():
            start, end = spans[i, plan.time].tolist()
            try:
                times[i] = milliseconds(self.data[start + 1 : end - 1].decode("utf-8"))
            except ValueError:
                times[i] = NO_TIME
        status[times == NO_TIME] = LEFT

    def vectors(self) -> dict[int, _Vector]:
        """The vectors that are plain lists of numbers, by the place of their line."""
        buffer, spans, kinds, status = self.buffer, self.spans, self.kinds, self.status
        assert self.fields.item is not None
        begins, dimensions = spans[:, 0, 0], self.fields.item.dimensions
        list_of_any = (status == ACCEPTED) & (kinds[:, 0] == OTHER)
        rows = np.flatnonzero(list_of_any & (self.ends - begins > 2 * dimensions))
        rows = rows[buffer[begins[rows]] == ord("[")]
        numbers, stops = np.empty((len(rows), dimensions), np.float32), np.empty(len(rows), np.int64)
        gather_numbers(buffer, begins[rows], self.ends[rows], numbers, stops)
        read = zip(rows.tolist(), begins[rows].tolist(), stops.tolist(), numbers, strict=True)
        return {i: _Vector(begin, stop, row) for i, begin, stop, row in read if stop}

    def nested(self, vectors: Mapping[int, _Vector]) -> Columns:
        """Paths, sets and items: orjson reads lines that are well-formed and have no duplicate keys, without the
        vectors."""
        records: list[Record] = []
        data, fields, line_ids = self.data, self.fields, self.line_ids
        lines = zip(self.starts.tolist(), self.ends.tolist(), self.status.tolist(), strict=True)
        for i, (start, end, state) in enumerate(lines):
            try:
                if state != ACCEPTED:
                    raise Refused("", "")
                if (vector := vectors.get(i)) is None:
                    document = orjson.loads(data[start:end])
                else:
                    document = orjson.loads(b"%b0%b" % (data[start : vector.begin], data[vector.end : end]))
                    document[fields.item.name] = vector.numbers  # type: ignore[union-attr]
                if fields.rounded(document):
                    raise Refused("", "")
                records.append(fields.extract(document, line_ids[i] if line_ids else None))
            except (Refused, orjson.JSONDecodeError):
                # orjson reads integers beyond 64 bits as floats and refuses lone surrogates: the slow reader decides.
                records.append(self._slowly(i))
        return Columns.of_records(records, self.rejected, fields, sources=fields.source_field is not None)

    def _slowly(self, i: int) -> Record:
        """Line i, read by the slow reader, which decides what is rejected, and why."""
        line_id = self.line_ids[i] if self.line_ids else None
        if i in self.rejected:
            return Record(line_id or b"null", "", NO_TIME)
        try:
            return self._read(self.data[int(self.starts[i]) : int(self.ends[i])], line_id)
        except Refused as refused:
            self.rejected[i] = Rejection(refused.reason, refused.detail)
            return Record(line_id or refused.id, "", NO_TIME)

    def _read(self, line: bytes, line_id: bytes | None) -> Record:
        if len(line) > self.fields.max_document_bytes:
            raise Refused("too_large", f"the line has {len(line)} bytes, more than {self.fields.max_document_bytes}")
        record = self.fields.extract(read_object(line), line_id)
        if not record.deleted:
            utf8_size(record, with_id=line_id is None)
        return record


def _is_false_or_null(
    buffer: NDArray[np.uint8], spans: NDArray[np.int64], kinds: NDArray[np.uint8]
) -> NDArray[np.bool_]:
    """Whether a value is missing, false or null, by its first letter."""
    other = kinds == OTHER
    letters = buffer[np.where(other, spans[:, 0], 0)] if len(buffer) else np.zeros(len(kinds), np.uint8)
    no: NDArray[np.bool_] = (kinds == MISSING) | other & ((letters == ord("f")) | (letters == ord("n")))
    return no


def _make_canonical(strings: list[bytes], which: NDArray[np.bool_], status: NDArray[np.uint8]) -> None:
    """Rewrite some well-formed JSON strings without needless escapes. Lines with a lone surrogate are left."""
    for i in np.flatnonzero(which).tolist():
        try:
            strings[i] = json_text(orjson.loads(strings[i]))
        except orjson.JSONDecodeError:
            status[i] = LEFT


def _milliseconds_of(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """`milliseconds` of many integers at once; NO_TIME where it would raise."""
    times = np.where(values >= MILLISECONDS_FROM, values, values * 1000)
    in_range = (values >= 0) & (values < LAST_TIME) & (times < LAST_TIME)
    return np.where(in_range, times, NO_TIME)
