"""Snapshot records applied to a standby: it erases what they have erased."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stream_lsh.index.rows.layout import ERASED, FLAGS
from stream_lsh.index.rows.row_file import RowFile, Shape, blank, unpacked
from stream_lsh.index.segments.erased_rows import PAGE, blanked, erased_of, listed
from stream_lsh.index.segments.segment import folder_of
from stream_lsh.index.store.rocksdb import DECISIONS, ERASED_ROWS, IDS, ROWS, TEXTS, Store, name_key, parts_of
from stream_lsh.wire.bases import Base

Line = Mapping[str, Any]
"""A segment in a shard's manifest."""


def erased_by(base: Base, store: Store, folder: Path, segments: Sequence[Line], shape: Shape) -> dict[bytes, bytes]:
    """The values that a snapshot record changes in a shard that has its rows: what was erased is removed from them.

    A list of erased rows may go beyond the rows of its record. These are made blank, too, because the checksums of a
    flush count erased rows as blank.
    """
    shard, values, blanks = base.shard, dict[bytes, bytes](), defaultdict[int, list[NDArray[np.int64]]](list)
    for key, value in base.values.items():
        if key[:1] in (IDS, TEXTS, ERASED_ROWS, DECISIONS):
            values[key] = value
        elif key[:1] == ROWS:
            _, _, number, first = parts_of(key)
            blanks[number].append(first + np.flatnonzero(unpacked(value)[:, FLAGS] & np.uint64(ERASED)))
    values = {key: value for key, value in values.items() if store.value(key) != value}
    for line in segments:
        number = line["number"]
        erased = [
            listed(value) for key, value in values.items() if key[:1] == ERASED_ROWS and parts_of(key)[2] == number
        ]
        with _rows_of(folder, shard, line, shape) as file:
            if erased and file is not None:
                new = np.setdiff1d(np.concatenate(erased), erased_of(store, shard, number)) - line["first"]
                if len(new := new[new < file.flushed]):
                    before = np.concatenate([file.read(place, place + 1) for place in new.tolist()])
                    values |= file.checksums(store, shard, number, new, before)
        if rows := [*blanks[number], *erased]:
            found = blanked(store, shard, number, np.unique(np.concatenate(rows)), shape.signature_at)
            values |= {key: value for key, value in found.items() if store.value(key) != value}
    return values


def overwrite(store: Store, folder: Path, shard: int, segments: Sequence[Line], shape: Shape) -> None:
    """Blank the erased rows in files, too."""
    for line in segments:
        with _rows_of(folder, shard, line, shape) as file:
            if file is None:
                continue
            places = erased_of(store, shard, line["number"]) - line["first"]
            left = []
            for place in places[places < file.flushed].tolist():
                row = file.read(place, place + 1)
                if not np.array_equal(row, empty := blank(row, shape.signature_at)):
                    left.append((place, empty))
            if left:
                file.patch(np.array([place for place, _ in left]), np.concatenate([row for _, row in left]))


def purge(store: Store, keys: Iterable[bytes]) -> None:
    """Remove the earlier values of these keys from the disk. Neighbouring keys are grouped: a large index may have few
    of them."""
    mine = sorted({key for key in keys if not key.startswith(name_key(""))})
    store.flush(mine)
    for _, group in groupby(mine, key=_page_of):
        store.purge(list(group))


def _page_of(key: bytes) -> tuple[bytes, int, int]:
    kind, _, segment, row = parts_of(key)
    return kind, segment, 0 if kind == DECISIONS else row // PAGE  # decisions are rewritten with their whole segment


@contextmanager
def _rows_of(folder: Path, shard: int, line: Line, shape: Shape) -> Iterator[RowFile | None]:
    """The file with the flushed rows of a segment, None if there are none."""
    if not line["runs"]:
        yield None
        return
    file = RowFile(folder_of(folder, line["number"]) / f"rows-{shard}.bin", shape, line["runs"][-1]["last"])
    try:
        yield file
    finally:
        file.close()
