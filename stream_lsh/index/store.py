"""The durable part of an index: one RocksDB, written in atomic batches.

Keys are a letter for the kind, the shard (uint16) and the first row of the value's rows (uint64), big endian, so that
a value is found by seeking backwards from a row; other facts (`put` by name) are JSON under `m/NAME`. Values are
blobs of many rows.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson
from rocksdict import DBCompressionType, Options, Rdict, ReadOptions, WriteBatch, WriteOptions

from stream_lsh.errors import DamagedError, OutputError, StateError
from stream_lsh.index import seal
from stream_lsh.index.refusals import plainly, refusal, refused, remedy

ROWS, IDS, TEXTS, ANSWERS = b"r", b"i", b"t", b"a"
_KEY = struct.Struct(">cHQ")
_DAMAGE = ("Corruption", "No such file", "does not exist")  # in what RocksDB says of files cut off, changed or missing


class Store:
    """A RocksDB database.

    Raises:
        DamagedError: what it has stored is missing, cut off or changed.
        StateError: another process has it, or the system refuses it (too many open files, no rights, a full disk); the
        message names the folder.
    """

    def __init__(self, path: Path, *, sync: bool = True) -> None:
        self.path = path
        self._sync = sync
        with plainly(path):
            seal.check(path)
            seal.remove(path)
        options = Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_compression_type(DBCompressionType.none())  # texts are compressed, signatures do not compress
        options.set_enable_blob_files(True)
        options.set_min_blob_size(1024)
        options.set_write_buffer_size(8 << 20)
        options.set_max_write_buffer_number(2)
        options.set_keep_log_file_num(2)
        options.set_max_open_files(256)
        options.set_skip_stats_update_on_db_open(True)
        try:
            self._db = Rdict(str(path), options)
        except Exception as error:
            raise _state_error(path, error) from None
        seal.remove(path)
        self._write_options = WriteOptions()
        self._write_options.sync = sync

    def write(self, values: Mapping[bytes, bytes], deleted: Iterable[bytes] = ()) -> None:
        """Write all values and delete keys, or nothing; on disk when it returns (if the store is durable)."""
        batch = WriteBatch(raw_mode=True)
        for key in deleted:
            batch.delete(key)
        for key, value in values.items():
            batch.put(key, value)
        try:
            self._db.write(batch, self._write_options)
        except Exception as error:
            raise _output_error(self.path, error) from None

    def named(self, name: str) -> Any:
        """The JSON value stored under a name, or None."""
        value = self.value(name_key(name))
        try:
            return None if value is None else orjson.loads(value)
        except orjson.JSONDecodeError:
            raise DamagedError(
                f"{self.path}: the entry {name!r} is damaged; restore the folder from a backup or start a new one"
            ) from None

    def items(self, prefix: str) -> Iterator[tuple[str, Any]]:
        """All JSON values whose names begin with `prefix`, by name."""
        start = name_key(prefix)
        try:
            cursor = self._db.iter(ReadOptions())
            cursor.seek(start)
            while cursor.valid() and cursor.key().startswith(start):
                yield cursor.key()[len(name_key("")) :].decode(), orjson.loads(cursor.value())
                cursor.next()
        except orjson.JSONDecodeError as error:
            raise DamagedError(
                f"{self.path}: an entry {prefix}... is damaged ({error}); restore the folder from a backup"
            ) from None

    def holding(self, kind: bytes, shard: int, row: int) -> tuple[int, bytes]:
        """The value of a kind that holds a row: its first row, and its bytes.

        Raises:
            StateError: if there is none.
        """
        try:
            cursor = self._db.iter(ReadOptions())
            cursor.seek_for_prev(_KEY.pack(kind, shard, row))
            if cursor.valid():
                found_kind, found_shard, first = _KEY.unpack(cursor.key())
                if (found_kind, found_shard) == (kind, shard):
                    return first, cursor.value()
        except struct.error:
            pass
        except Exception as error:
            raise _state_error(self.path, error) from None
        raise DamagedError(
            f"{self.path}: row {row} of shard {shard} is missing; restore the folder from a backup or start a new one"
        )

    def numbers(self, kind: bytes, shard: int) -> list[int]:
        """The numbers (first rows, offsets) under which a shard has values of a kind, ascending."""
        found = []
        cursor = self._db.iter(ReadOptions())
        cursor.seek(_KEY.pack(kind, shard, 0))
        while cursor.valid() and cursor.key().startswith(_KEY.pack(kind, shard, 0)[:3]):
            found.append(_KEY.unpack(cursor.key())[2])
            cursor.next()
        return found

    def value(self, key: bytes) -> bytes | None:
        """The value of a key, or None."""
        try:
            value: bytes | None = self._db.get(key)
        except Exception as error:
            raise _state_error(self.path, error) from None
        return value

    def verify(self) -> str | None:
        """Read everything, with its checksums; what is wrong, or None."""
        cursor = self._db.iter(ReadOptions())
        try:
            cursor.seek_to_first()
            while cursor.valid():
                cursor.value()
                cursor.next()
            cursor.status()
        except Exception as error:
            return str(_state_error(self.path, error))
        return None

    def close(self) -> None:
        try:
            self._db.close()
        except Exception as error:
            raise _output_error(self.path, error) from None
        if self._sync:
            seal.write(self.path)


def rows_key(kind: bytes, shard: int, first: int) -> bytes:
    """The key of a value whose first row is `first`."""
    return _KEY.pack(kind, shard, first)


def name_key(name: str) -> bytes:
    """The key of a JSON value."""
    return b"m/" + name.encode()


def _output_error(path: Path, error: Exception) -> OutputError:
    return OutputError(f"the index in {path} cannot be written: {error}; {remedy(error)} and start again to go on")


def _state_error(path: Path, error: Exception) -> StateError:
    """What RocksDB says, as far as it is known: what is taken for damage may be deleted."""
    text = " ".join(str(error).split())
    if refusal(error) is not None:
        return refused(f"the index in {path.parent}", error)
    if "/LOCK" in text or "lock hold" in text:  # not any lock: a damaged file has a "block checksum mismatch"
        return StateError(
            f"the index in {path.parent} is in use by another process; wait for it to end, or use another folder"
        )
    if any(sign in text for sign in _DAMAGE):
        return DamagedError(
            f"the index in {path.parent} cannot be read: {text}; restore {path} from a backup or start a new folder"
        )
    return StateError(
        f"the index in {path.parent} cannot be read: {text}; remove the cause, or restore {path} from a backup or "
        "start a new folder"
    )
