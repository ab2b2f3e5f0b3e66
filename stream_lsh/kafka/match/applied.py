"""Changes of a changelog that a standby writes together, and what they do to the shard's manifest."""

from __future__ import annotations

from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from stream_lsh.index.kernel.document_frequency import superseded
from stream_lsh.index.rows.deleted_rows import DELETED_ROWS, marked
from stream_lsh.index.segments.provisional_rows import facts
from stream_lsh.index.store.rocksdb import Store, name_key
from stream_lsh.kafka.match.kept_answers import KeptAnswers
from stream_lsh.wire.changes import Change, ProvisionalRows


class Applied:
    """Changes to be written together. size: bytes of the records that were read for them, and between them."""

    def __init__(self) -> None:
        self.size = 0
        self._values: dict[bytes, bytes] = {}
        self._deleted: list[bytes] = []
        self._begun: list[tuple[int, int]] = []
        self._deleted_rows = [np.empty(0, np.int64)]
        self._late: ProvisionalRows | None = None

    def add(self, change: Change, answers: KeptAnswers) -> None:
        """Add the next change.

        Raises:
            FormatError: it is damaged.
        """
        self._values.update(change.values)
        self._begun += change.segments()
        self._deleted_rows.append(change.deleted_rows)
        self._late = change.late
        self._values.update({name_key(name): fact for name, fact in change.waiting()})
        self._values.update(answers.add(change, self._deleted, self._values))

    def write(self, store: Store, shard: int, rows: int, others: dict[bytes, bytes]) -> dict[str, Any]:
        """Write everything, with other values. rows: of the shard by then. Returns its new manifest."""
        values, manifest = self._values, manifest_of(store, shard)
        known = manifest["segments"]
        for number, first in self._begun:
            if known and number <= known[-1]["number"]:
                continue
            while known and known[-1]["first"] >= first:  # the segment is empty
                known.pop()
            known.append({"number": number, "first": first, "next": 0, "runs": []})
        manifest |= {"rows": rows, "segments": known}
        if self._late is not None:
            manifest["provisional"] = facts(*self._late)
        values |= deletions(store, shard, manifest, np.concatenate(self._deleted_rows))
        values[name_key(f"shard/{shard}")] = orjson.dumps(manifest)
        passed = superseded(values)  # removes values, so before the next line
        store.write(values | others, self._deleted, passed)
        return manifest


def manifest_of(store: Store, shard: int) -> dict[str, Any]:
    """The shard's manifest in a store."""
    return store.named(f"shard/{shard}") or {"segments": []}


def deletions(store: Store, shard: int, manifest: dict[str, Any], deleted: NDArray[np.int64]) -> dict[bytes, bytes]:
    """The values with these marks (of `newly_marked`), without those of trimmed segments. Updates the count of deleted
    rows in the manifest."""
    segments = [(item["number"], item["first"]) for item in manifest["segments"]]
    deleted = deleted[deleted >> 2 >= (segments[0][1] if segments else manifest["rows"])]
    if not len(deleted):
        return {}
    values, more = marked(store, shard, segments, deleted)
    manifest[DELETED_ROWS] = manifest.get(DELETED_ROWS, 0) + more
    return values
