r"""The words that the peers are given: the fast ways give what `\w+` on `str.lower` gives."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.tokens import TOKENIZERS, UNDERSCORE

TEXTS = st.one_of(st.text(), st.text(alphabet=[chr(code) for code in range(128)]))


@pytest.mark.parametrize("name", TOKENIZERS)
@given(text=TEXTS)
def test_words(name: str, text: str) -> None:
    words, line = TOKENIZERS[name]
    expected = re.findall(r"\w+", text.lower())
    assert words(text) == expected
    assert line(text).split() == [word.replace("_", UNDERSCORE) for word in expected]
