"""Vectors and bit vectors as they come in: every way to give one is the same text, and what is none is refused."""

import base64
import json
from array import array
from typing import Any

import numpy as np
import pytest

from stream_lsh.documents.builder import Builder, columns
from stream_lsh.documents.columns import Columns
from stream_lsh.documents.document import Document
from stream_lsh.documents.fields import Fields
from stream_lsh.documents.items import Item, length_of
from stream_lsh.documents.lines import parse_lines

VECTOR = Item("vector", "vector", 3)
DIRECTED = Item("vector", "vector", 3, directed=True)
BITS = Item("bits", "bits", 16)


def encoded(*numbers: float) -> str:
    return base64.b64encode(np.array(numbers, "<f4").tobytes()).decode()


def parsed(item: Item, value: str) -> Columns:
    """What a line becomes in which the field has this value, as JSON."""
    line = b'{"id": "a", "of": {"it": %s}}' % value.encode()
    fields = Fields(time_field=None, item=Item("of.it", item.kind, item.dimensions, item.directed))
    return parse_lines(line, np.array([0]), np.array([len(line)]), fields)


def made(item: Item, value: Any) -> Columns:
    """What a document in Python becomes."""
    return columns([Document("a", **{item.kind: value})], Fields(item=item))


def refusal(found: Columns) -> tuple[str, str]:
    assert found.texts == b"" and found.ids == [b'"a"']
    return found.rejected[0].reason, found.rejected[0].detail


@pytest.mark.parametrize("value", ["[1, -2.5, 0]", "[1.0, -25e-1, -0.0]", json.dumps(encoded(1, -2.5, -0.0))])
def test_equal_vectors_are_one_text(value: str) -> None:
    assert parsed(VECTOR, value).texts.decode() == encoded(1, -2.5, 0)


@pytest.mark.parametrize(
    "value",
    [
        [1, -2.5, 0], (1.0, -2.5, -0.0), np.array([1, -2.5, 0], np.float64), np.array([1, -2.5, -0.0], np.float16),
        np.array([1, -2.5, 0], ">f4"), [np.float32(1), -2.5, np.int8(0)], encoded(1, -2.5, 0),
        np.array([1, -2.5, 0], object), array("d", [1, -2.5, 0]), np.array([9, 1, 9, -2.5, 9, 0])[1::2],
    ],
)  # fmt: skip
def test_equal_vectors_in_python_are_one_text(value: Any) -> None:
    found = made(VECTOR, value)
    assert found.texts.decode() == encoded(1, -2.5, 0)
    assert len(found.texts) == length_of("vector", 3)


def test_numbers_are_rounded_to_float32() -> None:
    assert made(VECTOR, [0.1, 1e-50, 2**24 + 1]).texts.decode() == encoded(np.float32(0.1), 0, 2**24)
    assert made(VECTOR, np.array([1, 2, 3], np.uint8)).texts.decode() == encoded(1, 2, 3)


NOT_FINITE = "holds a number that is NaN, infinite, or too large for float32"


@pytest.mark.parametrize(
    ("value", "reason", "detail"),
    [
        ("[1, 2]", "bad_vector", "has 2 numbers, not 3"),
        ("[]", "bad_vector", "has 0 numbers, not 3"),
        ("[1, 2, 1e39]", "bad_vector", NOT_FINITE),
        ("[1, 2, 1" + 400 * "0" + "]", "bad_vector", "holds a number that is too large for float32"),
        ("[1, 2, true]", "wrong_type", "holds a boolean; only numbers can be elements"),
        ("[1, 2, null]", "wrong_type", "holds null; only numbers can be elements"),
        ('[1, 2, "3"]', "wrong_type", "holds a string; only numbers can be elements"),
        ("[[1, 2, 3]]", "bad_vector", "has 1 numbers, not 3"),
        ("[[1], [2], [3]]", "wrong_type", "holds a list; only numbers can be elements"),
        ("7", "wrong_type", "is an integer, not a list of numbers or their base64"),
        ("null", "wrong_type", "is null, not a list of numbers or their base64"),
        ('{"0": 1}', "wrong_type", "is an object, not a list of numbers or their base64"),
        ('"no base64!"', "bad_vector", "is a string, but no base64"),
        ('"AAAA\\n"', "bad_vector", "is a string, but no base64"),
        ('"é"', "bad_vector", "is a string, but no base64"),
        ('""', "bad_vector", "has 0 bytes, not 4 for each of 3 numbers"),
        (json.dumps(encoded(1, 2)), "bad_vector", "has 8 bytes, not 4 for each of 3 numbers"),
        (json.dumps(encoded(1, 2, np.inf)), "bad_vector", NOT_FINITE),
        (json.dumps(encoded(1, 2, np.nan)), "bad_vector", NOT_FINITE),
    ],
)
def test_what_is_no_vector_is_refused(value: str, reason: str, detail: str) -> None:
    assert refusal(parsed(VECTOR, value)) == (reason, f'the field "of.it" {detail}')


@pytest.mark.parametrize(
    ("value", "detail"),
    [
        ([1, 2, float("nan")], NOT_FINITE),
        ([1, 2, float("-inf")], NOT_FINITE),
        (np.array([1, 2, 1e39]), NOT_FINITE),
        ([1, 2, 10**400], "holds a number that is too large for float32"),
        (np.ones(2), "has 2 numbers, not 3"),
    ],
)
def test_numbers_that_are_no_vector_are_rejected(value: Any, detail: str) -> None:
    assert refusal(made(VECTOR, value)) == ("bad_vector", f"the vector {detail}")
    assert refusal(made(BITS, b"\0\0\0")) == ("bad_bits", "the bit vector has 24 bits, not 16")


def test_an_array_with_a_mask_is_no_vector() -> None:
    masked = np.ma.array([1, 2, 3], mask=[0, 0, 1])
    for document in (lambda: Document("a", vector=masked), lambda: {"id": "a", "vector": masked}):
        with pytest.raises(TypeError, match=r"the .*vector.* is a value of type MaskedArray, not a list of numbers"):
            Builder(Fields(item=VECTOR)).add(document())


@pytest.mark.parametrize("zeros", ["[0, 0, 0]", "[0, -0.0, 1e-60]", json.dumps(encoded(0, 0, -0.0))])
def test_a_vector_of_zeros_has_no_direction_and_yet_a_place(zeros: str) -> None:
    why = refusal(parsed(DIRECTED, zeros))
    assert why == ("empty", 'the field "of.it" is a vector of zeros, which has no direction')
    assert parsed(VECTOR, zeros).texts.decode() == encoded(0, 0, 0)
    assert parsed(DIRECTED, "[0, 0, 1e-45]").rejected == {}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ('"00ff"', "00ff"), ('"00FF"', "00ff"), ('"0x00fF"', "00ff"), ("255", "00ff"), ('"AP8="', "00ff"),
        ("0", "0000"), ("65535", "ffff"), ("-1", "ffff"), ("-32768", "8000"), ("32768", "8000"), ("-256", "ff00"),
    ],
)  # fmt: skip
def test_equal_bits_are_one_text(value: str, text: str) -> None:
    assert parsed(BITS, value).texts.decode() == text
    assert length_of("bits", 16) == len(text)


@pytest.mark.parametrize("value", ["00ff", b"\x00\xff", 255, np.uint16(255), np.int64(255)])
def test_equal_bits_in_python_are_one_text(value: Any) -> None:
    assert made(BITS, value).texts == b"00ff"


NEITHER = "is neither hexadecimal nor base64 of 16 bits"
DIGITS = "hexadecimal digits, not 4; what consists of such digits is never taken for base64"


@pytest.mark.parametrize(
    ("value", "reason", "detail"),
    [
        ('"00f"', "bad_bits", f"has 3 {DIGITS}"),
        ('"00ff00"', "bad_bits", f"has 6 {DIGITS}"),
        ('"0x0ff"', "bad_bits", f"has 3 {DIGITS}"),
        ('"00fg"', "bad_bits", NEITHER),
        ('""', "bad_bits", NEITHER),
        ('"AP8A"', "bad_bits", NEITHER),
        ('"0Xff"', "bad_bits", NEITHER),
        ("65536", "bad_bits", "is an integer of more than 16 bits"),
        ("-32769", "bad_bits", "is an integer of more than 16 bits"),
        ("1" + 4200 * "0", "bad_bits", "is an integer of more than 4000 digits; give hexadecimal"),
        ("1.0", "wrong_type", "is a floating-point number, not hexadecimal, base64 or an integer"),
        ("true", "wrong_type", "is a boolean, not hexadecimal, base64 or an integer"),
        ("[1, 0]", "wrong_type", "is a list, not hexadecimal, base64 or an integer"),
    ],
)
def test_what_are_no_bits_is_refused(value: str, reason: str, detail: str) -> None:
    assert refusal(parsed(BITS, value)) == (reason, f'the field "of.it" {detail}')


def test_hexadecimal_that_is_too_short_is_no_base64() -> None:
    row = Item("bits", "bits", 96)
    short = '"0123456789abcdef"'  # base64 of 12 bytes, too
    assert refusal(parsed(row, short)) == (
        "bad_bits", f'the field "of.it" has 16 {DIGITS.replace("not 4", "not 24")}'
    )  # fmt: skip
    assert refusal(parsed(row, f'"0x{short[1:-3]}"'))[0] == "bad_bits"
    assert parsed(row, '"0123456789abcdeg"').texts == base64.b64decode("0123456789abcdeg").hex().encode()


def test_integers_of_more_than_64_bits() -> None:
    """The fast reader rounds them; they come through whole all the same."""
    wide = Item("bits", "bits", 128)
    value = 0x0123456789ABCDEF_FEDCBA9876543211
    assert parsed(wide, str(value)).texts.decode() == f"{value:032x}"
    assert parsed(wide, str(-value)).texts.decode() == f"{2**128 - value:032x}"
    longest = Item("bits", "bits", 16384)
    assert refusal(parsed(longest, "9" * 4300))[0] == "bad_bits"


def test_a_deletion_needs_no_vector() -> None:
    line = b'{"id": "a", "deleted": true}'
    fields = Fields(time_field=None, item=VECTOR, deleted_field="deleted")
    assert parse_lines(line, np.array([0]), np.array([len(line)]), fields).deleted == [0]
    assert columns([Document("a", deleted=True)], Fields(item=VECTOR)).deleted == [0]
