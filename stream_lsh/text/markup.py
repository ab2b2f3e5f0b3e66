"""Removes HTML and decodes its entities."""

from __future__ import annotations

import html
import re

import numpy as np
from numpy.typing import NDArray

# Tags within a line, which do not end a word.
_INLINE = frozenset((
    "a", "abbr", "acronym", "b", "bdi", "bdo", "big", "cite", "code", "del", "dfn", "em", "font", "i", "ins", "kbd",
    "mark", "q", "s", "samp", "small", "span", "strike", "strong", "sub", "sup", "tt", "u", "var", "wbr",
))  # fmt: skip
_TAG = re.compile(r"</?([a-zA-Z][a-zA-Z0-9:-]*)|<[!?]")
# ASCII letters only: other lower cases of "s" depend on the version of Unicode.
_RAW = {name: re.compile(f"</{name}", re.IGNORECASE | re.ASCII) for name in ("script", "style")}
_CLOSE, _COMMENT_CLOSE = re.compile(">"), re.compile("-->")
_MANY_DIGITS = re.compile("&#([0-9]{8,})")  # more than a code point has; Python refuses several thousand


def strip_markup(text: str) -> str:
    """The text without HTML tags, comments, scripts and styles, with entities decoded.

    Tags within a line are removed, all others become a blank. A `<` that begins no tag is kept. The time is linear.
    """
    parts: list[str] = []
    place = 0
    missing: set[re.Pattern[str]] = set()  # patterns that were not found once are not searched again

    def find(what: re.Pattern[str], start: int) -> re.Match[str] | None:
        if what in missing:
            return None
        found = what.search(text, start)
        if found is None:
            missing.add(what)
        return found

    while (match := _TAG.search(text, place)) is not None:
        start = match.start()
        parts.append(text[place:start])
        name = (match.group(1) or "").lower()
        end = find(_COMMENT_CLOSE if text.startswith("<!--", start) else _CLOSE, match.end())
        if end is None:
            parts.append(text[start : match.end()])  # never closed: ordinary text
            place = match.end()
            continue
        place = end.end()
        if name in _RAW and text[start + 1] != "/":
            stop = find(_RAW[name], place)
            place = len(text) if stop is None else stop.start()
        if name not in _INLINE:
            parts.append(" ")
    parts.append(text[place:])
    return decode_entities("".join(parts))


def decode_entities(text: str) -> str:
    """The text with HTML's character references replaced, as the standard says; never an error."""
    return html.unescape(_MANY_DIGITS.sub(_few_digits, text) if "&#" in text else text)


def _few_digits(reference: re.Match[str]) -> str:
    digits = reference.group(1).lstrip("0") or "0"
    return "&#" + (digits if len(digits) < 8 else "9999999")  # beyond all code points: U+FFFD


def strip_documents(texts: bytes, ends: NDArray[np.int64], *, elements: bool) -> tuple[bytes, NDArray[np.int64]]:
    """Apply `strip_markup` to each document. Same layout.

    elements: the documents are sets, whose elements keep their separators (U+001F).
    """
    out: list[bytes] = []
    start = 0
    for end in ends.tolist():
        text = texts[start:end].decode("utf-8", "surrogatepass")
        text = "\x1f".join(map(strip_markup, text.split("\x1f"))) if elements else strip_markup(text)
        out.append(text.encode("utf-8", "surrogatepass"))
        start = end
    return b"".join(out), np.cumsum([len(part) for part in out], dtype=np.int64)
