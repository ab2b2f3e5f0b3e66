"""The seal of a closed store: names and sizes of its files. Opening detects by it that a file was lost or truncated.

RocksDB takes a truncated MANIFEST for the result of a crash: it opens an older or an empty database, and deletes the
files that this one does not list. Missing files must therefore be detected before. A store that was not closed (a
crash, kill -9) has no seal, because its files may end anywhere.
"""

from __future__ import annotations

import fcntl
import zlib
from contextlib import suppress
from pathlib import Path

import orjson

from stream_lsh.errors import DamagedError
from stream_lsh.index.store.files import sync_folder

DATA = (".sst", ".blob", ".log")
REMEDY = "restore the whole folder {} from a backup or start a new one"


def check(store: Path) -> None:
    """Raise DamagedError, with file and remedy, if a file is missing or its size differs from the seal."""
    remedy = REMEDY.format(store.parent)
    if store.is_dir() and not (store / "CURRENT").exists() and any(path.suffix in DATA for path in store.iterdir()):
        raise DamagedError(f"{store / 'CURRENT'} is missing, and the other files cannot be read without it; {remedy}")
    try:
        sizes = orjson.loads(_path(store).read_bytes())
    except (FileNotFoundError, orjson.JSONDecodeError):  # no seal, or one that was never completed
        return
    for name, (size, checksum) in sizes.items():
        try:
            found, found_checksum = _measure(store / name)
        except FileNotFoundError:
            raise DamagedError(f"{store / name} is missing; {remedy}") from None
        if found != size:
            raise DamagedError(f"{store / name} is damaged: it has {found} bytes instead of {size}; {remedy}")
        if found_checksum != checksum:
            raise DamagedError(f"{store / name} is damaged: its checksum is another; {remedy}")


def remove(store: Path) -> None:
    """Remove the seal, because the files change from now on. Call it before and after opening."""
    if _path(store).exists():
        _path(store).unlink(missing_ok=True)
        with suppress(OSError):
            sync_folder(store.parent)  # a seal that a power cut restores would report whole files as damaged


def write(store: Path) -> None:
    """Seal a closed store. There is no seal if the disk is full or another process has opened the store."""
    with suppress(OSError), (store / "LOCK").open("r+b") as lock:
        # RocksDB's lock: no other process can open the store meanwhile
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        files = [path for path in store.iterdir() if not path.name.startswith(("LOG", "LOCK"))]
        sizes = {path.name: _measure(path) for path in files if path.is_file()}
        _path(store).write_bytes(orjson.dumps(sizes))


def _measure(path: Path) -> tuple[int, int | None]:
    """Size; and the CRC-32 of the small files that name the others (files with data have checksums of their own)."""
    named = path.name == "CURRENT" or path.name.startswith("MANIFEST")
    return path.stat().st_size, zlib.crc32(path.read_bytes()) if named else None


def _path(store: Path) -> Path:
    return store.with_name(f"{store.name}.sealed")
