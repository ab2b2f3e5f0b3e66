"""What an index holds, for `stream-lsh info`: documents, sizes, settings, age, health."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from stream_lsh.errors import StateError, StreamLshError
from stream_lsh.families.tuning import component_bytes
from stream_lsh.index import seal
from stream_lsh.index.index import FORMAT, disk_bytes
from stream_lsh.index.rows import row_width, rows_checksum
from stream_lsh.index.runs import PAGE, REMEDY, Run, read_header
from stream_lsh.index.store import Store

SHOWN_INPUTS = 20


def information(state: Path, check: bool = False) -> dict[str, object]:
    """Nested facts about the index in a state folder.

    Args:
        check: verify every derived file to the last byte (reads them all).

    Raises:
        StateError: if there is no index, another process has it, or its store is damaged.
    """
    seal.check(state / "db")
    if not (state / "db" / "CURRENT").exists():  # opening it would make one
        raise StateError(f"there is no index in {state}; a run with --state {state} makes one")
    store = Store(state / "db")
    try:
        index = store.named("index")
        if index is None:
            raise StateError(f"{state} holds no index: the run that made it wrote nothing, or its files were lost")
        if index.get("format") != FORMAT:
            raise StateError(
                f"the index in {state} has format {index.get('format')}, this version reads {FORMAT}; "
                "start a new folder and feed it again"
            )
        job = store.named("job") or {}
        shards = [
            store.named(f"shard/{number}") or {"rows": 0, "flushed": 0, "runs": []}
            for number in range(index["settings"]["shards"])
        ]
        inputs = [value for _, value in store.items("input/")]
        problems = (
            _check(state / "postings", index["settings"], shards, store)
            if check
            else _missing(state / "postings", index["settings"], shards)
        )
    finally:
        store.close()
    created, committed = index["created"], job.get("time", index["created"])
    rows = sum(shard["rows"] for shard in shards)
    bytes_on_disk = {name: disk_bytes(state / name) for name in ("db", "postings") if (state / name).is_dir()}
    total = sum(bytes_on_disk.values())
    return {
        "documents": {"stored": rows, "seen": job.get("next_seq", rows), "shards": [shard["rows"] for shard in shards]},
        "bytes": {**bytes_on_disk, "total": total, "per_document": round(total / rows, 1) if rows else None},
        "age": {
            "created": _when(created),
            "last_commit": _when(committed),
            "seconds_since_commit": max(0, int(time.time()) - committed),
        },
        "settings": {**index["settings"], "fingerprint": index["fingerprint"]},
        "inputs": {
            "known": len(inputs),
            "latest": [
                {"path": item["path"], "line": item["line"], "done": item["done"]} for item in inputs[-SHOWN_INPUTS:]
            ],
        },
        "outputs": {place: state["length"] for place, state in job.get("outputs", {}).items()},
        "postings": {
            "runs": [len(shard["runs"]) for shard in shards],
            "flushed": [shard["flushed"] for shard in shards],
        },
        "health": {
            "interrupted": bool(job.get("open")),
            "checked": "every byte" if check else "names and sizes (use --check for every byte)",
            "problems": problems,
        },
    }


def _missing(folder: Path, settings: dict[str, Any], shards: list[dict[str, Any]]) -> list[str]:
    """What a look at names and sizes finds."""
    problems = []
    for number, shard in enumerate(shards):
        for run in shard["runs"]:
            try:
                read_header(folder / run["file"])
            except StreamLshError as error:
                problems.append(str(error))
            except OSError as error:
                problems.append(f"{folder / run['file']}: {error.strerror}; {REMEDY.format(folder)}")
        path = folder / f"rows-{number}.bin"
        expected = PAGE + shard["flushed"] * _width(settings) * 8
        if shard["flushed"] and (not path.exists() or path.stat().st_size < expected):
            problems.append(f"{path} is missing or too short; {REMEDY.format(folder)}")
    return problems


def _width(settings: dict[str, Any]) -> int:
    return row_width(settings["signature_size"], settings["bands"], component_bytes(settings["rows"]))


def _check(folder: Path, settings: dict[str, Any], shards: list[dict[str, Any]], store: Store) -> list[str]:
    width = _width(settings)
    found = store.verify()
    problems = [] if found is None else [found]
    for number, shard in enumerate(shards):
        for item in shard["runs"]:
            try:
                Run.open(folder / item["file"], check=True)
            except StreamLshError as error:
                problems.append(str(error))
        first = 0
        while first < shard["flushed"]:
            flush = store.named(f"flush/{number}/{first}")
            path = folder / f"rows-{number}.bin"
            if flush is None or rows_checksum(path, width, first, flush["last"]) != flush["crc"]:
                problems.append(f"{path} is damaged in the rows from {first}; {REMEDY.format(folder)}")
                break
            first = flush["last"]
    return problems


def _when(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
