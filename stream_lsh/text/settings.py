"""Settings that determine signatures, fully resolved: the only settings that signing uses."""

from __future__ import annotations

from dataclasses import dataclass

STEPS = ("lower", "space", "nfc", "ignorable", "punctuation", "markup", "nfkc")


@dataclass(frozen=True)
class SigningSettings:
    """How a text becomes shingles, a signature and band keys.

    Attributes:
        kind, k: "words" (k consecutive tokens), "chars" (k consecutive characters) or "set" (tokens separated by
            U+001F).
        continuous_k: characters that count as k words in scripts written without spaces (tokens "unicode" only).
        bag: repeated shingles count.
        lower, space, nfc, ignorable, punctuation, markup, nfkc: steps of the normalisation; `ignorable` removes
            characters that are invisible (Unicode's Default_Ignorable_Code_Point).
        tokens: "unicode" (letters with their marks, or a single Han or Thai character) or "word" (Python's `\\w+`).
        signature_size, bands, rows: K, b and r of MMDS 3.4; b * r <= K.
        measure, dimensions, max_distance: see `families.measure`. Documents that are not texts use these and K, b and r
            only.
        scope_bits: bits behind the K bits of a signature, zero without a scope; all keys include them.
        sampling: one shingle in so many is a key (`families.containment`); 0 = keys are bands.
        passage: least number of tokens of a passage in evidence.
    """

    kind: str
    k: int
    continuous_k: int
    bag: bool
    lower: bool
    space: bool
    nfc: bool
    ignorable: bool
    punctuation: bool
    markup: bool
    nfkc: bool
    tokens: str
    signature_size: int
    bands: int
    rows: int
    measure: str = "jaccard"
    dimensions: int = 0
    max_distance: float = 0.0
    scope_bits: int = 0
    sampling: int = 0
    passage: int = 0


def parse_shingles(shingles: str, set_field: str | None) -> tuple[str, int, int]:
    """`words:3`, `words:3/8`, `chars:9` -> kind, k, and k in scripts written without spaces (without /C: 8/3 of k)."""
    if set_field is not None:
        return "set", 1, 1
    kind, _, size = shingles.partition(":")
    k, _, continuous = size.partition("/")
    if kind not in ("words", "chars") or not k.isdecimal() or (continuous and not continuous.isdecimal()):
        raise ValueError(f"shingles: {shingles!r} is not words:K, words:K/C or chars:K (for example words:3)")
    # Measured on news-zh: about 8 characters of Chinese correspond to 3 words of English.
    result = kind, int(k), int(continuous) if continuous else max(1, (8 * int(k) + 1) // 3)
    if not (1 <= result[1] <= 64 and 1 <= result[2] <= 64):
        raise ValueError(f"shingles: {shingles!r} must have between 1 and 64 words or characters")
    return result


def parse_steps(normalize: str) -> list[str]:
    """`lower,space` -> the steps of the normalisation; `none` -> no step."""
    steps = [] if normalize.strip() in ("", "none") else [step.strip() for step in normalize.split(",")]
    for step in steps:
        if step not in STEPS:
            raise ValueError(f"normalize: {step!r} is none of {', '.join(STEPS)}, none")
    return steps
