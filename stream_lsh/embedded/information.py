"""What an index holds, for `stream-lsh info`: documents, segments, sizes, settings, age, health."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from stream_lsh.documents.times import moment
from stream_lsh.embedded.erasure import Erasure, erasure, remains
from stream_lsh.errors import DamagedError, StoreError, StreamLshError
from stream_lsh.families.measure import unused
from stream_lsh.index.index import TRIES
from stream_lsh.index.postings.run import REMEDY, Run, earlier, read_header
from stream_lsh.index.rows.deleted_rows import DELETED_ROWS, DeletedRows
from stream_lsh.index.rows.row_file import RowFile, Shape
from stream_lsh.index.segments.erased_rows import erased_of
from stream_lsh.index.segments.identity import check_format
from stream_lsh.index.segments.segment import FOLDER, folder_of
from stream_lsh.index.segments.stream_time import shown
from stream_lsh.index.store.errors import plainly
from stream_lsh.index.store.files import disk_bytes, looking
from stream_lsh.index.store.rocksdb import Store
from stream_lsh.settings.model import Settings

SHOWN = 20  # inputs and segments, the latest


def stored_answers(folder: Path) -> Mapping[str, Any] | None:
    """The settings that fix the answers of the index in a index folder, as `Settings.answers` has them; None if its
    store holds none yet. Another process may be writing to it.

    Raises:
        StoreError: there is no store in the folder, it cannot be read, or has another format.
    """
    with reading(folder) as store:
        index = store.named("index")
        return None if index is None else dict(index["settings"])


@dataclass(frozen=True, slots=True)
class _Stored:
    """What the store says of an index."""

    index: Mapping[str, Any]
    job: Mapping[str, Any]
    shards: list[Mapping[str, Any]]
    inputs: list[Mapping[str, Any]]
    window: Mapping[str, Any] | None
    settings: Settings
    erasure: Erasure


def information(folder: Path, check: bool = False) -> dict[str, object]:
    """Nested facts about the index in a index folder, as it was committed last; another process may be writing to it.

    Args:
        check: verify every file to the last byte (reads them all).

    Raises:
        StoreError: if there is no index, it has another format, or its store is damaged.
    """
    with reading(folder) as store:
        found = _stored(store, folder)
        problems = list(_problems(folder, found, store if check else None))
    return _worded(folder, found, problems, check)


@contextmanager
def reading(folder: Path) -> Iterator[Store]:
    """The store of the index in a index folder, as it was committed last; another process may be writing to it.

    Raises:
        StoreError: there is none, it cannot be read, or has another format.
    """
    with plainly(folder), looking(folder):
        store = _opened(folder / "db")
        try:
            if (index := store.named("index")) is not None:
                check_format(index, store.path)
            yield store
        finally:
            store.close()


def _opened(path: Path) -> Store:
    for _ in range(TRIES - 1):
        with suppress(DamagedError):  # RocksDB may have replaced files of its own meanwhile
            return Store(path, read_only=True)
    return Store(path, read_only=True)


def _stored(store: Store, folder: Path) -> _Stored:
    index = store.named("index") or store.named("replica")  # a shard of a match worker on Kafka
    if index is None:
        raise StoreError(f"{folder} holds no index: the run that made it wrote nothing, or its files were lost")
    settings = Settings().of_index(index["settings"], f"the index in {folder}")
    shards = [
        store.named(f"shard/{number}") or {"rows": 0, "segments": []} for number in range(settings.shards)
    ]  # fmt: skip
    inputs = [value for _, value in store.items("input/")]
    return _Stored(index, store.named("job") or {}, shards, inputs, store.named("window"), settings, erasure(store))


def _problems(folder: Path, found: _Stored, store: Store | None) -> Iterator[str]:
    """What is wrong with the files; without a store only a look at names and sizes."""
    if store is not None and (problem := store.verify()) is not None:
        yield problem
    for number, shard in enumerate(found.shards):
        for segment, later in zip_longest(shard["segments"], shard["segments"][1:]):
            try:
                end = shard["rows"] if later is None else later["first"]
                yield from _of_segment(folder, found, store, number, segment, end)
            except StreamLshError as error:
                yield str(error)
        if store is not None:
            places = [(segment["number"], segment["first"]) for segment in shard["segments"]]
            try:
                DeletedRows.of(_rows_removed(shard)).restore(
                    store, number, places, shard["rows"], shard.get(DELETED_ROWS, 0)
                )
            except StreamLshError as error:
                yield str(error)


def _of_segment(
    folder: Path, found: _Stored, store: Store | None, shard: int, known: Mapping[str, Any], end: int
) -> Iterator[str]:
    folder, runs = folder_of(folder, known["number"]), known["runs"]
    paths = [folder / "postings" / item["file"] for item in runs]
    for path in [] if earlier(paths) == {True} else paths:  # a writer builds those again from the rows
        try:
            if store is None:
                read_header(path)
            else:
                Run.open(path, check=True)
        except OSError as error:
            yield f"{path}: {error.strerror}; {REMEDY.format(path.parent)}"
        except StreamLshError as error:
            yield str(error)
    flushed = runs[-1]["last"] if runs else 0
    rows = RowFile(folder / f"rows-{shard}.bin", Shape(found.settings), flushed, read_only=True)
    try:
        if store is not None:
            number, first = known["number"], known["first"]
            erased = erased_of(store, shard, number)
            rows.verify(store, shard, number, erased - first)
            yield from remains(store, shard, found.settings, number, first, end, rows, erased)
    finally:
        rows.close()


def _worded(folder: Path, found: _Stored, problems: list[str], check: bool) -> dict[str, object]:
    index, job = found.index, found.job
    created, committed = index["created"], job.get("time", index["created"])
    held = [shard["rows"] - _rows_removed(shard) - shard.get(DELETED_ROWS, 0) for shard in found.shards]
    rows = sum(held)
    bytes_on_disk = {name: disk_bytes(folder / name) for name in ("db", FOLDER) if (folder / name).is_dir()}
    total = sum(bytes_on_disk.values())
    segments = _segments(folder, found)
    return {
        "documents": {
            "stored": rows, "seen": job.get("next_seq", rows), "shards": held
        },
        "bytes": {**bytes_on_disk, "total": total, "per_document": round(total / rows, 1) if rows else None},
        "segments": {"number": len(segments), "latest": segments[-SHOWN:]},
        **_remembered(found),
        **_erased(found, problems if check else None),
        "age": {
            "created": _when(created),
            "last_commit": _when(committed),
            "seconds_since_commit": max(0, int(time.time()) - committed),
        },
        "settings": {**_used(found.settings), "fingerprint": found.settings.fingerprint},
        "inputs": {
            "known": len(found.inputs),
            "latest": [
                {"path": item["path"], "line": item["line"], "done": item["done"]} for item in found.inputs[-SHOWN:]
            ],
        },
        "outputs": {place: folder["length"] for place, folder in job.get("outputs", {}).items()},
        "health": {
            "interrupted": bool(job.get("open")),
            "checked": "every byte" if check else "names and sizes (use --check for every byte)",
            "problems": problems,
        },
    }  # fmt: skip


def _used(settings: Settings) -> dict[str, Any]:
    """The answers, without what this measure does not use; K, b and r follow from what it does."""
    idle = unused(settings.measure)
    if settings.measure != "containment":
        idle -= set(settings.banding._fields)
    return {name: value for name, value in settings.answers.items() if name not in idle}


def _rows_removed(shard: Mapping[str, Any]) -> int:
    """How many rows of a shard are not there any more."""
    return int(shard["segments"][0]["first"] if shard["segments"] else shard["rows"])


def _remembered(found: _Stored) -> dict[str, object]:
    """The window, its stream time, and how often that jumped by more than the window. Empty without a window."""
    if found.settings.window is None:
        return {}
    known = found.window or {"log": None, "jumps": 0}
    now = shown(known["log"])
    since = moment(now - found.settings.window_ms) if now >= 0 else None
    return {
        "window": {
            "length": found.settings.window, "stream_time": moment(now) if now >= 0 else None,
            "remembered_since": since,
            "jumps": known["jumps"],
        }
    }  # fmt: skip


def _erased(found: _Stored, problems: list[str] | None) -> dict[str, object]:
    """How many versions were erased, and how many are queued. Empty if no version was ever deleted or replaced.
    problems: found by a check that looked for remains."""
    erased, left, oldest, due = found.erasure
    if not erased and not left:
        return {}
    said: dict[str, object] = {"erased": erased, "waiting": left}
    if oldest is not None and due is not None:
        said |= {
            "oldest_deleted": _when(oldest),
            "seconds_waiting": max(0, int(time.time()) - oldest),
            "due": _when(due),
        }
    if problems is not None:
        said["left_of_the_erased"] = "see the problems" if problems else "nothing"
    return {"erasing": said}


def _segments(folder: Path, found: _Stored) -> list[dict[str, Any]]:
    """Each segment with the documents of all shards, how many of them are in files, and its runs of postings; with a
    window, the stream times that it spans."""
    window = found.window or {"segments": [], "log": {}}
    shift = window["log"].get("shift", 0)
    spans = {
        span["number"]: {"from": moment(span["first"] - shift), "to": moment(span["last"] - shift)}
        for span in window["segments"]
    }
    sums: dict[int, dict[str, int]] = {}
    for shard in found.shards:
        known = shard["segments"]
        for item, later in zip_longest(known, known[1:]):
            end = shard["rows"] if later is None else later["first"]
            values = sums.setdefault(item["number"], {"documents": 0, "in_files": 0, "runs": 0})
            values["documents"] += end - item["first"]
            values["in_files"] += item["runs"][-1]["last"] if item["runs"] else 0
            values["runs"] += len(item["runs"])
    return [
        {"segment": number, **spans.get(number, {}), **values, "bytes": disk_bytes(folder_of(folder, number))}
        for number, values in sorted(sums.items())
    ]


def _when(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
