"""The key of a line is that of the document which the engine makes of it: equal ids, equal partitions."""

from __future__ import annotations

import pytest

from stream_lsh.documents.fields import LINE_ID
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.kafka.tools.produce import LeftOut, Reader


def key(line: bytes, field: str | None = None) -> bytes | None:
    return Reader(KafkaSettings(), field, LeftOut())._key(line)


@pytest.mark.parametrize(
    ("id", "expected"),
    [
        (b'"a"', b"a"),
        (b'"\\u00e4"', "\u00e4".encode()),
        (b'"\\ud800"', b"\xed\xa0\x80"),
        (b"17", b"17"),
        (b"-0", b"0"),
        (b"18446744073709551615", b"18446744073709551615"),
        (b"18446744073709551616", b"18446744073709551616"),
        (b"-9223372036854775809", b"-9223372036854775809"),
        (b"1" * 40, b"1" * 40),
        (b"1.0", None),
        (b"true", None),
        (b"[1]", None),
        (b"nonsense", None),
    ],
)
@pytest.mark.parametrize("text", [b'"x"', b'"\\ud800"', b"1e999", b"123456789012345678901234567890"])
def test_whatever_else_is_in_the_line(id: bytes, expected: bytes | None, text: bytes) -> None:
    assert key(b'{"id": ' + id + b', "text": ' + text + b"}") == expected


@pytest.mark.parametrize(
    "line", [b"", b"{", b"[1]", b"17", b'{"text": "x"}', b'{"id": "a", "id": "b", "t": 1e999}', b"\xff", b"[" * 2000]
)
def test_lines_without_a_key(line: bytes) -> None:
    assert key(line) is None


def test_other_fields() -> None:
    assert key(b'{"id": "a", "page": {"url": "u"}, "n": 1e999}', "page.url") == b"u"
    assert key(b'{"id": "a"}', LINE_ID) is None
