"""Signing in plain Python: slow, and obviously right. The kernels are tested against it."""

import re
import sys
import unicodedata
from collections.abc import Sequence
from functools import cache
from itertools import pairwise

import numpy as np

from stream_lsh.families.signer import Signed, Signer
from stream_lsh.text.settings import SigningSettings
from stream_lsh.text.unicode import CONTINUOUS, IGNORABLE, JOINER, MARK, PUNCTUATION, WORD, unicode_data
from support.models.minhash import as_bag, character_shingles, word_shingles
from support.unicode_table import flags_of

CLASSES = ((CONTINUOUS, "c"), (WORD, "w"), (MARK, "m"), (JOINER, "j"))
TOKEN = re.compile("w(?:[wm]|j+(?=[wm]))*|c(?:m|j+(?=m))*")


def make_settings(kind: str = "words", k: int = 3, **changes: object) -> SigningSettings:
    values: dict[str, object] = {
        "kind": kind, "k": k, "continuous_k": 8, "bag": False, "lower": True, "space": True, "punctuation": False,
        "nfc": False, "ignorable": False,
        "markup": False, "nfkc": False, "tokens": "unicode", "signature_size": 128, "bands": 18, "rows": 5,
    }  # fmt: skip
    return SigningSettings(**(values | changes))  # type: ignore[arg-type]


def pack(texts: Sequence[str]) -> tuple[bytes, np.ndarray]:
    data = [text.encode("utf-8", "surrogatepass") for text in texts]
    return b"".join(data), np.cumsum([len(part) for part in data], dtype=np.int64)


def sign(texts: Sequence[str], settings: SigningSettings) -> Signed:
    return Signer(settings).sign(*pack(texts), want_shingles=True)


def shingle_hashes(signed: Signed) -> list[list[int]]:
    ends = signed.offsets.tolist()
    return [signed.shingles[start:end].tolist() for start, end in pairwise(ends)]


@cache
def char_class(char: str) -> str:
    """w: letter, digit or underscore; c: letter of a script without spaces; m: mark; j: joiner; o: anything else."""
    flags = flags_of(char)
    return next((name for flag, name in CLASSES if flags & flag), "o")


@cache
def ignorable() -> bytes:
    """For each code point whether it is default-ignorable."""
    data = unicode_data()
    return (data.flags[data.records_of(np.arange(sys.maxunicode + 1))] & IGNORABLE != 0).tobytes()


def is_ignorable(char: str) -> bool:
    return ignorable()[ord(char)] != 0


def normalise(text: str, settings: SigningSettings) -> str:
    if settings.ignorable:
        text = "".join(char for char in text if not is_ignorable(char))
    if settings.nfc:
        text = unicodedata.normalize("NFC", text)
    return normalise_spelling(text, settings)


def normalise_spelling(text: str, settings: SigningSettings) -> str:
    if settings.kind == "set" and "\x1f" in text:
        return "\x1f".join(normalise_spelling(part, settings) for part in text.split("\x1f"))
    dropped = [settings.punctuation and flags_of(char) & PUNCTUATION != 0 for char in text]
    pieces = lower_each(text) if settings.lower else list(text)
    text = "".join(" " if drop else piece for drop, piece in zip(dropped, pieces, strict=True))
    if settings.space:
        text = " ".join(text.split())
    return text


def lower_each(text: str) -> list[str]:
    """What each character is in `text.lower()`: the whole decides on final sigmas."""
    lowered, place, pieces = text.lower(), 0, []
    for char in text:
        size = len(char.lower())
        pieces.append(lowered[place : place + size])
        place += size
    assert place == len(lowered)
    return pieces


def tokens(text: str, settings: SigningSettings) -> list[tuple[str, bool]]:
    """Tokens of a normalised text, each with whether it is a character of a script without spaces."""
    if settings.tokens == "word":
        return [(token, False) for token in re.findall(r"\w+", text)]
    classes = "".join(map(char_class, text))
    return [(text[m.start() : m.end()], m.group()[0] == "c") for m in TOKEN.finditer(classes)]


def shingles(text: str, settings: SigningSettings) -> set[object]:
    """The distinct shingles of a text (elements of the bag: shingle and number of occurrence)."""
    normal = normalise(text, settings)
    found: list[tuple[str, ...]] = []
    if settings.kind == "set":
        found = [(element,) for element in normal.split("\x1f") if element]
    elif settings.kind == "chars":
        if normal.strip():
            found = [(shingle,) for shingle in character_shingles(normal, settings.k)]
    elif words := tokens(normal, settings):
        if any(continuous for _, continuous in words):
            found = weighted_shingles(words, settings) or [tuple(word for word, _ in words)]
        else:
            found = word_shingles([word for word, _ in words], settings.k)
    elif normal.strip():
        found = [("", normal)]
    return as_bag(found) if settings.bag else set(found)


def weighted_shingles(words: list[tuple[str, bool]], settings: SigningSettings) -> list[tuple[str, ...]]:
    result = []
    for start in range(len(words)):
        weight = 0
        for end in range(start, len(words)):
            weight += settings.k if words[end][1] else settings.continuous_k
            if weight >= settings.k * settings.continuous_k:
                result.append(tuple(word for word, _ in words[start : end + 1]))
                break
    return result
