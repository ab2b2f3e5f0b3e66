"""Dead letters: documents that could not be processed, with the reason, the place in the input and the original
bytes."""

from __future__ import annotations

import base64
import codecs
import json

import orjson

KEPT_BYTES = 64 * 1024
"""Bytes of a line that is too large which are stored."""


def dead_letter(
    reason: str, detail: str, input: str, line: int, offset: int, raw: bytes, size: int | None = None
) -> bytes:
    """One JSON line, with its newline, for a document that cannot be processed.

    Args:
        raw: its bytes without the newline. Bytes that are not UTF-8 are in base64 under `original_base64`.
        size: its full size if `raw` is only its beginning; the letter then has `truncated` and `size`.
    """
    letter: dict[str, object] = {"reason": reason, "detail": detail, "input": input, "line": line, "offset": offset}
    try:
        # A character that was cut at the end is omitted.
        original, used = codecs.utf_8_decode(raw, "strict", size is None)
        letter["original"] = original
        if size is not None and used < len(raw) - 3:
            raise UnicodeError
    except UnicodeError:
        letter.pop("original", None)
        letter["original_base64"] = base64.b64encode(raw).decode("ascii")
    if size is not None:
        letter["truncated"] = True
        letter["size"] = size
    return json_line(letter) + b"\n"


def json_line(value: dict[str, object]) -> bytes:
    """An object as JSON. Lone surrogates, which a file name that is not UTF-8 has, are escaped."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return json.dumps(value, separators=(",", ":")).encode("ascii")
