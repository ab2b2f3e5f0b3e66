"""A document of a Python program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stream_lsh.documents.fields import Fields, Record, check_ink, id_text, set_text, within_text
from stream_lsh.documents.python_values import elements_of, unboxed
from stream_lsh.documents.ranks import LOWEST, rank_of
from stream_lsh.documents.refused import Refused, kind_of
from stream_lsh.documents.times import NO_TIME, milliseconds

Time = int | float | str | date | datetime | np.datetime64
Vector = Sequence[float] | NDArray[Any] | str


@dataclass(frozen=True, slots=True)
class Document:
    """A document: its id, and its text, set, vector or bits.

    NumPy values count like Python values. A value of a wrong type raises when you make the document; an element of a
    set or vector raises when the document is processed. A value of the right type that cannot be used, such as an empty
    text, raises nothing: the verdict is `rejected`, and its `detail` says why. A string with a lone surrogate is such a
    value, in a mapping, a column and a JSON line, too. Only a deletion may have one in its id.

    Attributes:
        id: a string, or an integer of any size. `1` and `"1"` are two ids.
        text: the text, unless the index compares sets, vectors or bits.
        set: with the setting `set_field`, the elements: strings or integers, as a list, a set or an array. With
            `measure = "weighted-jaccard"` also a mapping of weights by element.
        time: event time. A number of seconds since 1970, or of milliseconds from 1e11 on; an ISO 8601 string; a `date`,
            `datetime` or `datetime64`. A time without a zone is UTC.
        within: with the setting `match_within`, the value of each of its fields: a string, an integer, a boolean or
            None.
        deleted: true deletes the document with this id. Then only `id` and `time` are needed.
        vector: with `measure = "cosine"` or `"euclidean"`, its numbers, as a list or an array, or their float32 in
            base64.
        bits: with `measure = "hamming"`, hexadecimal, base64, bytes or an integer.
        source: its source, such as an outlet. Groups count their sources.
        rank: with `keep = "best"`, a number of which the highest is best, or a value of `rank_order`.

    Raises:
        TypeError: a value has a type that it cannot have.

    Examples:
        >>> Document("a1", "The council has voted for the new bridge over the river.")  # doctest: +ELLIPSIS
        Document(id='a1', text='The council has voted for the new bridge over the river.', ...)
        >>> Document(1.5, "The council has voted for the new bridge over the river.")
        Traceback (most recent call last):
        TypeError: the id is a floating-point number, not a string or an integer
    """

    id: str | int
    text: str | None = None
    set: Sequence[str | int] | Set[str | int] | Mapping[str, float] | NDArray[Any] | None = None
    time: Time | None = None
    within: Mapping[str, str | int | None] | None = None
    deleted: bool = False
    vector: Vector | None = None
    bits: str | bytes | int | None = None
    source: str | int | None = None
    rank: float | str | None = None

    def __post_init__(self) -> None:
        if type(self.id) is not str and type(self.id) is not int:
            object.__setattr__(self, "id", plain_id(self.id))
        if type(self.text) is not str:
            _check("text", self.text, isinstance(self.text, str), "a string")
        if type(self.deleted) is not bool:
            _check("deleted", self.deleted, isinstance(unboxed(self.deleted), bool), "a boolean")
            object.__setattr__(self, "deleted", bool(self.deleted))
        for name, allowed, wanted in _CHECKED:
            value = getattr(self, name)
            if value is not None:
                _check(name, value, allowed(value), wanted)


def plain_id(value: object) -> str | int:
    """An id as a plain string or integer.

    Raises:
        TypeError: it is neither.
    """
    if isinstance(value, str):
        return str.__str__(value)  # members of an enumeration print their names
    plain = unboxed(value)
    if isinstance(plain, int) and not isinstance(plain, bool):
        return int(plain)
    if isinstance(plain, str):
        return plain
    raise TypeError(f"the id is {kind_of(plain)}, not a string or an integer")


def _check(name: str, value: object, allowed: bool, wanted: str) -> None:
    if not allowed and value is not None:
        raise TypeError(f"the {'bit vector' if name == 'bits' else name} is {kind_of(value)}, not {wanted}")


def _is(value: object, *kinds: type) -> bool:
    plain = unboxed(value)
    return isinstance(plain, kinds) and not isinstance(plain, bool)


def _is_time(value: object) -> bool:
    return _is(value, int, float, str, date) or type(unboxed(value)).__name__ == "datetime64"


def _is_vector(value: object) -> bool:
    return isinstance(value, str) or (elements_of(value) is not None and not isinstance(value, Set))


_CHECKED = (
    ("set", lambda value: isinstance(value, Mapping) or elements_of(value) is not None, "a list, a set or a mapping"),
    ("time", _is_time, "a number, an ISO 8601 string, a datetime or a datetime64"),
    ("within", lambda value: isinstance(value, Mapping), "a mapping of values by field"),
    ("vector", _is_vector, "a list of numbers or their base64"),
    ("bits", lambda value: _is(value, str, bytes, bytearray, int), "hexadecimal, base64, bytes or an integer"),
    ("source", lambda value: _is(value, str, int), "a string or an integer"),
    ("rank", lambda value: isinstance(unboxed(value), (int, float, str)), "a number or a string"),
)
"""Optional attributes: the check of their values, and the name of these for messages."""


def record_of(document: Document, fields: Fields) -> Record:
    """The parts of a document, for an index with these fields.

    Raises:
        Refused: it cannot be processed.
    """
    id = id_text(document.id)
    text = "" if document.deleted else _text(document, fields, id)
    time = NO_TIME
    if document.time is not None:
        try:
            time = milliseconds(document.time)
        except ValueError as error:
            raise Refused("bad_time", str(error), id) from None
    source = b"" if document.source is None else fields.source_text(document.source)
    within = b"" if document.deleted else _within(document, fields.match_within, id)
    rank = LOWEST if fields.rank_field is None else rank_of(document.rank, fields.rank_order)
    return Record(id, text, time, source, within, document.deleted, rank)


def _text(document: Document, fields: Fields, id: bytes) -> str:
    item = fields.item
    kind = item.kind if item is not None else "set" if fields.set_field is not None else "text"
    value: object = getattr(document, kind)
    if value is None:
        raise Refused("missing_field", f"the document has no {kind}", id)
    if item is not None:
        return item.text(value, item.single, id)
    if kind == "set":
        return set_text(value, "the set", id)
    assert isinstance(value, str)
    check_ink(value, id)
    return value


def _within(document: Document, match_within: Sequence[str], id: bytes) -> bytes:
    """The values of the fields of `match_within`. None is a value, and must be given."""
    given = document.within or {}
    for name in match_within:
        if name not in given:
            raise Refused(
                "missing_field", f"`within` has no {name!r}, which documents match within (it may be None)", id
            )
    return within_text({name: given[name] for name in match_within}, id)
