"""What fixes the signature of a text, fully resolved: the only settings that the signing core sees."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SigningSettings:
    """How a text becomes shingles, a signature and band keys.

    kind: "words" (k consecutive tokens), "chars" (k consecutive characters) or "set" (tokens separated by U+001F).
    continuous_k: what k words weigh in characters of scripts written without spaces (tokens "unicode" only).
    bag: count repeated shingles; lower, space, punctuation, markup, nfkc: steps of the normalisation.
    tokens: "unicode" (letters with their marks, a Han or Thai character each) or "word" (Python's `\\w+`).
    signature_size, bands, rows: K, b and r of MMDS 3.4; b * r <= K.
    """

    kind: str
    k: int
    continuous_k: int
    bag: bool
    lower: bool
    space: bool
    punctuation: bool
    markup: bool
    nfkc: bool
    tokens: str
    signature_size: int
    bands: int
    rows: int
