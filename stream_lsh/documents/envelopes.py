"""Envelopes around documents: Debezium's change events and CloudEvents. Each becomes the JSON object inside it.

The kernels of `json_scan` find the object in its place, without a copy and without Python objects. What they leave, and
every event that is no plain document, is read by Python's parser, which alone decides why an event is rejected.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import orjson
from numpy.typing import NDArray

from stream_lsh.documents.columns import Rejection
from stream_lsh.documents.engine_errors import rejection_of
from stream_lsh.documents.fields import LINE_ID, Fields, value_at
from stream_lsh.documents.json_reader import read_object, read_part
from stream_lsh.documents.json_scan import ACCEPTED, MISSING, OTHER, PLAIN, scan_lines
from stream_lsh.documents.refused import Refused, kind_of

DELETED = "@deleted"
"""Marks a deletion in what this module passes on, if the settings have no `deleted_field`."""
ATTRIBUTE = "ce_"
"""Begins the names of the fields that are attributes of a CloudEvent, as in the headers of Kafka."""
REQUIRED = "specversion", "id", "source", "type"
ABSENT, _JSON = b"\0absent", b"application/json"
_HEADERS = "ce_id", "ce_specversion", "content-type", "ce_source", "ce_type"
_DEFAULTS = None, None, _JSON, None, None
STRUCTURED, BATCH = b"application/cloudevents+json", b"application/cloudevents-batch"
BAD_EVENT = "bad_event"

Headers = Sequence[tuple[str, bytes | None]]
Ints = NDArray[np.int64]


class Inside(NamedTuple):
    """Documents, taken out of their envelopes: data[starts[i]:ends[i]], each one JSON object with these fields."""

    data: bytes
    starts: Ints
    ends: Ints
    fields: Fields


def unwrapped(
    data: bytes, starts: Ints, ends: Ints, fields: Fields, rejected: dict[int, Rejection],
    key: Callable[[int], bytes | None], headers: Sequence[Headers] = (),
) -> Inside:  # fmt: skip
    """The documents in the events data[starts[i]:ends[i]].

    Args:
        fields: with an envelope.
        rejected: events that are rejected already, by place, and not read. Those that are no such event are added.
        key, headers: of the records, on Kafka; `key` gets the place of a record.
    """
    debezium = fields.envelope == "debezium"
    inner = replace(fields, envelope=None)
    if debezium and fields.deleted_field is None:
        inner = replace(inner, deleted_field=DELETED)
    starts, ends = starts.copy(), ends.copy()
    ends[list(rejected)] = starts[list(rejected)]
    events = _Events(data, starts, ends, key, headers, inner, _attributes(fields))
    read, made = (events.changes(), dict[int, bytes]()) if debezium else events.cloud_events()
    for i in np.flatnonzero(~read).tolist():
        if i in rejected:
            continue
        try:
            made[i] = events.change(i) if debezium else events.cloud_event(i)
            starts[i] = ends[i] - 1  # nothing of the event follows
        except Exception as error:
            rejected[i] = rejection_of(error)
    if not made:
        return Inside(data, starts, ends, inner)
    places, view = [*made], memoryview(data)
    rests = [view[a:b] for a, b in zip((starts[places] + 1).tolist(), ends[places].tolist(), strict=True)]
    lengths = np.fromiter(map(len, made.values()), np.int64, len(made)) + ends[places] - starts[places] - 1
    data = data if len(made) + len(rejected) < len(starts) else b""  # no document is in its place
    ends[places] = len(data) + np.cumsum(lengths)
    starts[places] = ends[places] - lengths
    pieces: list[bytes | memoryview] = [data]
    for pair in zip(made.values(), rests, strict=True):
        pieces += pair
    return Inside(b"".join(pieces), starts, ends, inner)


def _attributes(fields: Fields) -> tuple[str, ...]:
    """The attributes of CloudEvents that are fields of the document."""
    named = (
        fields.id_field, fields.time_field, fields.source_field, fields.deleted_field, fields.set_field,
        fields.item and fields.item.name, *fields.text_fields, *fields.match_within,
    )  # fmt: skip
    return tuple(sorted({name for name in named if name and name.startswith(ATTRIBUTE)}))


class _Events(NamedTuple):
    """One call of `unwrapped`. Each method that reads all events moves `starts` and `ends` to the documents that it has
    found, and returns bool[n], which they are. attributes: fields that are attributes of the event."""

    data: bytes
    starts: Ints
    ends: Ints
    key: Callable[[int], bytes | None]
    headers: Sequence[Headers]
    fields: Fields
    attributes: tuple[str, ...]

    # -- Debezium ---------------------------------------------------------------------------------------------------

    def changes(self) -> NDArray[np.bool_]:
        """Rows that were created, read or updated."""
        names = "payload", "op", "after"
        found = _Scan.of(self.data, self.starts, self.ends, names)
        wrapped = np.flatnonzero(found.objects(0) & (found.kinds[:, 1] == MISSING))
        if len(wrapped):
            begins, ends = found.spans[wrapped, 0, 0], found.spans[wrapped, 0, 1]
            inner = _Scan.of(self.data, begins, ends, names)
            found.status[wrapped], found.kinds[wrapped], found.spans[wrapped] = inner.status, inner.kinds, inner.spans
        begins = found.spans[:, 1, 0]
        operation = (found.kinds[:, 1] == PLAIN) & (found.spans[:, 1, 1] - begins == 3)
        letters = found.buffer[np.where(operation, begins + 1, 0)] if len(found.buffer) else np.zeros(len(begins))
        read: NDArray[np.bool_] = operation & np.isin(letters, np.frombuffer(b"cru", np.uint8)) & found.objects(2)
        self._move(read, found.spans[read, 2])
        return read

    def change(self, i: int) -> bytes:
        """The document of change event i. Raises Refused."""
        event = _payload(read_object(self._line(i)), "op")
        operation, after = event.get("op"), event.get("after")
        if operation == "d":
            return self._deletion(i, event)
        if operation not in ("c", "r", "u"):
            what = "has no op" if "op" not in event else f"has the op {json.dumps(operation)[:60]}"
            raise Refused(BAD_EVENT, f"the event {what}; Debezium's c, r, u and d are read")
        if isinstance(after, str):  # a connector of MongoDB: the row is JSON in a string
            after = read_part(after.encode("utf-8", "surrogatepass"), 'the field "after"')
        if not isinstance(after, dict):
            what = kind_of(after) if "after" in event else "missing"
            raise Refused(BAD_EVENT, f'the field "after" is {what}, not an object, in an event with op = {operation}')
        return _json(after)

    def _deletion(self, i: int, event: dict[str, object]) -> bytes:
        """A document that deletes its id, and has no other field."""
        field, deletion = self.fields.id_field, {str(self.fields.deleted_field): True}
        if field == LINE_ID:  # the caller has the id
            return _json(deletion)
        before = event.get("before")
        id = value_at(before, field) if isinstance(before, dict) else None
        if id is None and (key := self.key(i)):
            id = value_at(_payload(read_part(key, "the key")), field)
        if id is None:
            raise Refused("missing_field", f'neither the field "before" nor the key has the field {json.dumps(field)}')
        return _json({field: id, **deletion})

    # -- CloudEvents ------------------------------------------------------------------------------------------------

    def cloud_events(self) -> tuple[NDArray[np.bool_], dict[int, bytes]]:
        """Events in binary mode, and objects as `data` of events in structured mode. Also what takes the place of the
        first bracket of those documents that have attributes of these events as fields, by place."""
        read, heads = np.zeros(len(self.starts), bool), dict[int, bytes]()
        attributes = {name: name[len(ATTRIBUTE) :] for name in self.attributes}
        some = np.arange(len(read))  # may be in structured mode
        if self.headers:
            firsts = np.frombuffer(self.data + b" ", np.uint8)[self.starts].tolist()
            wanted, default = (*_HEADERS, *attributes), (*_DEFAULTS, *[ABSENT] * len(attributes))
            known = dict[tuple[bytes | None, ...], bytes | None]()
            for i, headers in enumerate(self.headers):
                if firsts[i] == ord("{") and headers:
                    id, *given = map(dict(headers).get, wanted, default)
                    if (values := tuple(given)) not in known:
                        known[values] = _head(values, self.attributes)
                    head = known[values]
                    if head is not None and id and id.isascii():
                        read[i] = True
                        if head:
                            heads[i] = head
            some = np.flatnonzero([not headers for headers in self.headers])
        names = [*dict.fromkeys((*REQUIRED, "data", "data_base64", *attributes.values()))]
        found = _Scan.of(self.data, self.starts[some], self.ends[some], names)
        named = found.spans[:, :4]
        inside = found.objects(4) & (found.kinds[:, 5] == MISSING) & found.equal(0, b'"1.0"')
        inside &= np.all((found.kinds[:, :4] == PLAIN) & (named[..., 1] - named[..., 0] > 2), axis=1)
        read[some] = inside
        self._move(some[inside], found.spans[inside, 4])
        for name, attribute in attributes.items():
            place = names.index(attribute)
            for row in np.flatnonzero(inside & (found.kinds[:, place] != MISSING)).tolist():
                (begin, end), i = found.spans[row, place].tolist(), int(some[row])
                before = heads[i] + b"," if i in heads else b"{"
                heads[i] = b"%b%b:%b" % (before, _json(name), self.data[begin:end])
        begins, ends, data = (self.starts + 1).tolist(), self.ends.tolist(), self.data
        plain = (np.frombuffer(data + b"  ", np.uint8)[self.starts + 1] == ord('"')).tolist()
        return read, {
            i: b"%b," % head if plain[i] else head + _comma(data[begins[i] : ends[i]]) for i, head in heads.items()
        }

    def cloud_event(self, i: int) -> bytes:
        """The document of CloudEvent i, with the attributes that are fields. Raises Refused."""
        given = dict(self.headers[i]) if self.headers else {}
        content = (given.get("content-type") or b"").strip().lower()
        if content.startswith(BATCH):
            raise Refused(BAD_EVENT, "the record is a batch of CloudEvents, which Kafka's binding does not have")
        line = self._line(i)
        if f"{ATTRIBUTE}specversion" in given and not content.startswith(STRUCTURED):
            event: dict[str, Any] = {
                name[len(ATTRIBUTE) :]: _text(name, given[name]) for name in given if name.startswith(ATTRIBUTE)
            }
            _check(event)
            if content and not _is_json(content.decode("latin-1")):
                return self._document(event, _text("value", line))
            if line.lstrip()[:1] == b"{" and line.rstrip()[-1:] == b"}":  # not parsed here: the caller does
                return self._spliced(event, line.strip())
            raise Refused("not_json", "the value of a CloudEvent in binary mode is no JSON object")
        event = read_object(line)
        _check(event)
        return self._document(event, _data(event))

    def _document(self, event: Mapping[str, Any], data: object) -> bytes:
        if isinstance(data, str):
            data = {"data": data}
        if not isinstance(data, dict):
            what = kind_of(data) if data is not None else "missing"
            raise Refused(BAD_EVENT, f"the event's data is {what}, not an object or a string")
        return self._spliced(event, _json(data))

    def _spliced(self, event: Mapping[str, Any], document: bytes) -> bytes:
        """An object, with the attributes that are fields before its own fields."""
        chosen = {name: event[name[len(ATTRIBUTE) :]] for name in self.attributes if name[len(ATTRIBUTE) :] in event}
        rest = document[1:]
        return b"".join((_json(chosen)[:-1], _comma(rest), rest)) if chosen else document

    def _line(self, i: int) -> bytes:
        return self.data[int(self.starts[i]) : int(self.ends[i])]

    def _move(self, events: NDArray[Any], spans: Ints) -> None:
        self.starts[events], self.ends[events] = spans[:, 0], spans[:, 1]


class _Scan(NamedTuple):
    """What `scan_lines` has found. What it has left has no value."""

    buffer: NDArray[np.uint8]
    spans: Ints
    kinds: NDArray[np.uint8]
    status: NDArray[np.uint8]

    @classmethod
    def of(cls, data: bytes, starts: Ints, ends: Ints, names: Sequence[str]) -> _Scan:
        n, width = len(starts), len(names)
        found = cls(
            np.frombuffer(data, np.uint8), np.zeros((n, width, 2), np.int64), np.empty((n, width), np.uint8),
            np.empty(n, np.uint8),
        )  # fmt: skip
        encoded = [name.encode("utf-8", "surrogatepass") for name in names]
        joined = np.frombuffer(b"".join(encoded), np.uint8)
        name_ends = np.cumsum(list(map(len, encoded)), dtype=np.int64)
        scan_lines(found.buffer, starts, ends, joined, name_ends, found.spans, found.kinds, found.status)
        found.kinds[found.status != ACCEPTED] = MISSING
        return found

    def objects(self, place: int) -> NDArray[np.bool_]:
        """bool[n]: whether the value of the field at this place is an object."""
        found: NDArray[np.bool_] = self.kinds[:, place] == OTHER
        if len(self.buffer):
            found &= self.buffer[np.where(found, self.spans[:, place, 0], 0)] == ord("{")
        return found

    def equal(self, place: int, text: bytes) -> NDArray[np.bool_]:
        """bool[n]: whether the value of the field at this place is this text."""
        begins, ends = self.spans[:, place].T
        found: NDArray[np.bool_] = (self.kinds[:, place] == PLAIN) & (ends - begins == len(text))
        there = self.buffer[begins[found, None] + np.arange(len(text))]
        found[found] = np.all(there == np.frombuffer(text, np.uint8), axis=1)
        return found


def _comma(rest: bytes) -> bytes:
    """What parts members from those of an object. rest: the object without its first bracket."""
    return b"" if rest.strip() == b"}" else b","


def _head(values: Sequence[bytes | None], attributes: Sequence[str]) -> bytes | None:
    """What begins the document of an event in binary mode whose id is ASCII: b"", or a bracket and the attributes that
    are fields. values: its other headers. None: the value may be no document, or Python's parser has to decide."""
    (version, content, *needed), chosen = values[:4], values[4:]
    if version != b"1.0" or content != _JSON or not all(needed):
        return None
    given = {name: value or b"" for name, value in zip(attributes, chosen, strict=True) if value is not ABSENT}
    if not b"".join([*needed, *given.values()]).isascii():  # type: ignore[list-item]
        return None
    return orjson.dumps({name: value.decode() for name, value in given.items()})[:-1] if given else b""


def _payload(event: dict[str, object], own: str | None = None) -> dict[str, object]:
    """An object that Kafka Connect has written, without its schema. own: a field by which it has none."""
    payload = event.get("payload")
    wrapped = isinstance(payload, dict) and (own not in event if own is not None else "schema" in event)
    return payload if wrapped and isinstance(payload, dict) else event


def _check(event: Mapping[str, Any]) -> None:
    """Raise Refused if an event lacks an attribute that CloudEvents 1.0 demands."""
    for name in REQUIRED:
        value = event.get(name)
        if not isinstance(value, str) or not value:
            what = kind_of(value) if name in event and value != "" else "missing"
            raise Refused(BAD_EVENT, f"the attribute {name} of the CloudEvent is {what}")
    if event["specversion"] != "1.0":
        raise Refused(BAD_EVENT, f"the CloudEvent has specversion {event['specversion'][:60]!r}, not 1.0")


def _data(event: Mapping[str, Any]) -> object:
    """The data of an event in structured mode. Raises Refused."""
    if "data_base64" not in event:
        return event.get("data")
    try:
        raw = base64.b64decode(event["data_base64"], validate=True)
    except (TypeError, ValueError):
        raise Refused(BAD_EVENT, "the field data_base64 is no base64") from None
    kind = event.get("datacontenttype")
    return read_part(raw, "the field data_base64") if kind is None or _is_json(str(kind)) else _text("data_base64", raw)


def _is_json(content: str) -> bool:
    kind = content.split(";")[0].strip().lower()
    return kind.endswith(("/json", "+json"))


def _text(name: str, value: bytes | None) -> str:
    try:
        return (value or b"").decode()
    except UnicodeDecodeError as error:
        raise Refused("not_utf8", f"byte {error.start + 1} of {name} is not UTF-8") from None


def _json(value: object) -> bytes:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    try:
        return text.encode()
    except UnicodeEncodeError:  # a lone surrogate
        return json.dumps(value, separators=(",", ":")).encode("ascii")
