"""Ids in the store: what is written of them is read again, in either form, and is erased from both."""

import struct
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path

import pytest
import zstandard
from support.contents import unpacked_from

from stream_lsh.errors import DamagedError
from stream_lsh.index.rows.ids import BLOCK, PLAIN, Ids
from stream_lsh.index.store.rocksdb import IDS, Store, rows_key

LONGEST = 4096
EARLIER_BLOCK = 512


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(tmp_path / "db", sync=False)
    yield store
    store.close()


def ids_of(store: Store) -> Ids:
    return Ids(store, 0, lambda row: 0)


def reading(store: Store, n: int) -> Ids:
    """Of n rows, all of which are only in the store."""
    ids = ids_of(store)
    ids.restore(n, n)
    return ids


def named(n: int) -> tuple[list[bytes], list[bytes]]:
    """Ids of some lengths, every fifth with an oldest match."""
    ids = [b'"%s-%d"' % (b"x" * (row % 13), row) for row in range(n)]
    ids[n // 2] = b'"' + b"y" * (LONGEST - 2) + b'"'
    return ids, [ids[row - 4] if row % 5 == 4 else b"" for row in range(n)]


@pytest.mark.parametrize("n", [1, PLAIN - 1, PLAIN, BLOCK, BLOCK + 40])
def test_ids_are_read_as_they_were_added(store: Store, n: int) -> None:
    """One after the other, and all at once."""
    ids, of = named(n)
    written = ids_of(store)
    written.add(ids, of, range(n), n)
    values = written.take(0)
    sizes = [min(BLOCK, n - first) for first in range(0, n, BLOCK)]
    packed = [value.startswith(zstandard.FRAME_HEADER) for value in values.values()]
    assert packed == [size >= PLAIN for size in sizes]
    store.write(values)
    read = reading(store, n)
    assert [read.named(row) for row in range(n)] == list(zip(ids, of, strict=True))
    read.restore(0, n)
    assert read.take(0) == values


def test_values_of_earlier_revisions_are_read(store: Store) -> None:
    """They are not compressed, and have ends instead of lengths."""
    ids, of = named(EARLIER_BLOCK)
    names = [name for pair in zip(ids, of, strict=True) for name in pair]
    ends = struct.pack(f"<{2 * EARLIER_BLOCK}I", *accumulate(map(len, names)))
    store.write({rows_key(IDS, 0, 0, 0): b"".join((struct.pack("<I", EARLIER_BLOCK), ends, *names))})
    read = reading(store, EARLIER_BLOCK)
    assert [read.named(row) for row in range(EARLIER_BLOCK)] == list(zip(ids, of, strict=True))
    (value,) = read.without([7], []).values()
    assert value.startswith(zstandard.FRAME_HEADER)


@pytest.mark.parametrize("n", [PLAIN - 1, BLOCK])
def test_erased_ids_are_in_no_value(store: Store, n: int) -> None:
    ids, of = named(n)
    written = ids_of(store)
    written.add(ids, of, range(n), n)
    store.write(written.take(0))
    rows, naming = [0, 8], [4, 12]
    assert any(ids[8] in data for data in unpacked_from(value for _, value in store.rows_of(IDS, 0, 0)))
    store.write(written.without(rows, naming))
    left = unpacked_from(value for _, value in store.rows_of(IDS, 0, 0))
    assert not any(ids[row] in data for row in rows for data in left)
    read = reading(store, n)
    for row in range(n):
        id, name = (b"null", b"") if row in rows else (ids[row], b"" if row in naming else of[row])
        assert read.named(row) == (id, name)


@pytest.mark.parametrize("n", [PLAIN - 1, BLOCK])
def test_damaged_ids_are_named(store: Store, n: int) -> None:
    """Cut off anywhere, with another size, or with other bytes."""
    written = ids_of(store)
    written.add(*named(n), range(n), n)
    ((key, value),) = written.take(0).items()
    wrong = [value[:end] for end in (0, 3, 4, 9, len(value) // 2, len(value) - 1)]
    if n == BLOCK:
        wrong += [value[:at] + bytes([value[at] ^ 0x40]) + value[at + 1 :] for at in range(4, len(value), 97)]
        huge = b"\xe4" + (1 << 40).to_bytes(8, "little")  # a frame with checksum, and a size of eight bytes
        wrong.append(zstandard.FRAME_HEADER + huge + value[7:])
    for other in wrong:
        store.write({key: other})
        with pytest.raises(DamagedError, match="the ids from row 0 of shard 0 are damaged; restore the folder"):
            reading(store, n).named(0)
