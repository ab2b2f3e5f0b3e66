"""Objects of outputs as they are read again."""

import pytest

from stream_lsh.documents.fields import dumped, loaded, output_object

WIDE = 12345678901234567890123


@pytest.mark.parametrize(
    ("line", "value"),
    [
        (b'{"x":%d}' % WIDE, WIDE),
        (b'{"x": -%d}' % WIDE, -WIDE),
        (b'{"x":\t %d}' % WIDE, WIDE),
        (b'{"x":1234567890123456789e3}', 1234567890123456789e3),
        (b'{"x":"y: %d"}' % WIDE, f"y: {WIDE}"),
        (b'{"x":"\\ud800"}', "\ud800"),
    ],
)
def test_a_value(line: bytes, value: object) -> None:
    found = output_object(line)["x"]
    assert found == value and type(found) is type(value)


@pytest.mark.parametrize(
    "line",
    [b"", b"7", b'{\0"\0x\0"\0:\x007\0}\0', b'{"x":"\xff"}', b"[" * 100_000, b'{"x":%d,"y":' % WIDE + b"[" * 100_000],
)
def test_no_object(line: bytes) -> None:
    with pytest.raises(ValueError):
        output_object(line)


@pytest.mark.parametrize("value", [{"path": "feed\udcff.jsonl"}, {"path": "feedé", "size": 7}])
def test_names_of_files(value: object) -> None:
    assert loaded(dumped(value)) == value
