"""Reading of one JSON line by Python's own parser: slow, and the definition of what is accepted, with the reasons."""

from __future__ import annotations

import json
from typing import NoReturn

import numpy as np

from stream_lsh.documents.fields import MAX_ID_BYTES
from stream_lsh.documents.json_scan import nesting
from stream_lsh.documents.refused import Refused

MAX_NESTING = 256


def read_object(line: bytes) -> dict[str, object]:
    """The JSON object of a line (RFC 8259; lone surrogates may be escaped).

    Raises:
        Refused: not_utf8, not_json (also if it is no object, or brackets are nested deeper than MAX_NESTING) or
            duplicate_key.
    """
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Refused("not_utf8", f"byte {error.start + 1} is not UTF-8") from None
    # Not left to the parser's recursion limit, which depends on the version of Python and on the caller.
    if nesting(np.frombuffer(line, np.uint8)) > MAX_NESTING:
        raise Refused("not_json", f"brackets are nested deeper than {MAX_NESTING}")
    try:
        value = _DECODER.decode(text)
    except json.JSONDecodeError as error:
        what = error.msg.rstrip(": ").removesuffix(" at")
        raise Refused("not_json", f"{what} at character {error.pos + 1}") from None
    except ValueError as error:
        raise Refused("not_json", str(error)) from None
    if not isinstance(value, dict):
        raise Refused("not_json", "it is JSON, but not an object")
    return value


def read_part(part: bytes, name: str) -> dict[str, object]:
    """The same of JSON that stands in another place than a line. The messages begin with the name of that place."""
    try:
        return read_object(part)
    except Refused as error:
        raise Refused(error.reason, f"{name}: {error.detail}") from None


def _pairs(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise Refused("duplicate_key", f"the key {json.dumps(key)} is twice in one object")
            seen.add(key)
    return found


def _constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _integer(digits: str) -> int:
    # Python converts up to 4300 digits. No field can use a longer number, and its value does not matter.
    return int(digits[: MAX_ID_BYTES + 2])


_DECODER = json.JSONDecoder(object_pairs_hook=_pairs, parse_constant=_constant, parse_int=_integer)
