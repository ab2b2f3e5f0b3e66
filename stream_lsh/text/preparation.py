"""All steps before the first pass over texts."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream_lsh.hashing.kernels import njit
from stream_lsh.text.casing import rewrite_rare
from stream_lsh.text.forms import unified
from stream_lsh.text.markup import strip_documents
from stream_lsh.text.settings import SigningSettings

LONGEST = 1 << 30
"""Most bytes of a document: places in its normalised form, which may be half as long again, have 31 bits."""


class Prepared(NamedTuple):
    """Documents in UTF-8, concatenated, where each ends, and the bytes of the longest. With capitals, the rare ones of
    them are not rewritten."""

    text: NDArray[np.uint8]
    ends: NDArray[np.int64]
    longest: int
    with_capitals: NDArray[np.uint8]
    with_capitals_ends: NDArray[np.int64]


@njit
def _longest(ends):  # type: ignore[no-untyped-def]
    """The bytes of the longest document of those that end at `ends`; -1 if these decrease. NumPy takes as long for one
    document as for a thousand."""
    longest, start = np.int64(0), np.int64(0)
    for end in ends:
        if end < start:
            return np.int64(-1)
        longest = max(longest, end - start)
        start = end
    return longest


def prepared(texts: bytes, ends: NDArray[np.int64], settings: SigningSettings) -> Prepared:
    """Documents after the steps before the first pass: markup, invisible characters, NFC or NFKC, rare lower case.

    Raises:
        ValueError: `ends` decreases or is outside `texts`, or a document is longer than LONGEST.
    """
    text, ends = np.frombuffer(texts, dtype=np.uint8), np.ascontiguousarray(ends, dtype=np.int64)
    given, longest = text, _longest(ends)
    if longest < 0 or (len(ends) and ends[-1] > len(text)):
        raise ValueError(f"ends must rise from 0 to at most {len(text)}, the length of the texts")
    if settings.markup:
        texts, ends = strip_documents(texts, ends, elements=settings.kind == "set")
        text = np.frombuffer(texts, dtype=np.uint8)
    plain, plain_ends, rare = unified(text, ends, settings)
    text, ends = rewrite_rare(plain, plain_ends, rare) if settings.lower else (plain, plain_ends)
    if text is not given:
        longest = _longest(ends)
    if longest > LONGEST:
        raise ValueError(f"a document has more than {LONGEST} bytes")
    return Prepared(text, ends, longest, plain, plain_ends)
