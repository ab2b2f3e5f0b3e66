"""Pairs from a file: tab-separated `id id [jaccard]`, or JSON lines of lists or objects."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any

import numpy as np

from stream_lsh.documents.columns import Fields, Position
from stream_lsh.documents.fields import id_text
from stream_lsh.documents.refused import Refused
from stream_lsh.embedded.inputs import LineInput
from stream_lsh.errors import InputError
from stream_lsh.evaluation.exact import Pairs

COMPRESSED = (".gz", ".xz", ".zst")
JSON_SUFFIXES = (".jsonl", ".json", ".ndjson")
ID_KEYS = (("older", "newer"), ("a", "b"), ("first", "second"), ("left", "right"), ("id1", "id2"))
SIMILARITY_KEYS = ("jaccard", "similarity")


def read_pairs(name: str, ids: list[bytes]) -> tuple[Pairs, int]:
    """The pairs of a file (compressed by suffix) among the documents with these ids (JSON texts), and how many are left
    out because a document is missing. A similarity is NaN where the file gives none.

    An id that is text in the file also means the integer with these digits, and the other way round.

    Raises:
        InputError: naming file and line.
    """
    exact = {id: position for position, id in enumerate(ids)}
    loose = {str(json.loads(id)): position for position, id in enumerate(ids)}
    first, second, similarities = [], [], []
    unknown = 0
    for number, line in _lines(name):
        try:
            a, b, similarity = _parse(line, name)
            places = [exact.get(id_text(id), loose.get(str(id))) for id in (a, b)]
        except (ValueError, Refused) as error:
            raise InputError(f"{name}, line {number}: {error}.") from None
        if places[0] is None or places[1] is None:
            unknown += 1
            continue
        if places[0] == places[1]:
            raise InputError(f"{name}, line {number}: a pair must have two different documents.")
        first.append(places[0])
        second.append(places[1])
        similarities.append(similarity)
    return Pairs(np.array(first, np.int64), np.array(second, np.int64), np.array(similarities, np.float64)), unknown


def _lines(name: str) -> Iterator[tuple[int, bytes]]:
    source = LineInput(name, Fields())
    source.check()
    for lines in source.lines(Position()):
        spans = zip(lines.numbers.tolist(), lines.starts.tolist(), lines.ends.tolist(), strict=True)
        for place, (number, start, end) in enumerate(spans):
            if place in lines.rejected:
                raise InputError(f"{name}, line {number}: {lines.rejected[place].detail}.")
            yield number, lines.data[start:end]


def _parse(line: bytes, name: str) -> tuple[Any, Any, float]:
    """(id, id, similarity or NaN) of one line; ValueError says what is wrong with it."""
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"byte {error.start + 1} is not UTF-8") from None
    if _suffix(name) in JSON_SUFFIXES:
        return _parse_json(text)
    parts = text.rstrip("\r").split("\t")
    if len(parts) not in (2, 3) or not parts[0] or not parts[1]:
        raise ValueError(f"expected id, id and perhaps their similarity, separated by tabs, not {text[:80]!r}")
    return parts[0], parts[1], _similarity(parts[2] if len(parts) == 3 else None)


def _parse_json(text: str) -> tuple[Any, Any, float]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON ({error})") from None
    if isinstance(value, list) and len(value) in (2, 3):
        return value[0], value[1], _similarity(value[2] if len(value) == 3 else None)
    if isinstance(value, dict):
        for a, b in ID_KEYS:
            if a in value and b in value:
                given = next((value[key] for key in SIMILARITY_KEYS if key in value), None)
                return value[a], value[b], _similarity(given)
    keys = ", or ".join(f'"{a}" and "{b}"' for a, b in ID_KEYS)
    raise ValueError(f"expected a list of two ids (and a similarity) or an object with {keys}")


def _similarity(value: Any) -> float:
    """The similarity given, NaN for none."""
    if value is None:
        return math.nan
    try:
        similarity = float(value) if not isinstance(value, bool) else math.nan
    except (TypeError, ValueError):
        similarity = math.nan
    if not 0 <= similarity <= 1:
        raise ValueError(f"the similarity is {str(value)[:40]!r}, not a number from 0 to 1")
    return similarity


def _suffix(name: str) -> str:
    path = PurePath(name)
    return PurePath(path.stem).suffix.lower() if path.suffix.lower() in COMPRESSED else path.suffix.lower()
