"""Why a document cannot be processed, and the JSON names of types."""

from __future__ import annotations

from collections.abc import Sequence


class Refused(Exception):
    """A document cannot be processed.

    Args:
        reason, detail: of its dead letter.
        id: as far as it is known.
        value: the value with the wrong type, where that is the reason.
    """

    def __init__(self, reason: str, detail: str, id: bytes = b"null", value: object = None) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail
        self.id = id
        self.value = value


def kind_of(value: object) -> str:
    """The JSON name of a value's type, with its article."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, str):
        return "a string"
    if isinstance(value, int):
        return "an integer"
    if isinstance(value, float):
        return "a number with a fraction"
    if isinstance(value, (bytes, bytearray)):
        return "bytes"
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, Sequence):
        return "a list"
    return f"of the type {type(value).__name__}"
