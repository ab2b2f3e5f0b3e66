import numpy as np
import pytest

from stream_lsh.index.postings.posting import (
    WORD,
    directory_bits,
    first_posting,
    packed,
    posting_bytes,
    row_bits,
    row_of,
    take_apart,
    unpack,
    unpacked,
)
from stream_lsh.index.rows.keys import KEY_BITS
from stream_lsh.settings.checks import MOST_POSTINGS


@pytest.mark.parametrize("octets", range(1, 9))
@pytest.mark.parametrize("n", [0, 1, 7, 300])
def test_packed_postings_are_unpacked_alike(octets: int, n: int) -> None:
    """In an array of their own, and in the memory in which they lie."""
    values = np.random.default_rng(octets).integers(0, 1 << 8 * octets, n, np.uint64)
    values[:1], values[-1:] = 0, 2 ** (8 * octets) - 1
    data = packed(values, octets)
    assert data.tobytes() == b"".join(int(value).to_bytes(octets, "little") for value in values)
    behind_a_word = np.concatenate((np.full(WORD, 0xFF, np.uint8), data))
    assert np.array_equal(unpacked(behind_a_word, octets), values)
    room = np.full(n + 3, 2**64 - 1, np.uint64)
    room.view(np.uint8)[(8 - octets) * n : 8 * n] = data
    unpack(room.view(np.uint8), (8 - octets) * n, n, octets, room)
    assert np.array_equal(room[:n], values) and (room[n:] == 2**64 - 1).all()


@pytest.mark.parametrize("n", [1, 20, 70_000, MOST_POSTINGS])
@pytest.mark.parametrize("rows", [1, 2, 2**16, 2**16 + 1, 2**27, 2**31])
def test_key_and_row_fit_into_a_posting(n: int, rows: int) -> None:
    """The largest ones too."""
    low, bits = 64 - KEY_BITS, directory_bits(n)
    entry = (1 << bits) - 1
    directory = np.array([0, 1], np.uint32)
    for key in (entry << (64 - bits), 2**64 - (1 << low)):
        for row in {0, rows - 1}:
            posting = first_posting(np.uint64(key), bits, row_bits(rows)) + np.uint64(row)
            assert int(posting) < 1 << min(63, 8 * posting_bytes(n, rows))
            assert row_of(posting, row_bits(rows)) == row
            keys, found = np.empty(1, np.uint64), np.empty(1, np.uint32)
            postings = np.array([posting], np.uint64)
            take_apart(directory, 0, 0, postings, bits, row_bits(rows), 100, keys, found)
            assert int(keys[0]) | entry << (64 - bits) == key and found[0] == row + 100


@pytest.mark.parametrize(
    ("percent", "octets"), [(0, {5}), (10, {5}), (20, {5}), (25, {5, 6}), (50, {5, 6}), (70, {6}), (90, {6})]
)
def test_default_postings_take_five_or_six_bytes(percent: int, octets: set[int]) -> None:
    """By the share of dropped rows, which have 2 postings instead of 20 with 18 bands. A flush has any number of rows;
    merges have four times as many."""
    found = set()
    for flush in (4097, 65_536, 66_511, 81_920, 131_073):
        merges = [flush << 2 * level for level in range(6)]
        sizes = {posting_bytes((2000 - 18 * percent) * rows // 100, rows) for rows in merges}
        assert len(sizes) == 1
        found |= sizes
    assert found == octets
