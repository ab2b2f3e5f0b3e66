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
    return next((name for kind, name in _KINDS if isinstance(value, kind)), f"a value of type {type(value).__name__}")


_KINDS: tuple[tuple[type | tuple[type, ...], str], ...] = (
    (type(None), "null"), (bool, "a boolean"), (str, "a string"), (int, "an integer"),
    (float, "a floating-point number"), ((bytes, bytearray, memoryview), "bytes"), (dict, "an object"),
    (Sequence, "a list"),
)  # fmt: skip
