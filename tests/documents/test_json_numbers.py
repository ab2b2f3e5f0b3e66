"""Lists of numbers read by the kernel: exactly as Python reads each of them, or not at all."""

import json
import random
import struct
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_lsh.documents.columns import Columns
from stream_lsh.documents.fields import Fields
from stream_lsh.documents.items import Item
from stream_lsh.documents.json_numbers import gather_numbers
from stream_lsh.documents.lines import parse_lines


def gathered(lists: Sequence[str], dimensions: int) -> tuple[np.ndarray, list[bool]]:
    """The numbers of lists, and which of them were read."""
    data = "".join(lists).encode()
    ends = np.cumsum([len(text.encode()) for text in lists])
    starts = np.concatenate(([0], ends[:-1]))
    out, stops = np.zeros((len(lists), dimensions), np.float32), np.zeros(len(lists), np.int64)
    gather_numbers(np.frombuffer(data, np.uint8), starts, ends, out, stops)
    read = stops > 0
    assert (stops[read] == ends[read]).all()
    return out, read.tolist()


def numbers(chance: random.Random) -> Iterator[str]:
    """Numbers as people and programs write them, and such as are half-way between two floats, or nearly."""
    while True:
        near = struct.unpack("<d", struct.pack("<Q", chance.getrandbits(52) | chance.randrange(900, 1150) << 52))[0]
        small = np.float32(chance.gauss(0, 0.1))
        between = (float(small) + float(np.nextafter(small, np.float32(9)))) / 2
        yield from (
            repr(near), str(small), repr(float(small)), repr(between), repr(chance.gauss(0, 1)),
            f"{chance.gauss(0, 1):.6f}", str(chance.getrandbits(chance.randrange(1, 64))),
            f"-{chance.getrandbits(64)}e{chance.randrange(-70, 30)}",
            f"{chance.getrandbits(30)}.{chance.getrandbits(30)}",
            f"{chance.randrange(10**9)}E+{chance.randrange(25):02d}", str((2 * chance.getrandbits(53) + 1) << 8),
        )  # fmt: skip


@pytest.mark.parametrize("seed", range(4))
def test_numbers_are_those_of_python(seed: int) -> None:
    of_seed = numbers(random.Random(seed))
    texts = [next(of_seed) for _ in range(100_000)]
    out, read = gathered([f"[{text}]" for text in texts], 1)
    with np.errstate(over="ignore"):
        expected = np.array([float(text) for text in texts]).astype(np.float32)
    assert (out[read, 0] == expected[read]).all()
    assert np.isfinite(expected[read]).all()
    assert np.mean(read) > 0.75


def test_vectors_that_were_float32_are_all_read() -> None:
    vectors = np.random.default_rng(3).standard_normal((300, 384)).astype(np.float32)
    vectors[0, :3] = (0.0, 2.0**-60, 2.0**60)
    for lists in (
        [json.dumps(vector.tolist()) for vector in vectors], [str([float(str(x)) for x in v]) for v in vectors]
    ):  # fmt: skip
        out, read = gathered(lists, 384)
        assert all(read[1:])
        assert (out[1:] == vectors[1:]).all()


@pytest.mark.parametrize(
    "text",
    [
        "[]", "[1]", "[1,2]", "[1,2,3,4]", '[1,2,"3"]', "[1,2,true]", "[1,2,null]", "[1,2,[3]]", "[[1,2,3]]",
        "[1,2,{}]", "[1,2,1e39]", "[1,2,-1e400]", "[1,2,12345678901234567890]", '["1",2,3]',
        "[1,2,0.12345678901234567890]",
    ],
)  # fmt: skip
def test_what_is_not_plain_is_left(text: str) -> None:
    assert gathered(["[1,2,3]", text, " [3 ,\t2,\r\n1 ]"[1:]], 3)[1] == [True, False, True]


ITEM = Item("v", "vector", 3)
values = st.recursive(
    st.one_of(
        st.floats(allow_nan=False, allow_infinity=False), st.integers(-(10**25), 10**25), st.booleans(), st.none(),
        st.text(max_size=3), st.floats(-1, 1, width=32), st.just(1e39),
    ),
    lambda inner: st.lists(inner, min_size=2, max_size=4), max_leaves=5,
)  # fmt: skip


@given(
    st.lists(st.tuples(values, st.sampled_from(["v", "w", "u.v"])), min_size=1, max_size=5), st.sampled_from(["", " "])
)
def test_lines_are_what_they_are_without_the_kernel(reported: list[tuple[object, str]], space: str) -> None:
    """A name with an escape is left to the slow reader, which reads any list."""
    documents = [{"id": i, name: value, "more": [1, 2, 3]} for i, (value, name) in enumerate(reported)]
    lines = [json.dumps(document, separators=("," + space, ":" + space)).encode() for document in documents]
    slow = [line.replace(b'"v"', b'"\\u0076"') for line in lines]
    assert parsed(lines) == parsed(slow)


def parsed(lines: Sequence[bytes]) -> tuple[object, ...]:
    ends = np.cumsum([len(line) for line in lines])
    found: Columns = parse_lines(
        b"".join(lines), np.concatenate(([0], ends[:-1])), ends, Fields(time_field=None, item=ITEM)
    )
    return found.ids, found.texts, found.ends.tolist(), found.rejected
