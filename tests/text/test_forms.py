"""One form for all spellings, HTML and entities; tokens by kernels and by plain Python: the same on every Python."""

import hashlib
import html
import random
import sys
import unicodedata
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from support import unicode_table
from support.long_form import LONG
from support.models.signing import is_ignorable, make_settings, normalise, pack, sign, tokens

from stream_lsh import Deduplicator, Document, Settings
from stream_lsh.text import casing
from stream_lsh.text.ascii import GROUP
from stream_lsh.text.forms import MOST_MARKS, located, normalised, unassigned, unified
from stream_lsh.text.markup import decode_entities, strip_markup
from stream_lsh.text.preparation import prepared
from stream_lsh.text.settings import SigningSettings
from stream_lsh.text.tokens import CONTINUOUS_START, Placing, normalised_capacity
from stream_lsh.text.tokens import normalise as normalise_kernel
from stream_lsh.text.unicode import CASED, CONTINUOUS, MARK, WORD, tables_for, unicode_data

same_unicode = pytest.mark.skipif(
    unicodedata.unidata_version != unicode_data().version,
    reason="this Python has another version of Unicode than the shipped table",
)
INVISIBLE = "\u00ad\u200b\u200c\u200d\u2060\ufeff\u200e\u200f\u202a\u202e\u2066\u2069\ufe0f\u034f\u061c\U000e0101"
# Latin, Hangul letters, kana, Bengali, Devanagari, Kannada, Tibetan, Greek, Hebrew, a Chinese compatibility form.
HARD = "aeoé\u0301\u0308\u0323\u0344か\u3099각\u1100\u1161\u11a8"
HARD += "\u09c7\u09be\u0928\u093c\u0958\u0cc6\u0cc2\u0cd5\u0f73\u0f71Å\u05d0\u05b7\ufb2e\u2126\U0002f800"
spellings = st.one_of(st.sampled_from(HARD), st.sampled_from(INVISIBLE + " x漢"), st.sampled_from("\u0301\u0323\u1161"))
EVERY = range(sys.maxunicode + 1)
MARKS = "\u0301\u0327\u0345\u05b0\u3099\u094d"  # of several classes: they change places, some compose
pieces = st.one_of(
    st.sampled_from(f"aeÅﬁ가각漢か㍿ſẛΩ½{MARKS}"), st.characters(exclude_categories=()),
    st.deferred(lambda: st.sampled_from([chr(i) for i in EVERY if unassigned()[i]])),
)  # fmt: skip


def digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


@pytest.mark.long
def test_compatibility_forms_of_all_characters_are_those_of_the_shipped_version() -> None:
    """Pinned, so that a Python with newer tables that differed in any character, alone or among marks, would fail."""
    alone = normalised("\n".join(map(chr, EVERY)), "NFKC")
    among = normalised("\n".join(f"e{char}\u0301\u0327{char}\u1161" for char in map(chr, EVERY)), "NFKC")
    assert digest(alone) == "33cae4b9f4ee52926178882a5085dbae8e084230b3fe93d2e8e15c71e6d610d7"
    assert digest(among) == "9ccb03bca21cbc0dc130f09a3fd02e39b9e13b12dd7ea60fe3e54819b1787c81"


def test_a_long_run_of_marks_is_sorted_in_parts() -> None:
    """Sorted as a whole, the 200,000 marks of this text would take minutes."""
    run = "\u0301\u0323" * 100_000
    later = [run[at : at + MOST_MARKS] for at in range(MOST_MARKS, len(run), MOST_MARKS)]
    parts = ["a" + run[:MOST_MARKS], *later, "b"]
    expected = "".join(unicodedata.normalize("NFC", part) for part in parts)
    assert normalised(f"a{run}b", "NFC") == expected
    found = located(f"a{run}b".encode(), make_settings(nfc=True, ignorable=True))
    assert found is not None
    assert bytes(found.text).decode() == expected


@pytest.mark.long
@same_unicode
@hypothesis_settings(max_examples=1500 if LONG else 150)
@given(st.text(pieces, max_size=30))
def test_compatibility_forms_are_pythons_where_the_versions_are_the_same(text: str) -> None:
    assert normalised(text, "NFKC") == unicodedata.normalize("NFKC", text)


@pytest.mark.long
def test_what_later_versions_assign_stays_as_it_is() -> None:
    later = [chr(i) for i in EVERY if unassigned()[i]]
    assert not {chr(0x1E030), chr(0x10EFD), chr(0x1CCD6), chr(0x113C5)} - set(later)  # of 15, 15 (a mark), 16, 16
    # Marks before one and behind it are put in order, but not across it.
    text = "".join(f"ﬁx\u0301\u0327{char}\u0301\u0327" for char in later)
    assert normalised(text, "NFKC") == "".join(f"fix\u0327\u0301{char}\u0327\u0301" for char in later)
    assert normalised("".join(later), "NFKC") == "".join(later)


def dropped(text: str) -> str:
    return "".join(char for char in text if not is_ignorable(char))


def test_ignorable_characters_are_those_of_the_standard() -> None:
    """Their derivation in UAX 44, as far as `unicodedata` has it: format characters with few exceptions, and others by
    their names."""
    data = unicode_data()
    found = {chr(i) for i in EVERY if is_ignorable(chr(i))}
    assert len(found) == 4174  # as DerivedCoreProperties.txt of Unicode 14.0 counts them
    known = {char for char in map(chr, EVERY) if not unassigned()[ord(char)]}
    shown = {
        *"\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2\ufff9\ufffa\ufffb\U000110bd\U000110cd"
    }
    shown |= {chr(0x110BD), chr(0x110CD), *map(chr, range(0x13430, 0x13439))}
    formats = {char for char in known if unicodedata.category(char) == "Cf"}
    named = ("VARIATION SELECTOR", "HANGUL FILLER", "SEONG FILLER", "GRAPHEME JOINER", "VOWEL INHERENT")
    others = {char for char in known if any(part in unicodedata.name(char, "") for part in named)}
    assert found & known == (formats - shown) | others
    assert str(data.version) == "14.0.0"


@hypothesis_settings(max_examples=1500 if LONG else 400, deadline=None)
@given(st.lists(st.text(spellings, max_size=12), max_size=4), st.booleans(), st.booleans())
def test_forms_are_those_of_python(texts: list[str], nfc: bool, ignorable: bool) -> None:
    data, ends = pack(texts)
    out, out_ends, _ = unified(np.frombuffer(data, np.uint8), ends, make_settings(nfc=nfc, ignorable=ignorable))
    wanted = [dropped(text) if ignorable else text for text in texts]
    wanted = [unicodedata.normalize("NFC", text) if nfc else text for text in wanted]
    assert [part.tobytes().decode() for part in np.split(out, out_ends)[:-1]] == wanted


@pytest.mark.first
@pytest.mark.long
@same_unicode
def test_every_character_beside_those_that_compose() -> None:
    """Each document that Python changes is found by the quick check."""
    for first in range(0, sys.maxunicode + 1, 0x4000):
        around = [f"e{char}\u0301" for char in map(chr, range(first, first + 0x4000))]
        around += [f"{char}{mark}" for char in map(chr, range(first, first + 0x4000)) for mark in "\u0327\u1161\u3099"]
        around += [f"among other letters {char} and more of them" for char in map(chr, range(first, first + 0x4000))]
        around += list(map(chr, range(first, first + 0x4000)))
        data, ends = pack(around)
        out, ends, _ = unified(np.frombuffer(data, np.uint8), ends, make_settings(nfc=True, ignorable=True))
        found = [part.tobytes().decode("utf-8", "surrogatepass") for part in np.split(out, ends)[:-1]]
        assert found == [unicodedata.normalize("NFC", dropped(text)) for text in around]


@hypothesis_settings(max_examples=1000 if LONG else 300, deadline=None)
@given(st.text(spellings, max_size=20))
def test_places_are_those_of_the_original_text(text: str) -> None:
    found = located(text.encode(), make_settings(nfc=True, ignorable=True))
    normal = unicodedata.normalize("NFC", dropped(text))
    if found is None:
        assert text == normal
        return
    assert bytes(found.text).decode() == normal
    assert len(found.begins) == len(found.ends) == len(normal)
    assert np.all(np.diff(found.begins.astype(int)) >= 0) and np.all(np.diff(found.ends.astype(int)) >= 0)
    covered = set[int]()
    for char, begin, end in zip(normal, found.begins.tolist(), found.ends.tolist(), strict=True):
        assert char in unicodedata.normalize("NFC", dropped(text[begin:end]))
        covered |= set(range(begin, end))
    assert all(is_ignorable(char) for i, char in enumerate(text) if i not in covered)


def hidden(text: str, chance: random.Random) -> str:
    """The same to readers: invisible characters among the letters, and accents as characters of their own."""
    return "".join(
        char + chance.choice(INVISIBLE) * (chance.random() < 0.3) for char in unicodedata.normalize("NFD", text)
    )


@pytest.mark.parametrize(
    "given",
    [
        {}, {"shingles": "words:3"}, {"shingles": "chars:9"}, {"set_field": "set"}, {"measure": "containment"},
        {"measure": "tf-idf"}, {"measure": "levenshtein", "max_distance": 1}, {"verify": "signature"},
    ],
    ids=str,
)  # fmt: skip
def test_a_copy_with_invisible_characters_is_an_exact_copy(given: dict[str, object]) -> None:
    text = "Café Übung naïve: el niño comió piñas, a\u011fac\u0131 한국어 문서 को क़लम می\u200cخواهم नमस्ते"
    other = hidden(text, random.Random(1))
    assert unicodedata.normalize("NFC", other) != text
    with Deduplicator(settings=Settings(**given)) as index:  # type: ignore[arg-type]
        for id, value in (("a", text), ("b", other)):
            body = {"set": value.split(" ")} if "set_field" in given else {"text": value}
            (verdict,) = index.process([{"id": id, **body}])
    # The elements of a set are ordered before they are normalised.
    kind = "near_duplicate" if "set_field" in given else "exact_duplicate"
    assert (verdict.kind, verdict.duplicate_of, verdict.similarity) == (kind, "a", 1.0)


def test_passages_are_places_in_texts_with_invisible_characters() -> None:
    words = ["the", "café", "was", "closed", "because", "of", "the", "storm", "over", "déjà", "vu", "harbour"]
    text = hidden(" ".join(words), random.Random(2))
    tokens = Placing(Settings(measure="containment").signing)(text.encode())
    pieces = [text[a:b] for a, b in zip(tokens.begins.tolist(), tokens.ends.tolist(), strict=True)]
    assert [unicodedata.normalize("NFC", dropped(piece)) for piece in pieces] == words
    assert not any(is_ignorable(piece[0]) or is_ignorable(piece[-1]) for piece in pieces)


def test_only_what_is_left_after_removal_counts() -> None:
    with Deduplicator() as index:
        (verdict,) = index.process([Document("a", INVISIBLE)])
        assert (verdict.kind, verdict.reason) == ("rejected", "empty")


@hypothesis_settings(max_examples=500 if LONG else 200)
@given(st.text(st.sampled_from("&#xX;0123456789afamplt<\x80é \n"), max_size=40))
def test_entities_are_decoded_as_the_library_does(text: str) -> None:
    assert decode_entities(text) == html.unescape(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("&#" + "9" * 100_000 + ";x", "\ufffdx"),
        ("&#" + "0" * 100_000 + "65;x", "Ax"),
        ("&#" + "0" * 100_000 + ";x", "\ufffdx"),
        ("&#1114111;&#1114112;&#00000000", "\ufffd\ufffd"),
        ("&#x" + "F" * 100_000 + ";x", "\ufffdx"),
        ("&amp&#128;&nbsp;&notit; &nonsense;", "&€\xa0¬it; &nonsense;"),
    ],
)
def test_no_number_is_too_long(text: str, expected: str) -> None:
    assert decode_entities(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("İ<SCRIPT>no</Script>yes", "İ  yes"),  # U+0130: a lower case of two characters
        ("a<script>b</ſcript>c</script>d", "a  d"),
        ("a<b>c</B>d<P>e", "acd e"),
        ("a<script>b", "a "),
    ],
)
def test_tags_are_ascii(text: str, expected: str) -> None:
    assert strip_markup(text) == expected


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
