"""Cursors of lists: opaque texts that name a place in a list, and belong to a request with the same parameters.

A cursor has the parameters as a hash, and numbers. It has no secret and no permission: a made-up cursor can only name
another place.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Sequence

from stream_lsh.serve.problems import Problem

MOST_CHARACTERS = 200
_LEAST, _MOST = -(2**62), 2**62  # far from the ends of int64, so that sums stay in it
_DIGITS = 12  # of the hash


def next_cursor(parameters: object, numbers: Sequence[int | None] | None) -> bytes:
    """The cursor with these numbers for requests with these parameters, which can be written as JSON. It is JSON: null
    without numbers, where a list ends."""
    if numbers is None:
        return b"null"
    said = json.dumps([_hash(parameters), *numbers], separators=(",", ":"))
    return b'"%b"' % base64.urlsafe_b64encode(said.encode()).rstrip(b"=")


def read_cursor(cursor: str, parameters: object, times: int, places: int) -> tuple[list[int | None], list[int]]:
    """The numbers in a cursor: some that may be missing, and then some from 0 on.

    Raises:
        Problem: it is no cursor, or belongs to other parameters.
    """
    try:
        if len(cursor) > MOST_CHARACTERS:
            raise ValueError
        said = json.loads(base64.b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4), b"-_", validate=True))
        if not isinstance(said, list) or len(said) != 1 + times + places:
            raise ValueError
        digest, *numbers = said
        if any(number is not None and (type(number) is not int or not _LEAST <= number <= _MOST) for number in numbers):
            raise ValueError
        if any(number is None or number < 0 for number in numbers[times:]):
            raise ValueError
    except (ValueError, binascii.Error, RecursionError):
        raise bad_cursor("it is no cursor of this list: take `next_cursor` of the answer before") from None
    if digest != _hash(parameters):
        raise bad_cursor("it is the cursor of a request with other parameters: repeat those of the first request")
    return numbers[:times], numbers[times:]


def bad_cursor(detail: str) -> Problem:
    """The problem for a cursor that cannot be used."""
    return Problem(400, f"cursor: {detail}", code="bad_cursor", field="cursor")


def _hash(parameters: object) -> str:
    return hashlib.sha256(json.dumps(parameters).encode()).hexdigest()[:_DIGITS]
