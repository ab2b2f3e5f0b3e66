"""Documents as columns: from JSON lines or from Python, validated, each in its place even when it is refused."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import orjson
from numpy.typing import NDArray

from stream_lsh.documents.dead_letters import dead_letter
from stream_lsh.documents.fields import (
    LINE_ID,
    LITERALS,
    MAX_ID_BYTES,
    MAX_SOURCE_BYTES,
    MAX_WITHIN_BYTES,
    Fields,
    Record,
    Refused,
    check_ink,
    id_text,
    set_text,
    within_text,
)
from stream_lsh.documents.json_gather import gather_integers, gather_texts
from stream_lsh.documents.json_reader import read_object
from stream_lsh.documents.json_scan import ACCEPTED, ESCAPED, INTEGER, LEFT, MISSING, OTHER, PLAIN, scan_lines
from stream_lsh.documents.times import LAST_TIME, MILLISECONDS_FROM, NO_TIME, milliseconds
from stream_lsh.hashing.murmur import murmur128

__all__ = [
    "LINE_ID",
    "NO_TIME",
    "Batch",
    "Columns",
    "Document",
    "Fields",
    "Position",
    "Rejection",
    "columns",
    "dead_letter",
    "parse_lines",
]


@dataclass(frozen=True, slots=True)
class Document:
    """A document for the Python API: a text, or with a set as shingles its elements; time in ms or s since 1970;
    within: with `match_within`, the value of each of its fields (a string, an integer, a boolean or None). deleted: it
    has none of these, but perhaps a time, and what there is under its id goes."""

    id: str | int
    text: str | None = None
    set: Sequence[str] | None = None
    time: int | None = None
    within: Mapping[str, str | int | None] | None = None
    deleted: bool = False


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why a document is refused. `size`: its full size in bytes if only its beginning was kept."""

    reason: str
    detail: str
    size: int | None = None


@dataclass(frozen=True, slots=True)
class Position:
    """Uncompressed bytes and lines of one input that have been read (of a folder: bytes of files, and files)."""

    offset: int = 0
    line: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """n documents. A refused one keeps its place with an empty text, and the id b"null" if none is known.

    ids: as JSON text (b'"abc"', b"17"). texts: all texts as UTF-8 ('surrogatepass'), ends: where each ends.
    times: ms since 1970, or NO_TIME. rejected: by place. sources: as JSON text, b"" for none; empty without a
    `source_field`. salts: uint64[n], equal where the values of the fields to match within are; empty without such.
    deleted: the places of those that only say that their id is deleted.
    """

    ids: list[bytes]
    texts: bytes
    ends: NDArray[np.int64]
    times: NDArray[np.int64]
    rejected: dict[int, Rejection] = field(default_factory=dict)
    sources: list[bytes] = field(default_factory=list)
    salts: NDArray[np.uint64] = field(default_factory=lambda: np.empty(0, np.uint64))
    deleted: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.ids)

    def part(self, begin: int, end: int) -> Columns:
        """Documents begin to end."""
        start = int(self.ends[begin - 1]) if begin else 0
        stop = int(self.ends[end - 1]) if end > begin else start
        return Columns(
            self.ids[begin:end], self.texts[start:stop], self.ends[begin:end] - start, self.times[begin:end],
            {i - begin: why for i, why in self.rejected.items() if begin <= i < end}, self.sources[begin:end],
            self.salts[begin:end], [i - begin for i in self.deleted if begin <= i < end],
        )  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Batch(Columns):
    """Documents as they came from an input.

    Document i is data[line_starts[i]:line_ends[i]], without its newline; it is line line_numbers[i] (from 1) and
    begins at byte offsets[i] of the uncompressed input. position: behind the batch.
    """

    data: bytes
    line_starts: NDArray[np.int64]
    line_ends: NDArray[np.int64]
    input: str
    line_numbers: NDArray[np.int64]
    offsets: NDArray[np.int64]
    position: Position

    def raw(self, i: int) -> bytes:
        """The bytes of document i (of one that was too large, the beginning)."""
        return self.data[int(self.line_starts[i]) : int(self.line_ends[i])]

    def dead_letter(self, i: int, rejection: Rejection | None = None) -> bytes:
        """The dead letter of document i, one line; `rejection` for a reason found later than in parsing."""
        why = rejection or self.rejected[i]
        return dead_letter(
            why.reason, why.detail, self.input, int(self.line_numbers[i]), int(self.offsets[i]), self.raw(i), why.size
        )


def columns(
    documents: Sequence[Document],
    *,
    sets: bool = False,
    max_document_bytes: int = Fields.max_document_bytes,
    match_within: Sequence[str] = (),
) -> Columns:
    """Columns of documents made in Python. `sets`: take their sets instead of their texts."""
    ids: list[bytes] = []
    texts: list[str] = []
    times = np.full(len(documents), NO_TIME, np.int64)
    rejected: dict[int, Rejection] = {}
    deleted: list[int] = []
    within: list[bytes] = []
    for i, document in enumerate(documents):
        id, text, values = b"null", "", b""
        try:
            id = id_text(document.id)
            if document.deleted:
                pass
            elif sets:
                if document.set is None:
                    raise Refused("missing_field", "the document has no set", id)
                text = set_text(document.set, "the set", id)
            else:
                if document.text is None:
                    raise Refused("missing_field", "the document has no text", id)
                if not isinstance(document.text, str):
                    raise Refused("wrong_type", f"the text is a {type(document.text).__name__}, not a str", id)
                check_ink(document.text, id)
                text = document.text
            if len(text) * 4 > max_document_bytes:
                size = len(text.encode("utf-8", "surrogatepass"))
                if size > max_document_bytes:
                    raise Refused("too_large", f"the document has {size} bytes, more than {max_document_bytes}", id)
            if document.time is not None:
                try:
                    times[i] = milliseconds(document.time)
                except ValueError as error:
                    raise Refused("bad_time", str(error), id) from None
            if document.deleted:
                deleted.append(i)
            else:
                values = _within(document, match_within, id)
        except Refused as refused:
            rejected[i] = Rejection(refused.reason, refused.detail)
            text = ""
        ids.append(id)
        texts.append(text)
        within.append(values)
    joined, ends = _join(texts)
    return Columns(ids, joined, ends, times, rejected, salts=_salts(within if match_within else []), deleted=deleted)


def _within(document: Document, match_within: Sequence[str], id: bytes) -> bytes:
    """The values to match within of a document made in Python, where nothing is taken for None that is not there."""
    given = {} if document.within is None else document.within
    if match_within and not isinstance(given, Mapping):
        raise Refused("wrong_type", f"`within` is a {type(given).__name__}, not a mapping of fields to values", id)
    for name in match_within:
        if name not in given:
            raise Refused(
                "missing_field", f"`within` has no {name!r}, which documents match within (it may be None)", id
            )
    return within_text({name: given[name] for name in match_within}, id)


def parse_lines(
    data: bytes,
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    fields: Fields,
    *,
    input: str = "-",
    line_numbers: NDArray[np.int64] | None = None,
    rejected: Mapping[int, Rejection] | None = None,
) -> Columns:
    """Documents from the JSON lines data[starts[i]:ends[i]].

    input, line_numbers: for ids made of them (`Fields.id_field` = LINE_ID; numbers from 1 if not given).
    rejected: lines the reader has refused already; they are not looked at.
    """
    count = len(starts)
    given = dict(rejected or {})
    line_ids = None
    if fields.id_field == LINE_ID:
        numbers = np.arange(1, count + 1) if line_numbers is None else line_numbers
        line_ids = [id_text(f"{input}:{number}") for number in numbers.tolist()]
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
    parsed = _Parsed(data, starts, ends, fields, line_ids, given)
    if plan.flat:
        return parsed.flat(plan, buffer, spans, kinds, status)
    return parsed.nested(status)


@dataclass(frozen=True)
class _Plan:
    """What the kernels look for; time, source, deleted: their places among the names, -1 without; within: those of the
    fields to match within. Not flat: paths or sets, which the kernels check but do not read."""

    flat: bool
    names: NDArray[np.uint8]
    name_ends: NDArray[np.int64]
    first_text: int
    time: int
    source: int
    deleted: int
    within: tuple[int, ...]


@lru_cache(maxsize=64)
def _plan(fields: Fields) -> _Plan:
    before = [] if fields.id_field == LINE_ID else [fields.id_field]
    places = []
    for name in (fields.time_field, fields.source_field, fields.deleted_field):
        places.append(-1 if name is None else len(before))
        before += [] if name is None else [name]
    time, source, deleted = places
    before += [name for name in fields.match_within if name not in before]
    names = [*before, *fields.text_fields]
    flat = fields.set_field is None and not any("." in name for name in names) and len(set(names)) == len(names)
    encoded = [name.encode("utf-8", "surrogatepass") for name in names] if flat else []
    return _Plan(
        flat,
        np.frombuffer(b"".join(encoded), np.uint8),
        np.cumsum([len(name) for name in encoded], dtype=np.int64),
        len(before),
        time,
        source,
        deleted,
        tuple(before.index(name) for name in fields.match_within),
    )


@dataclass(frozen=True)
class _Parsed:
    """One call of `parse_lines`."""

    data: bytes
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    fields: Fields
    line_ids: list[bytes] | None
    rejected: dict[int, Rejection]
    deleted: list[int] = field(default_factory=list)

    def flat(
        self,
        plan: _Plan,
        buffer: NDArray[np.uint8],
        spans: NDArray[np.int64],
        kinds: NDArray[np.uint8],
        status: NDArray[np.uint8],
    ) -> Columns:
        """Everything from the kernels, but what they left."""
        data = self.data
        times = np.full(len(status), NO_TIME, np.int64)
        if self.line_ids is None:
            kind = kinds[:, 0]
            readable = (kind == PLAIN) | (kind == ESCAPED) | (kind == INTEGER)
            status[~readable | (spans[:, 0, 1] - spans[:, 0, 0] > MAX_ID_BYTES)] = LEFT
        if plan.deleted >= 0:
            status[~_says_no(buffer, spans[:, plan.deleted], kinds[:, plan.deleted])] = LEFT
        if plan.time >= 0:
            self._flat_times(plan, buffer, spans, kinds, status, times)
        within = self._flat_within(plan, spans, kinds, status)
        out = np.empty(int((self.ends - self.starts).sum()), np.uint8)
        text_ends = np.empty(len(status), np.int64)
        size = gather_texts(buffer, spans, kinds, plan.first_text, status, out, text_ends)
        if self.line_ids is None:
            ids = [data[a:b] for a, b in zip(spans[:, 0, 0].tolist(), spans[:, 0, 1].tolist(), strict=True)]
            for i in np.flatnonzero((kinds[:, 0] == ESCAPED) & (status == ACCEPTED)).tolist():
                ids[i] = _canonical(ids[i])
        else:
            ids = list(self.line_ids)
        sources = self._flat_sources(spans[:, plan.source], kinds[:, plan.source]) if plan.source >= 0 else []
        texts = out[:size].tobytes()
        left = np.flatnonzero(status == LEFT).tolist()
        if left:
            read: dict[int, bytes] = {}
            for i in left:
                record = self._slowly(i)
                ids[i], times[i] = record.id, record.time
                read[i] = record.text.encode("utf-8", "surrogatepass")
                if sources:
                    sources[i] = record.source
                if within:
                    within[i] = record.within
            texts, text_ends = _insert(texts, text_ends, read)
        return Columns(ids, texts, text_ends, times, self.rejected, sources, _salts(within), self.deleted)

    def _flat_within(
        self, plan: _Plan, spans: NDArray[np.int64], kinds: NDArray[np.uint8], status: NDArray[np.uint8]
    ) -> list[bytes]:
        """The values to match within, as `within_text` has them; lines with one that is no such value are left."""
        fields = []
        for place in plan.within:
            kind = kinds[:, place]
            texts = [self.data[a:b] for a, b in spans[:, place].tolist()]
            for i in np.flatnonzero(kind == MISSING).tolist():
                texts[i] = b"null"
            for i in np.flatnonzero((kind == ESCAPED) & (status == ACCEPTED)).tolist():
                texts[i] = _canonical(texts[i])
            odd = [i for i in np.flatnonzero(kind == OTHER).tolist() if texts[i] not in LITERALS.values()]
            status[odd] = LEFT
            status[np.fromiter(map(len, texts), np.int64, len(texts)) > MAX_WITHIN_BYTES] = LEFT
            fields.append(texts)
        return [b",".join(values) for values in zip(*fields, strict=True)]

    def _flat_sources(self, spans: NDArray[np.int64], kinds: NDArray[np.uint8]) -> list[bytes]:
        """The sources as far as the kernels have found them."""
        said = (kinds == PLAIN) | (kinds == ESCAPED) | (kinds == INTEGER)
        begins, ends = (np.where(said, spans[:, side], 0).tolist() for side in (0, 1))
        sources = [self.data[a:b] for a, b in zip(begins, ends, strict=True)]
        for i in np.flatnonzero(kinds == ESCAPED).tolist():
            sources[i] = _canonical(sources[i])
        for i in np.flatnonzero(kinds == OTHER).tolist():
            if self.data[slice(*spans[i].tolist())] == b"-0":
                sources[i] = b"0"
        return [source if len(source) <= MAX_SOURCE_BYTES else b"" for source in sources]

    def _flat_times(
        self,
        plan: _Plan,
        buffer: NDArray[np.uint8],
        spans: NDArray[np.int64],
        kinds: NDArray[np.uint8],
        status: NDArray[np.uint8],
        times: NDArray[np.int64],
    ) -> None:
        """Fills in the times; lines without a readable one are left."""
        values = np.full(len(times), -1, np.int64)
        gather_integers(buffer, spans, kinds, plan.time, values)
        times[:] = _milliseconds_of(values)
        for i in np.flatnonzero((kinds[:, plan.time] == PLAIN) & (status == ACCEPTED)).tolist():
            start, end = spans[i, plan.time].tolist()
            try:
                times[i] = milliseconds(self.data[start + 1 : end - 1].decode("utf-8"))
            except ValueError:
                times[i] = NO_TIME
        status[times == NO_TIME] = LEFT

    def nested(self, status: NDArray[np.uint8]) -> Columns:
        """Paths and sets: orjson reads what the kernel has found well-formed and without duplicate keys."""
        records: list[Record] = []
        data, fields, line_ids = self.data, self.fields, self.line_ids
        lines = zip(self.starts.tolist(), self.ends.tolist(), status.tolist(), strict=True)
        for i, (start, end, state) in enumerate(lines):
            try:
                if state != ACCEPTED:
                    raise Refused("", "")
                record = fields.extract(orjson.loads(data[start:end]), line_ids[i] if line_ids else None)
            except (Refused, orjson.JSONDecodeError):
                # orjson reads integers beyond 64 bits as floats and refuses lone surrogates: not the last word.
                records.append(self._slowly(i))
                continue
            records.append(record)
            if record.deleted:
                self.deleted.append(i)
        joined, ends = _join([record.text for record in records])
        times = np.array([record.time for record in records], np.int64)
        sources = [record.source for record in records] if fields.source_field is not None else []
        salts = _salts([record.within for record in records] if fields.match_within else [])
        ids = [record.id for record in records]
        return Columns(ids, joined, ends, times, self.rejected, sources, salts, self.deleted)

    def _slowly(self, i: int) -> Record:
        """Line i read by the one reader that decides what is refused, and why."""
        line_id = self.line_ids[i] if self.line_ids else None
        if i in self.rejected:
            return Record(line_id or b"null", "", NO_TIME)
        try:
            record = self._read(self.data[int(self.starts[i]) : int(self.ends[i])], line_id)
        except Refused as refused:
            self.rejected[i] = Rejection(refused.reason, refused.detail)
            return Record(line_id or refused.id, "", NO_TIME)
        if record.deleted:
            self.deleted.append(i)
        return record

    def _read(self, line: bytes, line_id: bytes | None) -> Record:
        if len(line) > self.fields.max_document_bytes:
            raise Refused("too_large", f"the line has {len(line)} bytes, more than {self.fields.max_document_bytes}")
        return self.fields.extract(read_object(line), line_id)


def _says_no(buffer: NDArray[np.uint8], spans: NDArray[np.int64], kinds: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Where a value is missing, false or null, by its first letter; an object or a list has no span."""
    begins, ends = spans[:, 0], spans[:, 1]
    letters = buffer[np.where(kinds == OTHER, begins, 0)] if len(buffer) else np.zeros(len(kinds), np.uint8)
    literal = (kinds == OTHER) & (ends > begins)
    no: NDArray[np.bool_] = (kinds == MISSING) | literal & ((letters == ord("f")) | (letters == ord("n")))
    return no


def _canonical(id: bytes) -> bytes:
    """The JSON text of a well-formed string id without needless escapes."""
    try:
        return orjson.dumps(orjson.loads(id))
    except orjson.JSONDecodeError:
        return json.dumps(json.loads(id)).encode("ascii")


def _salts(within: list[bytes]) -> NDArray[np.uint64]:
    """The salts of documents with these values to match within; none of none."""
    if not within:
        return np.empty(0, np.uint64)
    return murmur128(b"".join(within), np.cumsum(list(map(len, within)), dtype=np.int64))[:, 0].copy()


def _join(texts: list[str]) -> tuple[bytes, NDArray[np.int64]]:
    joined = "".join(texts)
    if joined.isascii():
        lengths = [len(text) for text in texts]
        return joined.encode("ascii"), np.cumsum(lengths, dtype=np.int64)
    encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
    return b"".join(encoded), np.cumsum([len(text) for text in encoded], dtype=np.int64)


def _insert(texts: bytes, ends: NDArray[np.int64], read: dict[int, bytes]) -> tuple[bytes, NDArray[np.int64]]:
    """Puts the texts of `read` in the places where `texts` has empty ones."""
    lengths = np.diff(ends, prepend=0)
    pieces: list[bytes] = []
    done = 0
    for i, text in sorted(read.items()):
        end = int(ends[i])
        pieces += (texts[done:end], text)
        lengths[i] = len(text)
        done = end
    pieces.append(texts[done:])
    return b"".join(pieces), np.cumsum(lengths)


def _milliseconds_of(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """`milliseconds` of many integers at once; NO_TIME where it would raise."""
    times = np.where(values >= MILLISECONDS_FROM, values, values * 1000)
    in_range = (values >= 0) & (values < LAST_TIME) & (times < LAST_TIME)
    return np.where(in_range, times, NO_TIME)
