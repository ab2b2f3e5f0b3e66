"""HTML, its entities and compatibility forms: the same on every Python, whatever its Unicode knows."""

from __future__ import annotations

import hashlib
import html
import html.entities
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from support.long_form import LONG

from stream_lsh.text.markup import decode_entities, nfkc, strip_markup, unassigned
from stream_lsh.text.unicode import unicode_data

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
    alone = nfkc("\n".join(map(chr, EVERY)))
    among = nfkc("\n".join(f"e{char}\u0301\u0327{char}\u1161" for char in map(chr, EVERY)))
    assert digest(alone) == "33cae4b9f4ee52926178882a5085dbae8e084230b3fe93d2e8e15c71e6d610d7"
    assert digest(among) == "9ccb03bca21cbc0dc130f09a3fd02e39b9e13b12dd7ea60fe3e54819b1787c81"


@pytest.mark.long
@pytest.mark.skipif(
    unicodedata.unidata_version != unicode_data().version,
    reason="this Python has another version of Unicode than the shipped table",
)
@hypothesis_settings(max_examples=1500 if LONG else 150)
@given(st.text(pieces, max_size=30))
def test_compatibility_forms_are_pythons_where_the_versions_are_the_same(text: str) -> None:
    assert nfkc(text) == unicodedata.normalize("NFKC", text)


@pytest.mark.long
def test_what_later_versions_assign_stays_as_it_is() -> None:
    later = [chr(i) for i in EVERY if unassigned()[i]]
    assert not {chr(0x1E030), chr(0x10EFD), chr(0x1CCD6), chr(0x113C5)} - set(later)  # of 15, 15 (a mark), 16, 16
    # Marks before one and behind it are put in order, but not across it.
    text = "".join(f"ﬁx\u0301\u0327{char}\u0301\u0327" for char in later)
    assert nfkc(text) == "".join(f"fix\u0327\u0301{char}\u0327\u0301" for char in later)
    assert nfkc("".join(later)) == "".join(later)


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
