r"""The peers' shingles: 3 consecutive words, `\w+` on `str.lower`, as the truth files define them.

None of the peers has this tokenizer, so Python has to do it for them (gaoya's own is close: see bench/systems.py).
Two ways, with the same answer:

- `regex`: the definition, word for word.
- `ascii`: for texts of ASCII only, a translation of bytes and a split, five times as fast; others as above.
"""

from __future__ import annotations

import re
from collections.abc import Callable

WORDS = re.compile(r"\w+").findall
SIZE = 3

# Capitals are free once a text is in lower case: Z stands for _, which gaoya's own tokenizer would cut at.
UNDERSCORE = "Z"
_BLANKED = bytes(byte if byte < 128 and (chr(byte).isalnum() or byte == 95) else 32 for byte in range(256))
_BLANKED_Z = _BLANKED.replace(b"_", UNDERSCORE.encode())

Words = Callable[[str], list[str]]
Line = Callable[[str], str]


def words_regex(text: str) -> list[str]:
    """The words of a text."""
    return WORDS(text.lower())


def words_ascii(text: str) -> list[str]:
    """The words of a text, faster if it is ASCII."""
    lowered = text.lower()
    if lowered.isascii():
        return lowered.encode().translate(_BLANKED).decode().split()
    return WORDS(lowered)


def line_regex(text: str) -> str:
    """The words of a text with blanks between them and Z for _, for a tokenizer that cuts at blanks and punctuation."""
    return " ".join(WORDS(text.lower())).replace("_", UNDERSCORE)


def line_ascii(text: str) -> str:
    """The same, faster if the text is ASCII; there may be more than one blank between two words."""
    lowered = text.lower()
    if lowered.isascii():
        return lowered.encode().translate(_BLANKED_Z).decode()
    return " ".join(WORDS(lowered)).replace("_", UNDERSCORE)


TOKENIZERS: dict[str, tuple[Words, Line]] = {"regex": (words_regex, line_regex), "ascii": (words_ascii, line_ascii)}


def shingles(words: list[str]) -> list[str]:
    """The 3-word shingles, or all words as one if there are fewer. Repeated ones stay: a minhash does not mind."""
    if len(words) < SIZE:
        return [" ".join(words)]
    # An f-string is the fastest of the ways to join three strings.
    return [f"{a} {b} {c}" for a, b, c in zip(words, words[1:], words[2:], strict=False)]
