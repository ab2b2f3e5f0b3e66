"""The file with the rows of a segment, against an array."""

from pathlib import Path

import numpy as np
import pytest

from stream_lsh.errors import DamagedError
from stream_lsh.index.rows.row_file import RowFile, Shape
from stream_lsh.settings.model import Settings

SHAPE = Shape(Settings())


def rows_of(n: int, seed: int) -> np.ndarray[tuple[int, int], np.dtype[np.uint64]]:
    return np.random.default_rng(seed).integers(0, 1 << 63, (n, SHAPE.width), np.uint64)


def test_rows_are_overwritten_and_read_in_runs_and_alone(tmp_path: Path) -> None:
    rows, other = rows_of(200, 1), rows_of(200, 2)
    file = RowFile(tmp_path / "rows.bin", SHAPE, 0)
    file.append(rows)
    places = np.array([0, 3, 4, 5, 60, 62, 63, 199])
    file.patch(places, other[places])
    rows[places] = other[places]
    assert np.array_equal(file.read(0, 200), rows)
    some = np.array([2, 3, 4, 61, 62, 199])
    assert np.array_equal(file.at(some), rows[some])
    scattered = np.array([199, 0, 62, 3, 3])
    assert np.array_equal(file.words(scattered, 5), rows[scattered, :5])
    assert len(file.words(np.empty(0, np.int64), 5)) == 0
    file.close()


def test_truncated_file_is_damaged(tmp_path: Path) -> None:
    file = RowFile(tmp_path / "rows.bin", SHAPE, 0)
    file.append(rows_of(9, 1))
    with (tmp_path / "rows.bin").open("r+b") as opened:
        opened.truncate((tmp_path / "rows.bin").stat().st_size - SHAPE.width * 8)
    with pytest.raises(DamagedError, match="has become shorter"):
        file.words(np.array([1, 8]), 5)
    file.close()
