"""Backups of an index folder, taken while it is written: its state at one commit.

RocksDB makes a checkpoint of the store, and runs never change: both are hard links if the backup is on the same file
system. Row files are copied. Meanwhile no file of the index is deleted or overwritten.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from stream_lsh.embedded.information import information, reading
from stream_lsh.errors import OutputError, StoreError, UsageError
from stream_lsh.index.segments.segment import folder_of
from stream_lsh.index.store.errors import remedy
from stream_lsh.index.store.files import disk_bytes, is_index, looking, make_folder, sync_folder
from stream_lsh.index.store.rocksdb import Store

STORE = "db"
WEBHOOKS = "webhooks"  # folder with what a service has sent to each receiver of alerts
_OPTIONS = "OPTIONS-*"  # files of RocksDB, which have no checksum and are not read
_EXCLUDED = (f"{STORE}.sealed",)  # of the files beside the store


@dataclass(frozen=True, slots=True)
class Backup:
    """A backup. next_seq: all documents before this number are in it. size: its bytes, hard links included."""

    folder: Path
    next_seq: int
    size: int


def backup(folder: Path, destination: Path, checkpoint: Callable[[Path], None]) -> Backup:
    """Make a backup of an index.

    Args:
        folder: of the index, which is in use.
        destination: of the backup, which must not exist.
        checkpoint: makes the checkpoint of the store at a path; `Store.checkpoint` of the process that writes.

    Raises:
        UsageError: there is something at the destination, or it is in the folder of the index.
        OutputError: the backup cannot be written.
        StoreError: the index cannot be read.
    """
    if destination.resolve().is_relative_to(folder.resolve()):
        raise UsageError(f"{destination} is in the folder of the index; name a folder outside of {folder}")
    part = _part_of(destination)
    try:
        with looking(folder):
            checkpoint(part / STORE)
            for path in (part / STORE).glob(_OPTIONS):
                path.unlink()
            with reading(part) as store:
                next_seq = int((store.named("job") or {}).get("next_seq", 0))
                _copy_segments(folder, part, store)
            for path in folder.iterdir():
                if path.is_file() and path.name not in _EXCLUDED:
                    shutil.copyfile(path, part / path.name)
            if (folder / WEBHOOKS).is_dir():
                shutil.copytree(folder / WEBHOOKS, part / WEBHOOKS)
        _finish(part, destination)
    except OSError as error:
        raise OutputError(f"the backup {destination} cannot be written: {error.strerror}; {remedy(error)}") from None
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return Backup(destination, next_seq, disk_bytes(destination))


def backup_of(folder: Path, destination: Path) -> Backup:
    """Make a backup of an index that no process writes to. Raises as `backup`, and StoreError if one does."""
    if not is_index(folder):
        raise StoreError(f"there is no index in {folder}")
    store = Store(folder / STORE)
    try:
        return backup(folder, destination, store.checkpoint)
    finally:
        store.close()


def restore(source: Path, folder: Path) -> Backup:
    """Copy a backup to an index folder, and compare every byte with its checksums. The backup is not changed.

    Raises:
        UsageError: there is something in the folder.
        StoreError: there is no backup, or it is damaged.
        OutputError: the index cannot be written.
    """
    if not is_index(source):
        raise StoreError(f"there is no backup in {source}")
    part = _part_of(folder)
    try:
        shutil.copytree(source, part, ignore=shutil.ignore_patterns(_OPTIONS), dirs_exist_ok=True)
        problems = information(part, check=True)["health"]["problems"]  # type: ignore[index]
        if problems:
            raise StoreError(f"the backup in {source} is damaged: {problems[0]}")
        _finish(part, folder)
    except OSError as error:
        raise OutputError(f"{folder} cannot be written: {error.strerror or error}; {remedy(error)}") from None
    finally:
        shutil.rmtree(part, ignore_errors=True)
    with reading(folder) as store:
        return Backup(folder, int((store.named("job") or {}).get("next_seq", 0)), disk_bytes(folder))


def _part_of(destination: Path) -> Path:
    """An empty folder beside the destination, where it is made."""
    part = destination.with_name(f".{destination.name}.part")
    try:
        if destination.exists() and (not destination.is_dir() or any(destination.iterdir())):
            raise UsageError(f"there is something in {destination}; name a folder that does not exist")
        shutil.rmtree(part, ignore_errors=True)
        make_folder(part)
    except OSError as error:
        raise OutputError(f"{destination} cannot be made: {error.strerror}; {remedy(error)}") from None
    return part


def _copy_segments(folder: Path, part: Path, store: Store) -> None:
    """Copy the files that the checkpoint lists: runs as hard links, row files as copies."""
    index = store.named("index") or {"settings": {"shards": 0}}
    for shard in range(index["settings"].get("shards", 1)):
        for segment in (store.named(f"shard/{shard}") or {"segments": []})["segments"]:
            source, copy = (folder_of(state, segment["number"]) for state in (folder, part))
            (copy / "postings").mkdir(parents=True, exist_ok=True)
            for run in segment["runs"]:
                with suppress(FileNotFoundError):  # lost ones are built again from the rows
                    _link(source / "postings" / run["file"], copy / "postings" / run["file"])
            rows = f"rows-{shard}.bin"
            if (source / rows).exists():
                shutil.copyfile(source / rows, copy / rows)


def _link(source: Path, copy: Path) -> None:
    try:
        os.link(source, copy)
    except FileNotFoundError:
        raise
    except OSError:  # another file system, or one without hard links
        shutil.copyfile(source, copy)


def _finish(part: Path, destination: Path) -> None:
    """Make everything durable, and give it its name."""
    for where, _, names in os.walk(part):
        for name in names:
            with Path(where, name).open("rb") as file:
                os.fsync(file.fileno())
        sync_folder(Path(where))
    if destination.exists():
        destination.rmdir()
    part.rename(destination)
    sync_folder(destination.parent)
