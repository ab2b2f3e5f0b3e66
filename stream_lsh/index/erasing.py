"""Erasing: what versions that were deleted or replaced said of id and text leaves the disk, some time after they went.

It frees what nobody reads any more, and changes no answer: so it goes by the clock, and by rounds of bounded work, one
with a commit. A round takes the versions of one page of rows that are due:

1. Their ids, texts and latest rows are written anew, in one atomic step with the keys that their rows were posted under
   and new checksums. From then on they count as erased, in whatever order the following reaches the disk.
2. Their rows in files are overwritten.
3. Beside the work RocksDB writes the files with the values before anew.

Before that, in rounds of their own, their ids are taken out of what is known of those that were dropped for them. When
nothing is due any more, RocksDB's log and the latest rows are swept, and only then is it forgotten that these versions
had to be erased: what a crash breaks off is done again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from stream_lsh.index.erased import PAGE, erased_of, keep
from stream_lsh.index.files import nobody_looking
from stream_lsh.index.generation import Generation
from stream_lsh.index.going import oldest_members
from stream_lsh.index.layout import DELETED, DROPPED, FLAGS, GROUP, ID, OF
from stream_lsh.index.refusals import plainly
from stream_lsh.index.rows import blank, flush_name, packed, unpacked
from stream_lsh.index.shard import Shard
from stream_lsh.index.store import ROWS, Store, name_key, rows_key
from stream_lsh.index.texts import FRAME_DOCUMENTS

WAITING = "erase/"  # and when it is due, shard, and rows there were: versions to be erased
DONE = "erased"  # how many versions were
MOST = 64  # texts' frames, and values of ids, that a round writes anew
MEMBERS = 4096  # of a group that a round reads
REACH = 1 << 19  # rows between the first and the last of which ids are written anew in a round
ROUNDS = 256  # after which there is a sweep, whatever is due still
_FACT = 1024  # versions of a fact
_NOBODY, _HEIR = -1, -2  # instead of the first row that may have been dropped for a version; _HEIR: a row of its own


@dataclass(slots=True, eq=False)
class Waiting:
    """Versions of a shard that are to be erased.

    name: of the fact. since, due: seconds since 1970, when they went and when they are due. rows; begins, ends: between
    which rows others may have been dropped for each, who have its id. left: what is to be done. versions: their number,
    without rows that only stood for an heir.
    """

    name: str
    due: int
    shard: int
    since: int
    rows: NDArray[np.int64]
    begins: NDArray[np.int64]
    ends: NDArray[np.int64]
    left: NDArray[np.bool_]
    versions: int


Patch = tuple[Shard, Generation, NDArray[np.int64], NDArray[np.uint64]]
"""Rows of a file that are to be overwritten: their places, and what with."""


class Erasing:
    """What is to be erased of an index that is being written.

    Args:
        after: seconds after which a version is due. pool: a thread for what is done beside the work.
    """

    def __init__(
        self, folder: Path, store: Store, shards: Sequence[Shard], after: int, pool: ThreadPoolExecutor
    ) -> None:
        self._folder = folder
        self._store = store
        self._shards = shards
        self._after = after
        self._pool = pool
        self._waiting = list(waiting(store))
        self._patches: list[Patch] = []
        self._beside: Future[None] | None = None
        self._sweeping = False
        self._rounds = 0  # since the last sweep

    def enter(self, now: float) -> dict[str, Any]:
        """The facts that make the next commit remember what went since the last one."""
        facts: dict[str, Any] = {}
        for shard in self._shards:
            went = shard.rows.dead.took_leave()
            if shard.limits.unique:  # under `any` others may be reached only through the dead
                own = np.stack((went[:, 0], np.where(went[:, 1] < 0, _NOBODY, went[:, 1] + 1), went[:, 2]), axis=1)
                if shard.limits.late or not shard.limits.update:  # there the ids stay
                    own[:, 1] = _NOBODY
                heirs = went[(went[:, 1] >= 0) & (went[:, 1] != went[:, 0])]
                all = np.concatenate((own, np.stack((heirs[:, 1], 0 * heirs[:, 1] + _HEIR, heirs[:, 2]), axis=1)))
                all = all[np.argsort(all[:, 2], kind="stable")]
                for at in range(0, len(all), _FACT):
                    part, due = all[at : at + _FACT], int(now) + self._after
                    name = f"{WAITING}{due:012d}/{shard.number}/{part[0, 2]}/{at}"
                    facts[name] = [int(now), *part.T.tolist()]
                    self._waiting.append(_of_fact(name, facts[name]))
        return facts

    def step(self, now: float) -> None:
        """Begin the next round, if the one before is over and something is due; after a commit.

        Raises:
            OutputError: the disk is full, or refuses. StateError: likewise, or what is there is damaged.
        """
        if self._beside is not None:
            if not self._beside.done():
                return
            self._take_over()
        self._write_patches()
        if self._patches:
            return
        due = [item for item in self._waiting if item.due <= now]
        while self._rounds < ROUNDS and (item := next((item for item in due if item.left.any()), None)) is not None:
            if self._round(self._shards[item.shard], [other for other in due if other.shard == item.shard]):
                self._rounds += 1
                return
        if due:
            self._rounds, self._sweeping = 0, True
            self._beside = self._pool.submit(self._store.sweep)

    def run(self, now: float) -> None:
        """Erase all that is due."""
        while any(item.due <= now for item in self._waiting):
            self.step(now)
            if self._patches:  # somebody checks the files
                return
            self.finish()

    def finish(self) -> None:
        """Wait for what is done beside the work."""
        if self._beside is not None:
            self._beside.exception()
            self._take_over()

    def _take_over(self) -> None:
        beside, self._beside = self._beside, None
        with plainly(self._folder):
            if beside is not None:
                beside.result()
        if self._sweeping:
            self._sweeping = False
            gone = [item for item in self._waiting if not item.left.any()]
            self._waiting = [item for item in self._waiting if item.left.any()]
            done = (self._store.named(DONE) or 0) + sum(item.versions for item in gone)
            names = [name_key(item.name) for item in gone]
            self._store.write({name_key(DONE): orjson.dumps(done)}, names)

    # -- rounds -----------------------------------------------------------------------------------------------------

    def _round(self, shard: Shard, due: Sequence[Waiting]) -> bool:
        """A round with the first that is left, of entries of one shard; whether there was something to do."""
        first = shard.generations[0].first if shard.generations else shard.count
        for item in due:  # their generation is not there any more
            item.left &= item.rows >= first
        row = next((int(item.rows[item.left][0]) for item in due if item.left.any()), None)
        if row is None:
            return False
        begin, end = _page(shard, row)
        chosen: list[tuple[Waiting, int]] = []
        frames: set[int] = set()
        for other in due:
            for at in np.flatnonzero(other.left & (other.rows >= begin) & (other.rows < end)).tolist():
                if len(frames) == MOST:
                    break
                if other.begins[at] >= 0 and self._names(shard, other, at, alone=not chosen):
                    if not chosen:
                        return True
                else:
                    frames.add(int(other.rows[at]) // FRAME_DOCUMENTS)
                    chosen.append((other, at))
        rows = np.unique([int(other.rows[at]) for other, at in chosen])
        for other, at in chosen:
            other.left[at] = False
        self._erase(shard, rows)
        return True

    def _names(self, shard: Shard, item: Waiting, at: int, *, alone: bool) -> bool:
        """Take the id of a version out of what is known of those that were dropped for it, or of some of them, in a
        round of its own (alone). Whether there are any; if not, the version itself can be erased."""
        row, begin, end = (int(column[at]) for column in (item.rows, item.begins, item.ends))
        (version,) = shard.stored(np.array([row]))
        while begin >= 0:
            found = _behind(shard, version[GROUP], begin)
            members = found[found < end]
            item.begins[at] = int(found[-1]) + 1 if len(members) == MEMBERS else _NOBODY
            own = shard.stored(members)
            mine = members[(own[:, OF] == version[ID]) & (own[:, FLAGS] & np.uint64(DROPPED) != 0)]
            if len(mine):
                if alone:
                    last = _page(shard, int(mine[0]), REACH)[1]
                    some = mine[: min(MOST, int(np.searchsorted(mine, last)))]
                    if len(some) < len(mine):
                        item.begins[at] = mine[len(some)]
                    self._write(shard.ids.without((), some.tolist()))
                else:
                    item.begins[at] = begin
                return True
            begin = int(item.begins[at])
        return False

    def _erase(self, shard: Shard, rows: NDArray[np.int64]) -> None:
        """Erase rows of one page, ascending."""
        generation = next(g for g in reversed(shard.generations) if g.first <= rows[0])
        known = erased_of(self._store, shard.number, generation.number, int(rows[0]))
        block = shard.stored(rows)
        versions = rows[block[:, FLAGS] & np.uint64(DELETED) == 0].tolist()
        values = shard.ids.without(versions, ())
        if shard.limits.exact:
            values |= shard.texts.without(versions)
        anew = values.copy()
        new = ~np.isin(rows, known)
        if new.any():
            fresh = block[new]
            keys, _ = shard.keyed.said(fresh)
            values |= keep(shard.number, generation.number, rows[new], keys.reshape(len(fresh), -1))
        block = blank(block, shard.shape.signature_at)
        values |= self._in_store(shard, generation, rows)
        base = int(shard.rows.base)
        in_memory = rows >= base
        shard.rows.recent[rows[in_memory] - base] = block[in_memory]
        filed = ~in_memory
        if filed.any():
            places = rows[filed] - generation.first
            values |= self._checksums(shard, generation, np.union1d(known, rows) - generation.first, places)
            self._patches.append((shard, generation, places, block[filed]))
        self._write(anew, values)

    def _in_store(self, shard: Shard, generation: Generation, rows: NDArray[np.int64]) -> dict[bytes, bytes]:
        """The values of the latest rows in which these are blank, as far as the store has them."""
        values: dict[bytes, bytes] = {}
        for row in rows.tolist():
            found = self._store.before(ROWS, shard.number, generation.number, row)
            if found is None:
                continue
            key = rows_key(ROWS, shard.number, generation.number, found[0])
            block = unpacked(values.get(key, found[1])).copy()
            if row - found[0] < len(block):
                here = slice(row - found[0], row - found[0] + 1)
                block[here] = blank(block[here], shard.shape.signature_at)
                values[key] = packed(block)
        return values

    def _checksums(
        self, shard: Shard, generation: Generation, erased: NDArray[np.int64], places: NDArray[np.int64]
    ) -> dict[bytes, bytes]:
        """The checksums of the flushes that these places of a generation are in, when they are blank."""
        values = {}
        self._store.write(shard.flushed())
        for first, last, _ in generation.rows.flushes(self._store, shard.number, generation.number):
            if ((places >= first) & (places < last)).any():
                crc = generation.rows.checksum(first, last, erased)
                name = flush_name(shard.number, generation.number, first)
                values[name_key(name)] = orjson.dumps({"last": last, "crc": crc})
        return values

    def _write(self, anew: dict[bytes, bytes], values: dict[bytes, bytes] | None = None) -> None:
        """Write values, some of which are there already; RocksDB then writes the files of those anew."""
        keys = list(anew)
        self._store.settle(keys)
        self._store.write(values or anew)
        self._store.settle(keys)
        self._write_patches()
        self._beside = self._pool.submit(self._store.purge, keys)

    def _write_patches(self) -> None:
        """Overwrite rows in files, unless somebody compares them with their checksums."""
        if not self._patches:
            return
        with nobody_looking(self._folder) as free:
            while free and self._patches:
                shard, generation, places, rows = self._patches.pop()
                if generation in shard.generations:  # else it has gone meanwhile
                    generation.rows.patch(places, rows)


def waiting(store: Store) -> Iterator[Waiting]:
    """What is to be erased of an index, what is due first at first."""
    for name, fact in store.items(WAITING):
        yield _of_fact(name, fact)


def _of_fact(name: str, fact: Any) -> Waiting:
    due, shard, _, _ = name.removeprefix(WAITING).split("/")
    rows, begins, ends = (np.array(column, np.int64) for column in fact[1:])
    versions = int((begins != _HEIR).sum())
    return Waiting(name, int(due), int(shard), fact[0], rows, begins, ends, np.ones(len(rows), np.bool_), versions)


def _page(shard: Shard, row: int, size: int = PAGE) -> tuple[int, int]:
    """The rows of the page that a row is in, and of its generation."""
    _, end = shard.generation_until(row)
    first = next(g.first for g in reversed(shard.generations) if g.first <= row)
    return max(first, row // size * size), min(end, (row // size + 1) * size)


def _behind(shard: Shard, group: np.uint64, row: int) -> NDArray[np.int64]:
    """The oldest MEMBERS members of a group, from this row on."""
    found: NDArray[np.int64] = oldest_members(group, np.int64(row), np.int64(MEMBERS), shard.table, shard.memory)
    return found
