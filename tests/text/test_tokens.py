"""The tokeniser's kernel against plain Python, and what becomes of each script."""

import sys
import unicodedata
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from support import unicode_table
from support.models.signing import make_settings, normalise, pack, sign, tokens

from stream_lsh.text import casing
from stream_lsh.text.ascii import GROUP
from stream_lsh.text.forms import unified
from stream_lsh.text.preparation import prepared
from stream_lsh.text.settings import SigningSettings
from stream_lsh.text.tokens import CONTINUOUS_START, normalised_capacity
from stream_lsh.text.tokens import normalise as normalise_kernel
from stream_lsh.text.unicode import CASED, CONTINUOUS, MARK, WORD, tables_for, unicode_data

same_unicode = pytest.mark.skipif(
    unicodedata.unidata_version != unicode_data().version,
    reason="this Python has another version of Unicode than the shipped table",
)

INTERESTING = (
    "aAzZ019_.,;!? \t\n\x0b\x1f\x00\x7f\x85\xa0-'İıΣσςßẞȺſKÅǅʰ\u0345\u00ad"
    "漢字々〇𠀀ひらカナーｶﾞ한국어\u1112\u1161\u11abภาษาไทย๒กำ่ລາວខ្មែរမြန်မာ"
    "नमस्तेक्ष\u094d२مُحَمَّد١می\u200cخ\u200d👩👍🏽\ufe0f\u20e3\ud800\udfff\u0301\u3000\u2028\u2003\ufeff𝒳Ⅻ½²"
)
texts = st.text(st.one_of(st.sampled_from(INTERESTING), st.sampled_from("ab \u0301\u200dΣ漢ก")), max_size=60)
choices = st.builds(
    make_settings,
    kind=st.sampled_from(["words", "words", "chars"]),
    lower=st.booleans(),
    space=st.booleans(),
    punctuation=st.booleans(),
    nfc=st.booleans(),
    ignorable=st.booleans(),
    tokens=st.sampled_from(["unicode", "word"]),
)


def run_kernel(text: str, settings: SigningSettings) -> tuple[str, list[tuple[str, bool]]]:
    encoded = text.encode("utf-8", "surrogatepass")
    data, *_ = prepared(encoded, np.array([len(encoded)]), settings)
    norm = np.empty(normalised_capacity(len(data)), dtype=np.uint8)
    spans = np.full(len(data) + 2 + GROUP, 0x7FFFFFFF, dtype=np.uint32)
    size, bounds = normalise_kernel(data, 0, len(data), tables_for(settings), norm, spans)
    assert bounds % 2 == 0
    found = []
    for start, end in spans[:bounds].reshape(-1, 2).tolist():
        continuous = start >= CONTINUOUS_START
        part = norm[start - CONTINUOUS_START * continuous : end]
        found.append((part.tobytes().decode("utf-8", "surrogatepass"), continuous))
    return norm[:size].tobytes().decode("utf-8", "surrogatepass"), found


def check(text: str, settings: SigningSettings) -> None:
    normal = normalise(text, settings)
    expected = tokens(normal, settings) if settings.kind == "words" else []
    assert run_kernel(text, settings) == (normal, expected)


@hypothesis_settings(max_examples=600, deadline=None)
@given(texts | st.text("abcXYZ 09_\n.,-", max_size=400), choices)
def test_kernel_agrees_with_python(text: str, settings: SigningSettings) -> None:
    check(text, settings)


@same_unicode
@hypothesis_settings(max_examples=200, deadline=None)
@given(st.text(st.characters(exclude_categories=()), max_size=40), choices)
def test_kernel_agrees_with_python_on_any_character(text: str, settings: SigningSettings) -> None:
    check(text, settings)


@pytest.mark.long
@same_unicode
@pytest.mark.parametrize("mode", ["unicode", pytest.param("word", marks=pytest.mark.long)])
def test_every_character_in_a_word_and_alone(mode: str) -> None:
    """All characters that Unicode has assigned: classes and lower case are those of this Python."""
    assigned = [char for char in map(chr, range(sys.maxunicode + 1)) if unicodedata.category(char) not in ("Cn", "Co")]
    assert len(assigned) > 140_000
    for first in range(0, len(assigned), 0x4000):
        check(
            " ".join(f"x{char}y {char} Ax{char}" for char in assigned[first : first + 0x4000]),
            make_settings(tokens=mode),
        )


@pytest.mark.long
@same_unicode
def test_shipped_table_is_what_the_generator_writes() -> None:
    built = unicode_table.build()
    shipped = unicode_data()
    assert str(built["version"]) == shipped.version
    for name in ("pages", "records", "flags", "lower", "combining", "unassigned"):
        assert np.array_equal(built[name], getattr(shipped, name)), name


@same_unicode
def test_final_sigma_after_and_before_every_character() -> None:
    for first in range(0, sys.maxunicode + 1, 0x8000):
        chars = map(chr, range(first, first + 0x8000))
        text = "\n".join(f"{char}Σ aΣ{char} a{char}Σ{char}b" for char in chars)
        data = np.frombuffer(text.encode("utf-8", "surrogatepass"), dtype=np.uint8)
        rewritten, ends = casing.rewrite_rare(data, np.array([len(data)]), np.ones(1, np.uint8))
        assert ends.tolist() == [len(rewritten)]
        assert rewritten.tobytes().decode("utf-8", "surrogatepass").lower() == text.lower()


def test_the_longest_document_is_that_after_rewriting() -> None:
    grows, shrinks = "İ" * 300, "e\u0301" * 100  # together they keep their length
    assert prepared(*pack([grows, *[shrinks] * 3]), make_settings(nfc=True)).longest == 900


def test_rewriting_keeps_documents_apart() -> None:
    documents = ["ΑΣ", "Α", "xİ", "", "plain", "Σ", "ΑΣ\u0301", "bΣ"]
    out, ends, *_ = prepared(*pack(documents), make_settings())
    starts = [0, *ends.tolist()]
    found = [out[i:j].tobytes().decode().lower() for i, j in pairwise(starts)]
    assert found == [text.lower() for text in documents]


def test_nothing_rare_nothing_done() -> None:
    data = np.frombuffer("ασ é — 漢 กำ หนู هٰذَا নাই क़ ".encode() + b"ABC" * 10, dtype=np.uint8)
    ends = np.array([len(data)])
    out, out_ends, rare = unified(data, ends, make_settings(nfc=True, ignorable=True))
    assert out is data and out_ends is ends and not rare.any()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It's 20 o_clock", ["it", "s", "20", "o_clock"]),
        ("漢字kana かなカナー", ["漢", "字", "kana", "か", "な", "カ", "ナ", "ー"]),
        ("한국어 문서", ["한국어", "문서"]),
        ("ภาษา ๒๕๖๐", ["ภ", "า", "ษ", "า", "๒๕๖๐"]),
        ("ก็ดี", ["ก็", "ดี"]),
        ("नमस्ते दुनिया", ["नमस्ते", "दुनिया"]),
        ("क्\u200dष", ["क्\u200dष"]),
        ("مُحَمَّد رسول", ["مُحَمَّد", "رسول"]),
        ("می\u200cخواهم", ["می\u200cخواهم"]),
        ("end\u200d\u200c next", ["end", "next"]),
        ("👩\u200d👩\u200d👧 👍🏽", []),
        ("1️⃣ a", ["1️⃣", "a"]),
        ("a\ud800b", ["a", "b"]),
        ("a\x00b\x07c", ["a", "b", "c"]),
        ("\u0301a", ["a"]),
        ("İstanbul", ["i̇stanbul"]),
        ("ΟΔΟΣ ΣΟΦΟΣ", ["οδος", "σοφος"]),
        ("ば\u3099x漢\u200d字", ["ば\u3099", "x", "漢", "字"]),
        ("", []),
    ],
)
def test_scripts(text: str, expected: list[str]) -> None:
    assert [token for token, _ in run_kernel(text, make_settings())[1]] == expected


def test_broken_utf8_stays_inside_of_the_document() -> None:
    """No promise what it becomes, but never a byte of the next document, and the same every time."""
    generator = np.random.default_rng(1)
    settings = make_settings(lower=False)
    for _ in range(500):
        data = generator.choice(np.array([0x61, 0x20, 0xC3, 0xE2, 0xF0, 0xF4, 0x80, 0xBF, 0xFF], np.uint8), 12)
        results = []
        for filler in (0x80, 0x61):
            padded = np.concatenate([data, np.full(8, filler, np.uint8)])
            norm = np.empty(normalised_capacity(12), dtype=np.uint8)
            spans = np.zeros(64, dtype=np.uint32)
            size, bounds = normalise_kernel(padded, 0, 12, tables_for(settings), norm, spans)
            assert size <= 18
            results.append((norm[:size].tobytes(), spans[:bounds].tolist()))
        assert results[0] == results[1]


def test_unknown_code_points_are_no_tokens() -> None:
    data = unicode_data()
    assert data.flags[data.records_of(np.array(0x10FFFF))] & (WORD | MARK | CONTINUOUS | CASED) == 0
    assert sign(["\U0010ffff"], make_settings()).sizes.tolist() == [1]  # but visible: one shingle of the whole text
