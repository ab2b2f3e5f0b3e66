"""One form for all spellings, and HTML and its entities: the same on every Python."""

import hashlib
import html
import random
import sys
import unicodedata

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from support.long_form import LONG
from support.models.signing import is_ignorable, make_settings, pack

from stream_lsh import Deduplicator, Document, Settings
from stream_lsh.text.forms import MOST_MARKS, located, normalised, unassigned, unified
from stream_lsh.text.markup import decode_entities, strip_markup
from stream_lsh.text.tokens import Placing
from stream_lsh.text.unicode import unicode_data

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
