"""One shard of the index: rows, texts and postings, and the kernel over them.

Rows (with their texts and ids) are the truth and live in the store; postings and the row file are derived, live in
the shard's own folder and are rebuilt from the rows above the last flush, or from all rows if the folder is gone.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import orjson
from numpy.typing import NDArray

from stream_lsh.errors import DamagedError, StateError, StreamLshError
from stream_lsh.families.bands import band_keys
from stream_lsh.families.tuning import component_bytes
from stream_lsh.index import layout
from stream_lsh.index import match as kernel
from stream_lsh.index.batch import Shingles, SignedBatch
from stream_lsh.index.buckets import all_keys, passing
from stream_lsh.index.heap import trim
from stream_lsh.index.ids import Ids
from stream_lsh.index.layout import Documents, Limits
from stream_lsh.index.memory import Memory
from stream_lsh.index.postings import Postings
from stream_lsh.index.rows import RowTable
from stream_lsh.index.runs import REMEDY
from stream_lsh.index.sets import SetCache, verify
from stream_lsh.index.store import ROWS, Store, name_key, rows_key
from stream_lsh.index.texts import Texts
from stream_lsh.settings import Settings

BATCH = 4096  # most documents of one batch
CACHED_SHINGLES = 8 << 20  # 64 MB
LOADED_BYTES = 32 << 20  # texts read from the store at a time
_ROWS = struct.Struct("<III")  # rows, links, width

Shingle = Callable[[bytes, NDArray[np.int64]], tuple[NDArray[np.uint64], NDArray[np.int64]]]


@dataclass(frozen=True, slots=True)
class Matches:
    """What one shard found for a batch of n documents; parallel arrays of m matches in the order of documents, then
    the arrays of n.

    `more` counts matches that were not listed (copies beyond the limit).
    """

    document: NDArray[np.int64]
    row: NDArray[np.int64]
    seq: NDArray[np.int64]
    similarity: NDArray[np.float64]
    same_text: NDArray[np.bool_]
    status: NDArray[np.uint8]
    row_of: NDArray[np.int64]
    more: NDArray[np.int64]


class Shard:
    """A shard, opened at its last committed row.

    base: rows before it do not exist (a changelog that was trimmed has lost them).
    """

    def __init__(
        self,
        number: int,
        settings: Settings,
        store: Store,
        folder: Path,
        shingle: Shingle,
        postings: Postings,
        *,
        base: int = 0,
    ) -> None:
        signing = settings.signing
        self.number = number
        self._settings = settings
        self._store = store
        self._shingle = shingle
        kind = np.uint16 if component_bytes(signing.rows) == 2 else np.uint32
        room = settings.memory_documents // settings.shards + BATCH
        self._room = room
        self.rows = RowTable(folder / f"rows-{number}.bin", room, signing.signature_size, signing.bands, kind)
        self._memory = Memory.of(room * (signing.bands + 2))
        self.postings = postings
        self.texts = Texts(store, number)
        self.ids = Ids(store, number)
        self._exact = settings.verify == "exact"
        self._sets = SetCache(CACHED_SHINGLES // settings.shards if self._exact else 0)
        self._limits = limits(settings)
        self._links: list[NDArray[np.int64]] = []
        self._committed = 0
        self.unread = np.zeros(2, np.int64)
        try:
            self.rows.leave_out(base)
            self._restore()
        except BaseException:
            with suppress(StreamLshError):
                postings.finish()  # a flush syncs the rows' file in the background
            self.rows.close()
            raise

    # -- matching ---------------------------------------------------------------------------------------------------

    def match(self, batch: SignedBatch) -> Matches:
        """Match a batch against everything before it and store what is new and its own (under `against any`)."""
        step = Step(self, batch.owned_by(self.number), batch.shingles)
        step.run(0, len(batch), layout.OPEN)
        return step.matches()

    def step(self, batch: SignedBatch, documents: Documents) -> Step:
        """The same, for the caller to decide document by document (under `against unique`, or to store nothing)."""
        return Step(self, documents, batch.shingles)

    def keep(self, matches: Matches, batch: SignedBatch) -> None:
        """Keep ids, texts and sets of what a batch stored, until `commit` and after."""
        stored = (matches.row_of >= 0) & (matches.status == layout.NEW)
        self.ids.add([batch.ids[i] for i in np.flatnonzero(stored).tolist()])
        if self._exact:
            self.texts.add(batch.frames[self.number], matches.row_of, stored)
            shingles, offsets = batch.shingles.known()
            at_hand = stored & (np.diff(offsets) > 0)
            self._sets.add(np.where(at_hand, matches.row_of, -1), shingles, offsets)

    # -- durability -------------------------------------------------------------------------------------------------

    def take(self) -> dict[bytes, bytes]:
        """The values that make everything up to now durable, for one atomic write."""
        count, base = int(self.rows.count[0]), self.rows.base
        values: dict[bytes, bytes] = {}
        if count > self._committed:
            words = self.rows.recent[self._committed - base : count - base]
            links = np.concatenate(self._links) if self._links else np.empty((0, 2), np.int64)
            value = b"".join((_ROWS.pack(len(words), len(links), self.rows.width), words.tobytes(), links.tobytes()))
            values[rows_key(ROWS, self.number, self._committed)] = value
            values.update(self.ids.take(self._committed))
            values.update(self.texts.take())
        self._links = []
        self._committed = count
        return values | self.manifest()

    def manifest(self) -> dict[bytes, bytes]:
        """The value that says how many rows are committed and which files hold the flushed ones."""
        facts = {"rows": self._committed, **self.postings.manifest()}
        return {name_key(f"shard/{self.number}"): orjson.dumps(facts)}

    @property
    def full(self) -> bool:
        """Whether the memory segment must be flushed before another batch."""
        return int(self.rows.count[0]) - self.rows.base + BATCH > self._room

    def flush(self) -> None:
        """Turn the memory segment into a run; everything must be committed."""
        first, last = self.rows.base, int(self.rows.count[0])
        keys, rows = self._memory.sorted()
        checksum = self.rows.flush()
        self.postings.add(keys, rows, first, last, checksum, self.rows)
        self._memory.clear()
        self.ids.forget(last)
        trim()

    def _restore(self) -> None:
        state = self._store.named(f"shard/{self.number}") or {"rows": 0}
        self.rows.set_flushed(self.postings.flushed)
        self._committed = int(state["rows"])
        self.rows.count[0] = self.rows.base
        width = self.rows.width
        while (row := int(self.rows.count[0])) < self._committed:
            first, value = self._store.holding(ROWS, self.number, row)
            try:
                n_rows, n_links, found_width = _ROWS.unpack_from(value)
                words = np.frombuffer(value, np.uint64, n_rows * found_width, _ROWS.size).reshape(n_rows, found_width)
                links = np.frombuffer(value, np.int64, 2 * n_links, _ROWS.size + words.nbytes).reshape(n_links, 2)
            except (struct.error, ValueError):
                n_rows = found_width = 0
            if found_width != width or not first <= row < first + n_rows:
                raise DamagedError(
                    f"{self._store.path}: the rows from {first} of shard {self.number} are damaged; "
                    "restore the folder from a backup"
                )
            last = min(first + n_rows, self._committed, self.rows.base + self._room)
            self.rows.recent[row - self.rows.base : last - self.rows.base] = words[row - first : last - first]
            self.rows.count[0] = last
            mine = links[(links[:, 0] >= row) & (links[:, 0] < last)]
            self._replay(row, last, mine)
            if self.full:  # also after the last rows: the next batch needs its room
                self.flush()
        self.ids.restore(self.rows.base, self._committed)

    def _replay(self, first: int, last: int, links: NDArray[np.int64]) -> None:
        signing = self._settings.signing
        view = self.rows.view()
        words = self.rows.recent[first - self.rows.base : last - self.rows.base]
        bands = band_keys(self.rows.signatures(first, last), signing.bands, signing.rows)
        keys = all_keys(bands, words[:, layout.ID : layout.ID + 2], words[:, layout.TEXT : layout.TEXT + 2])
        kernel.replay(view, self._memory, self._limits, keys, first, last, np.ascontiguousarray(links))

    def close(self) -> None:
        self.rows.close()


class Step:
    """One batch on its way through a shard."""

    def __init__(self, shard: Shard, documents: Documents, shingles: Shingles) -> None:
        n = len(documents.valid)
        self._shard = shard
        self._documents = documents
        self._shingles = shingles
        self._masks = passing(documents.keys, shard.postings.runs)
        self._first_row = int(shard.rows.count[0])
        self._found: list[tuple[NDArray[np.int64], NDArray[np.float64]]] = []
        self.status = np.full(n, layout.INVALID, np.uint8)
        self.row_of = np.full(n, -1, np.int64)

    def run(self, start: int, stop: int, decision: int) -> tuple[int, bool]:
        """Run the kernel from `start`; returns the position reached and whether that document, if a decision on it is
        asked, has matches."""
        shard = self._shard
        try:
            reached, found, links = kernel.match(
                start, stop, decision, self._documents, self._masks, shard.rows.view(), shard.rows.count, shard._memory,
                shard.postings.runs, shard._limits, self.status, self.row_of, shard.unread,
            )  # fmt: skip
        except OSError as error:
            folder = shard.rows.path.parent
            raise StateError(f"{folder}: {error}; {REMEDY.format(folder)}") from None
        if len(links):
            shard._links.append(links.copy())
        similarity = self._similarity(found)
        keep = np.flatnonzero(similarity >= shard._settings.threshold)
        matched = reached < stop and bool(np.any(found[keep, layout.DOCUMENT] == reached))
        self._found.append((found[keep].copy(), similarity[keep]))
        return int(reached), matched

    def matches(self) -> Matches:
        """All that was found so far, as matches at or above the threshold."""
        found = np.concatenate([part for part, _ in self._found]) if self._found else np.empty((0, 6), np.int64)
        similarity = np.concatenate([part for _, part in self._found]) if self._found else np.empty(0)
        more = np.zeros(len(self.status), np.int64)
        np.add.at(more, found[:, layout.DOCUMENT], found[:, layout.MORE])
        rows = found[:, layout.ROW]
        seqs = self._shard.rows.words(rows, layout.SEQ).astype(np.int64)
        return Matches(
            found[:, layout.DOCUMENT],
            rows,
            seqs,
            similarity,
            found[:, layout.KIND] == layout.SAME_TEXT,
            self.status,
            self.row_of,
            more,
        )

    def _similarity(self, found: NDArray[np.int64]) -> NDArray[np.float64]:
        settings = self._shard._settings
        if settings.verify == "signature":
            similarity = estimate(found[:, layout.AGREEMENT], settings)
        else:
            similarity = self._exact(found)
        similarity[found[:, layout.KIND] == layout.SAME_TEXT] = 1.0
        copies = np.flatnonzero(found[:, layout.KIND] == layout.COPY_OF)
        similarity[copies] = similarity[found[copies, layout.OF]]
        return similarity

    def _exact(self, found: NDArray[np.int64]) -> NDArray[np.float64]:
        out = np.full(len(found), -1.0)
        if not len(found):
            return out
        shard, cache = self._shard, self._shard._sets
        stored = np.flatnonzero((self.row_of >= self._first_row) & (self.status == layout.NEW))
        candidates = found[found[:, layout.KIND] == layout.VERIFY]
        older = candidates[:, layout.ROW] - self._first_row
        in_batch = stored[older[(older >= 0) & (older < len(stored))]]
        sets = self._shingles.of(np.union1d(candidates[:, layout.DOCUMENT], in_batch))
        nothing = np.empty(0, np.uint64), np.zeros(1, np.int64), np.empty(0, np.int64)
        own = *sets, self._first_row, stored, cache.ring, cache.slots, cache.written
        verify(found, *own, *nothing, out)
        missing = np.unique(found[out < 0, layout.ROW])
        while len(missing):
            texts, ends, size = [], [], 0
            for row in missing.tolist():
                texts.append(bytes(shard.texts.read(row)))
                size += len(texts[-1])
                ends.append(size)
                if size >= LOADED_BYTES:
                    break
            shingles, offsets = shard._shingle(b"".join(texts), np.array(ends, np.int64))
            verify(found, *own, shingles, offsets, missing[: len(texts)], out)
            cache.add(missing[: len(texts)], shingles, offsets)
            missing = missing[len(texts) :]
        return out


def estimate(agreement: NDArray[np.int64], settings: Settings) -> NDArray[np.float64]:
    """Similarity from the number of equal components, corrected for equality by accident of components of w bits."""
    accident = 2.0 ** -(8 * component_bytes(settings.signing.rows))
    share = agreement / settings.signing.signature_size
    return np.clip((share - accident) / (1 - accident), 0.0, 1.0)


def limits(settings: Settings) -> Limits:
    """The kernel's limits: a candidate is discarded below t - 4 sigma; a leader is followed from (1 + t) / 2.

    A follower differs from its leader by at most (1 - t) / 2, so its matches differ from the leader by at most 1.5 (1
    - t).
    """
    t, size = settings.threshold, settings.signing.signature_size
    sigma = (t * (1 - t) / size) ** 0.5
    spread = ((3 * t - 1) / 2 * (1 - (3 * t - 1) / 2) / size) ** 0.5 if 3 * t > 1 else 0.0
    floor = t if settings.verify == "signature" else t - 4 * sigma
    return Limits(
        floor=max(1, int(np.ceil(floor * size - 1e-9))),
        follow=max(1, int(np.ceil((1 + t) / 2 * size))),
        expand=max(1, int(np.floor((1 - 1.5 * (1 - t) - 4 * spread) * size))),
        bucket_half=settings.bucket_size // 2,
        followers_half=settings.followers // 2,
        copies=settings.max_matches or 1 << 40,
        unique_only=settings.against == "unique",
    )


__all__ = ["BATCH", "Matches", "Shard", "Step", "limits"]
