"""Terms of texts, against a plain reference."""

import math
import re
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_lsh import Settings
from stream_lsh.families.terms import (
    LEAD,
    LEAD_COUNTS,
    NAME_BIT,
    STEM,
    TERM_SHIFT,
    UNIT,
    WEIGHT_MASK,
    StoryWords,
    TermSigner,
    log2,
)

SIGNING = Settings(measure="tf-idf").signing
SIGNER = TermSigner(SIGNING)


def terms(text: str) -> dict[int, tuple[bool, float]]:
    """Of each term whether it is a name or number, and its weight; without the last one, which all texts have."""
    said = text.encode()
    found, _ = SIGNER.shingle(said, np.array([len(said)]))
    assert not found[-1:].any()
    found = found[:-1]
    return {int(e >> TERM_SHIFT): (bool(e & NAME_BIT), float(e & WEIGHT_MASK) / UNIT) for e in found}


def only(text: str) -> int:
    (term,) = terms(text)
    return term


def reference(text: str) -> dict[int, tuple[bool, float]]:
    """The same of English texts, word by word."""
    times, names, numbers = Counter[str](), set[str](), set[str]()
    words = [word for word in re.findall(r"\w+", text) if word[0].isdigit() or len(word) > 1]
    for place, word in enumerate(words):
        stem = word if word[0].isdigit() else word.lower()[:STEM]
        times[stem] += LEAD_COUNTS if place < LEAD else 1
        names |= {stem} if word[0].isupper() else set()
        numbers |= {stem} if word[0].isdigit() else set()
    said = {}
    for stem, n in times.items():
        weight = (1 + math.log(n)) * (2 if stem in names | numbers else 1)
        said[only(stem)] = (bool(names) and stem in names | numbers, weight)
    return said


WORDS = [
    "the",
    "Thames",
    "rose",
    "THREE",
    "metres",
    "in",
    "1953",
    "and",
    "2013",
    "a",
    "flooded",
    "House",
    "houses",
    "I",
]


@given(st.lists(st.sampled_from(WORDS), min_size=1, max_size=200))
def test_terms_are_words_with_their_weights(words: list[str]) -> None:
    text = " ".join(words)
    found, wanted = terms(text), reference(text)
    if not wanted:  # single letters only: the text as a whole
        assert len(found) == 1
        return
    assert found.keys() == wanted.keys()
    for term, (name, weight) in wanted.items():
        assert found[term][0] == name
        assert found[term][1] == pytest.approx(weight, abs=0.5 / UNIT + 0.01)


def test_scripts() -> None:
    assert only("Москва") == only("москвы") and terms("Москва")[only("москвы")][0]
    assert len(terms("北京今天")) == 3 and only("北京") in terms("在北京")
    assert len(terms("天 x1")) == 2  # a single character stands for itself
    assert not any(name for name, _ in terms("北京2013年").values())  # no capitals, no names
    assert terms("नमस्ते") and terms("مرحبا") and len(terms("!!!")) == 1 and not terms(" ")


def test_the_logarithm() -> None:
    for x in (1.0, 1.5, 2.0, 3.0, 1000.0, 123456.789):
        assert log2(x) == pytest.approx(math.log2(x), abs=1e-3)
    assert log2(8.0) == 3.0


def test_scopes_keep_documents_apart() -> None:
    text = b"Thames rose three metres"
    scopes = np.array([12345, 12345, 999], np.uint64)
    signed = SIGNER.sign(text * 3, np.cumsum([len(text)] * 3), scopes, want_shingles=True)
    a, b, c = (set(signed.shingles[i * 5 : i * 5 + 5].tolist()) for i in range(3))
    assert a == b and not a & c
    assert signed.shingles[4] >> TERM_SHIFT == 12345  # what all have, with this scope


def test_evidence_has_the_words() -> None:
    signature = np.zeros(64, np.uint32)
    entries, _ = SIGNER.shingle(b"Klitschko beats Rahman", np.array([22]))
    signature[:3] = entries[:3].astype(np.uint32)
    assert entries[3:].tolist() == [0]
    (reported,) = StoryWords(SIGNING)(b"In Mannheim Klitschkos Gegner RAHMAN", [signature])
    assert reported == b',"terms":["klitschkos","rahman"]'
