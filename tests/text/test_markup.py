"""HTML and its entities: the same on every Python."""

import html

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from support.long_form import LONG

from stream_lsh.text.markup import decode_entities, strip_markup


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
