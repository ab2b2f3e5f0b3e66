"""The rarely used steps before the kernels: HTML away, entities decoded, compatibility forms folded."""

from __future__ import annotations

import html
import re
import unicodedata

import numpy as np
from numpy.typing import NDArray

from stream_lsh.text.settings import SigningSettings

# What stands inside of a line and does not end a word.
_INLINE = frozenset((
    "a", "abbr", "acronym", "b", "bdi", "bdo", "big", "cite", "code", "del", "dfn", "em", "font", "i", "ins", "kbd",
    "mark", "q", "s", "samp", "small", "span", "strike", "strong", "sub", "sup", "tt", "u", "var", "wbr",
))  # fmt: skip
_RAW = ("script", "style")
_TAG = re.compile(r"</?([a-zA-Z][a-zA-Z0-9:-]*)|<[!?]")


def strip_markup(text: str) -> str:
    """The text without HTML tags, comments, scripts and styles, with entities decoded.

    Tags inside of a line vanish, all others leave a blank. A `<` that starts no tag stays. Never slower than linear.
    """
    parts: list[str] = []
    place = 0
    missing: set[str] = set()  # what is not found once is not looked for again

    def find(what: str, start: int) -> int:
        if what in missing:
            return -1
        found = folded.find(what, start)
        if found < 0:
            missing.add(what)
        return found

    folded = text.lower() if len(text.lower()) == len(text) else text
    while (match := _TAG.search(text, place)) is not None:
        start = match.start()
        parts.append(text[place:start])
        name = (match.group(1) or "").lower()
        close = "-->" if text.startswith("<!--", start) else ">"
        end = find(close, match.end())
        if end < 0:
            parts.append(text[start : match.end()])  # never closed: text like any other
            place = match.end()
            continue
        place = end + len(close)
        if name in _RAW and text[start + 1] != "/":
            stop = find(f"</{name}", place)
            place = len(text) if stop < 0 else stop
        if name not in _INLINE:
            parts.append(" ")
    parts.append(text[place:])
    return html.unescape("".join(parts))


def prepare(texts: bytes, ends: NDArray[np.int64], settings: SigningSettings) -> tuple[bytes, NDArray[np.int64]]:
    """Each document through `strip_markup` and NFKC, as the settings say; the same layout back.

    A set's elements (separated by U+001F) keep their separators.
    """
    out: list[bytes] = []
    start = 0
    for end in ends.tolist():
        text = texts[start:end].decode("utf-8", "surrogatepass")
        if settings.markup:
            text = "\x1f".join(map(strip_markup, text.split("\x1f"))) if settings.kind == "set" else strip_markup(text)
        if settings.nfkc:
            text = unicodedata.normalize("NFKC", text)
        out.append(text.encode("utf-8", "surrogatepass"))
        start = end
    return b"".join(out), np.cumsum([len(part) for part in out], dtype=np.int64)
