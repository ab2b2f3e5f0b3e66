"""One shard of the index: a list of generations, the latest rows and postings in memory, and the kernel over them.

Rows (with their texts and ids) are the truth: the latest in the store, those that were flushed in the files of their
generation. Postings are derived, and rebuilt from the rows where they are lost.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from stream_lsh.errors import DamagedError, StreamLshError
from stream_lsh.index import layout
from stream_lsh.index.batch import SignedBatch
from stream_lsh.index.dead import DEAD_ROWS, Dead
from stream_lsh.index.erased import Keyed, erased_of
from stream_lsh.index.generation import Generation, post_rows, post_undecided_rows
from stream_lsh.index.heap import trim
from stream_lsh.index.ids import Ids
from stream_lsh.index.keys import Hashes
from stream_lsh.index.late import Late
from stream_lsh.index.layout import Rows
from stream_lsh.index.limits import limits_of
from stream_lsh.index.matches import Matches
from stream_lsh.index.memory import Memory
from stream_lsh.index.policy import pause
from stream_lsh.index.postings import Workers
from stream_lsh.index.rows import Shape, flush_name, packed, unpacked
from stream_lsh.index.sets import Sets
from stream_lsh.index.settling import Fates
from stream_lsh.index.store import ROWS, TOLD, Range, Store, name_key, rows_key
from stream_lsh.index.storing import restore_heads
from stream_lsh.index.texts import Texts
from stream_lsh.index.told import told, untell
from stream_lsh.settings import Settings

NO_NUMBERS = np.empty(0, np.int64)
BATCH = 4096  # most documents of one batch
CACHED_SHINGLES = 8 << 20  # of the latest rows' sets: 64 MB, and twice as much for bitmaps of the sets of more rows
CACHED_HEADS = 128 << 20  # bytes of the latest rows' signatures

Shingle = Callable[[bytes, NDArray[np.int64]], tuple[NDArray[np.uint64], NDArray[np.int64]]]


class Shard:
    """A shard, opened at its last committed row.

    Args:
        state: folder of the index. base: of an empty one, rows before it do not exist (a changelog that was trimmed
            has lost them).
        workers: None = read only, beside whoever writes.

    Raises:
        DamagedError: what is on disk is missing, cut off or changed.
    """

    def __init__(
        self,
        number: int,
        settings: Settings,
        store: Store,
        state: Path,
        hashes: Hashes,
        shingle: Shingle,
        workers: Workers | None,
        *,
        base: int = 0,
    ) -> None:
        self.number = number
        self.state = state
        self.shape = shape = Shape(settings)
        self.limits = limits_of(settings, shape, hashes.secret)
        self.generations: list[Generation] = []
        self.texts = Texts(store, number, self.generation_of)
        self.ids = Ids(store, number, self.generation_of, told_later=settings.late)
        self.shingle = shingle
        self.sets = Sets.of(power_of_two(CACHED_SHINGLES // settings.shards) if self.limits.exact else 0)
        self._store = store
        self._hashes = hashes
        self.keyed = Keyed(store, number, shape, hashes, self.generation_of)
        self._workers = workers
        known = store.named(f"shard/{number}") or {"rows": base, "generations": []}
        self._committed: int = known["rows"]
        self._dead: int = known.get(DEAD_ROWS, 0)  # of the committed rows
        base = known["generations"][0]["first"] if known["generations"] else self._committed
        # Rows that a batch comes to; those that stand for heirs of groups that are told of with it, too.
        self._most = 2 * BATCH + settings.block if self.limits.update else BATCH
        undecided = settings.most_rows * 2 * settings.block
        self._room = settings.memory_documents // settings.shards + self._most + undecided
        if workers is None:  # nothing can be flushed: there must be room for all that is in no file yet
            self._room = max(self._room, self._committed - _in_files(known["generations"], base) + self._most)
        ring = power_of_two(max(self._room, CACHED_HEADS // settings.shards // (8 * shape.head_words)))
        self.rows = Rows(
            base=base, total=base, recent=np.zeros((self._room, shape.width), np.uint64),
            generations=np.empty((0, 3), np.int64), signature_at=shape.signature_at, log_at=shape.log_at,
            read=np.empty(shape.width, np.uint64), begin=np.empty(layout.MASK, np.uint64), known=-1, kept=base,
            ring=np.empty(ring * shape.head_words, np.uint64), notes=np.empty(ring, np.uint8), seen=base,
            seen_log=-1, guides=base, dead=Dead.of(base),
        )  # fmt: skip
        self._segment = base  # the first row of the memory segment
        self._at = 0  # the generation that it belongs to
        self.late = Late(settings, self.rows, known.get("undecided"), base)
        self._waiting: dict[str, Any] = self.late.facts  # as it is committed
        self._done = base  # rows before it are posted, in so far as they are decided late
        self.memory = Memory.of(self._room * (settings.signing.bands + 3))
        self.table = np.empty((0, layout.COLUMNS), np.int64)
        self.met = power_of_two(min(settings.signing.bands + 1, 32) * settings.bucket_size)
        self._values: dict[bytes, bytes] = {}
        self._told: dict[bytes, bytes] = {}
        self._left: list[Range] = []  # keys of generations that went
        self._passed = base  # rows whose values in the store are deleted
        try:
            self._restore(known["generations"])
        except BaseException:
            with suppress(StreamLshError):
                self.finish()
            self.close()
            raise

    # -- matching ---------------------------------------------------------------------------------------------------

    def keep(
        self, matches: Matches, batch: SignedBatch, start: int, stop: int, named: Sequence[bytes] | None = None
    ) -> None:
        """Keep ids and texts of what the documents [start, stop) of a batch became, until `commit` and after. named:
        the ids of their first matches, if others have to say them."""
        stored = start + np.flatnonzero(matches.row_of[start:stop] >= 0)
        ids = [batch.ids[i] for i in stored.tolist()]
        if named is None:
            of = matches.of[stored].tolist() if self.limits.alone else [-1] * len(stored)
            mine = dict(zip(matches.row_of[stored].tolist(), ids, strict=True))
            names = {row: mine[row] if row in mine else self.ids.read(row) for row in set(of) if row >= 0}
            firsts = [names.get(row, b"") for row in of]
        else:
            firsts = [named[i - start] for i in stored.tolist()]
        first, rows = self.ids.last, matches.row_of[stored]
        if self.count - first > len(stored):  # some of the rows are no documents
            places = (rows - first).tolist()
            own = dict(zip(places, zip(ids, firsts, strict=True), strict=True))
            named_rows = [own.get(place, (b"null", b"")) for place in range(self.count - first)]
            ids, firsts = [id for id, _ in named_rows], [name for _, name in named_rows]
        self.ids.add(ids, firsts)
        if self.limits.exact:
            row_of = np.full(len(batch), -1)
            row_of[stored] = matches.row_of[stored]
            self.texts.add(batch.frames[self.number], row_of)

    # -- what is decided late ---------------------------------------------------------------------------------------

    def enter(self, block: int) -> None:
        """The next document is of this block of the log: all before the last two are decided, and posted."""
        if block != self.late.block:
            self.late.enter(block, self.count)
            self._decide()

    def tell(self, others: Fates, names: Sequence[bytes], heirs: NDArray[np.int64] = NO_NUMBERS) -> None:
        """Of the rows that are decided when the next block begins: which were dropped, or stay in the group of the
        version before them, by number, ascending, and the ids that they were dropped for (b"" of none). The others were
        kept, and founded groups. heirs: numbers of those that stand for their groups, of who might."""
        all = self.late.told(others, names, heirs, self._hashes)
        all.lay_over(self.rows.recent, self._base)
        self.ids.name(all.rows.tolist(), all.names)
        for generation, later in zip_longest(self.generations, self.generations[1:]):
            mine = all.between(max(all.first, generation.first), min(all.last, later.first if later else all.last))
            if mine.first < mine.last:
                self._told[rows_key(TOLD, self.number, generation.number, mine.first)] = mine.encode()

    def _decide(self) -> None:
        """Post the rows that are decided."""
        self._post(self._done, min(self.late.first, self.count))

    def _post(self, first: int, last: int) -> None:
        """Post rows in memory, each in its generation."""
        while first < last:
            generation = self.generations[self._at]
            stop = last
            if self._at + 1 < len(self.generations):
                stop = min(last, self.generations[self._at + 1].first)
            block = self.rows.recent[first - self._base : stop - self._base]
            post_rows(block, first, generation.first, self.memory, self.keyed, self.shape)
            first = self._done = stop
            self._advance()

    def _advance(self) -> None:
        """Close the generations whose rows are all posted, but for the newest."""
        while self._at + 1 < len(self.generations) and self.generations[self._at + 1].first <= self._posted:
            self.flush()
            self.generations[self._at].postings.closed = True
            self._at += 1
        self.memory.first = self.generations[self._at].first

    @property
    def _posted(self) -> int:
        """The first row that is not posted yet."""
        return self._done if self.limits.late else self.count

    def post_heirs(self, first: int) -> None:
        """Post the rows from `first` on, which stand for heirs, among the undecided."""
        block = self.rows.recent[first - self._base : self.count - self._base]
        post_undecided_rows(block, first, self.late.newer, self.keyed)

    def make_room_for_the_dead(self, documents: int) -> None:
        """So many documents may replace or delete rows, and come to twice as many."""
        if not self.generations:  # nobody has come, nor does with a batch of nobody
            return
        self.rows.dead.reach(self.count + 2 * documents, self.generations[0].first)
        self.rows.dead.room_for(documents)

    @property
    def begins(self) -> list[tuple[int, int]]:
        """Its generations: number and first row."""
        return [(generation.number, generation.first) for generation in self.generations]

    # -- rows -------------------------------------------------------------------------------------------------------

    @property
    def count(self) -> int:
        """Number of rows, those that do not exist any more included."""
        return int(self.rows.total)

    @property
    def held(self) -> int:
        """Number of documents that are there."""
        return 0 if not self.generations else self.count - self.generations[0].first - int(self.rows.dead.count)

    @property
    def _base(self) -> int:
        """The first row in memory."""
        return int(self.rows.base)

    def generation_of(self, row: int) -> int:
        """The number of the generation that a row belongs to."""
        return self.generation_until(row)[0]

    def generation_until(self, row: int) -> tuple[int, int]:
        """That number, and the first row behind the generation, as far as there are rows."""
        end = self.count
        for generation in reversed(self.generations):
            if generation.first <= row:
                return generation.number, end
            end = generation.first
        raise DamagedError(f"row {row} of shard {self.number} is in no generation; restore the folder from a backup")

    def stored(self, rows: NDArray[np.int64]) -> NDArray[np.uint64]:
        """Rows uint64[n, width]; of those in files neighbours are read together."""
        out, in_memory = np.empty((len(rows), self.shape.width), np.uint64), rows >= self._base
        out[in_memory] = self.rows.recent[rows[in_memory] - self._base]
        generations = np.searchsorted([generation.first for generation in self.generations], rows, "right")
        apart = (np.diff(rows, prepend=-2) != 1) | (np.diff(generations, prepend=-1) != 0) | in_memory
        begins = np.flatnonzero(apart)
        for i, end in zip(begins.tolist(), np.append(begins[1:], len(rows)).tolist(), strict=False):
            if not in_memory[i]:
                first = int(rows[i])
                out[i:end] = unpacked(self.value_of(first, first + end - i))
        return out

    # -- durability -------------------------------------------------------------------------------------------------

    def take(self) -> tuple[dict[bytes, bytes], list[Range]]:
        """The values that make everything up to now durable, and the ranges of keys that are not needed any more, for
        one atomic write."""
        if self._committed < self._base:  # flushed before it was committed: its run has to be on disk
            for generation in self.generations:
                generation.postings.settle()
            self._look()  # what was a run in memory is one in a file now, and its arrays are gone
        dead = self.rows.dead.take(self.number, self.begins, self.count)
        values = {**self.ids.take(self._committed), **self.texts.take(), **self.pending(), **self._told, **dead}
        self._told = {}
        self.rows.dead.took_leave()  # who erases has asked before
        self.ids.forget(self._base)
        self._committed, self._dead = self.count, int(self.rows.dead.count)
        self._waiting = self.late.facts
        for generation in self.generations:
            generation.postings.rows = self._posted - generation.first
        manifest, ranges = self.manifest()
        return {**values, **manifest}, ranges

    def pending(self) -> dict[bytes, bytes]:
        """The values of the rows that are neither committed nor flushed, each of one generation."""
        values, at = {}, max(self._committed, self._base)
        for generation, later in zip_longest(self.generations, self.generations[1:]):
            end = self.count if later is None else later.first
            while at < end:
                last = min(at + BATCH, end)  # not more in a value than `_restore` has room for
                values[rows_key(ROWS, self.number, generation.number, at)] = self.value_of(at, last)
                at = last
        return values

    def words(self, row: int) -> NDArray[np.uint64]:
        """The words of a row.

        Raises:
            DamagedError: the file that it was flushed to has become shorter.
        """
        if row >= self._base:
            words: NDArray[np.uint64] = self.rows.recent[row - self._base]
        else:
            generation = next(g for g in reversed(self.generations) if g.first <= row)
            (words,) = generation.rows.read(row - generation.first, row - generation.first + 1)
        return words

    def value_of(self, first: int, last: int) -> bytes:
        """The value of the rows [first, last), which are of one generation, and all flushed or none of them.

        Raises:
            DamagedError: the file that they were flushed to has become shorter.
        """
        if first >= self._base:
            rows = self.rows.recent[first - self._base : last - self._base]
        else:
            generation = next(g for g in reversed(self.generations) if g.first <= first)
            rows = generation.rows.read(first - generation.first, last - generation.first)
        return packed(rows)

    def value_untold(self, first: int, last: int) -> bytes:
        """The value of rows as `pending` gave it when they came, where others have told since what became of them."""
        value = bytearray(self.value_of(first, last))
        untell(unpacked(value))
        return bytes(value)

    def manifest(self) -> tuple[dict[bytes, bytes], list[Range]]:
        """The value that says how many rows are committed and which files hold the flushed ones; and the values of rows
        that are not needed any more with it."""
        # Not one that begins behind it: the document that begins it has not come yet, others may come before.
        known = [g.manifest() for g in self.generations if g.first < self._committed]
        facts: dict[str, Any] = {"rows": self._committed, "generations": known}
        if self._dead:
            facts[DEAD_ROWS] = self._dead
        if self.limits.late:
            facts["undecided"] = self._waiting
        values = {name_key(f"shard/{self.number}"): orjson.dumps(facts)}
        values.update(self.flushed())  # also when closing: a run that counts has the checksum of its rows
        ranges, self._left = self._left, []
        in_files = _in_files(known, 0)
        if self.limits.late:  # what is undecided may stand in one value with the last of them
            in_files -= BATCH - 1
        if in_files > self._passed:
            self._passed = in_files
            number = self.generation_of(max(in_files, self.generations[0].first))
            end = rows_key(ROWS, self.number, number, in_files)
            ranges.append((rows_key(ROWS, self.number, 0, 0), end))
        return values, ranges

    def flushed(self) -> dict[bytes, bytes]:
        """The checksums of flushes since it was asked last; the store may have those of flushes that do not count."""
        values, self._values = self._values, {}
        return values

    def lets_go(self, number: int) -> bool:
        """Whether generation `number` may go: all of it is in files and committed, and another one has begun."""
        later = next((g for g in self.generations if g.number > number), None)
        return (
            later is not None
            and later.first <= min(self._committed, self._segment)
            and (self.generations[self._at].number > number)
        )

    def drop(self, number: int) -> list[Generation]:
        """Leave out generation `number`, the oldest, from now on and in the next manifest; who gets it closes it."""
        if not self.generations or self.generations[0].number != number:  # nothing came into it
            return []
        gone = self.generations.pop(0)
        self._at -= 1
        self._look()
        rows, first = self.rows, self.generations[0].first
        rows.dead.forget(first)
        if rows.seen < first:
            rows.seen = rows.guides = first
            rows.seen_log = -1
        left = ranges_of(self.number, number)
        self._values = {key: v for key, v in self._values.items() if not any(a <= key < b for a, b in left)}
        self._left += left
        return [gone]

    @property
    def changed(self) -> bool:
        """Whether the manifest is another than was committed last."""
        return any(generation.postings.changed for generation in self.generations)

    def committed(self) -> None:
        """What `take` gave is durable."""
        for generation in self.generations:
            generation.postings.committed()

    @property
    def full(self) -> bool:
        """Whether the memory segment must be flushed before another batch."""
        return self.count - self._segment + self._most > self._room

    def flush(self) -> None:
        """Turn the memory segment into a run."""
        generation, posted = self.generations[self._at], self._posted
        first, last = self._segment - generation.first, posted - generation.first
        if first == last:
            return
        keys, rows = self.memory.sorted()
        if self._workers is not None:
            crc = generation.rows.append(self.rows.recent[: last - first])
            name = flush_name(self.number, generation.number, first)
            self._values[name_key(name)] = orjson.dumps({"last": last, "crc": crc})
            self.rows.recent[: self.count - posted] = self.rows.recent[last - first : self.count - self._base]
            self.rows.base = posted
            if not self._told:  # the store does not have these names yet
                self.ids.forget(min(self._base, self._committed))
        generation.postings.add(keys, rows, first, last, generation.rows.sync)
        self._segment = posted
        self.memory.clear()
        self._look()
        trim()

    def begin(self, number: int) -> None:
        """Begin the next generation, after which nothing comes into the one before."""
        if self.generations:
            before = self.generations[-1]
            if before.number == number:
                return
            if before.first == self.count:  # nothing has come
                self.generations.pop().close()
        self._open(number, self.count, None)

    def _open(self, number: int, first: int, known: dict[str, Any] | None) -> Generation:
        generation = Generation(self.state, number, self.number, first, self.shape, known, self._workers)
        self.generations.append(generation)
        self._at = min(self._at, len(self.generations) - 1)
        self._advance()
        self._look()
        return generation

    def poll(self) -> None:
        """Take over what the background threads have done; call it between batches.

        The newest generation first: then what is in no file is never older than something that is in one.
        """
        if self._workers is None:
            return
        changed = [generation.postings.poll() for generation in reversed(self.generations)]
        if any(changed):
            self._look()

    def _look(self) -> None:
        """The kernel's tables of runs and generations, as they are now; the runs keep their arrays alive."""
        lines = [run.line(g.first) for g in reversed(self.generations) for run in g.postings.runs]
        self.table = np.array(lines, np.int64).reshape(len(lines), layout.COLUMNS)
        files = [(g.first, g.rows.file, g.rows.start) for g in self.generations]
        self.rows.generations = np.array(files, np.int64).reshape(len(files), 3)

    @property
    def pause(self) -> float:
        """Seconds that whoever feeds it should wait for every 1,000 documents, so that merges keep up."""
        return max((pause(g.postings.levels) for g in self.generations if not g.postings.closed), default=0.0)

    def _restore(self, known: list[dict[str, Any]]) -> None:
        for i, item in enumerate(known):
            generation = self._open(item["number"], item["first"], item)
            end = known[i + 1]["first"] if i + 1 < len(known) else self._committed
            # What is flushed here is committed already, but for what is undecided.
            last = min(end, self.late.first) if self.limits.late else end
            generation.postings.rows = last - generation.first
            if generation.lost:
                # Postings of changed rows would be wrong for good.
                erased = erased_of(self._store, self.number, generation.number) - generation.first
                generation.rows.verify(self._store, self.number, generation.number, erased)
                generation.rebuild(self.memory, self.keyed, self._room)
            flushed = generation.first + generation.rows.flushed
            if self._base == self.count:
                if flushed > self.count:
                    self.rows.kept = flushed
                self.rows.base = self.rows.total = self._done = flushed
            if self._at == i:
                self._segment = flushed
            while self.count < end:
                self._replay(generation, end)
                if self._workers is not None and self.full:  # also after the last rows: the next batch needs its room
                    self.flush()
        self._look()
        self.rows.dead.restore(self._store, self.number, self.begins, self._committed, self._dead)
        self.ids.restore(self._base, self._committed)
        row = self._base
        while row < self.late.first and (found := told(self._store, self.number, self.generation_of(row), row)):
            mine = found.between(row, found.last)
            self.ids.name(mine.rows.tolist(), mine.names)
            row = found.last

    def _replay(self, generation: Generation, end: int) -> None:
        """Rows of one value of the store, posted again."""
        row = self.count
        first, value = self._store.holding(ROWS, self.number, generation.number, row)
        try:
            block = unpacked(value)
        except (struct.error, ValueError):
            block = np.empty((0, self.shape.width), np.uint64)
        if block.shape[1] != self.shape.width or not first <= row < first + len(block):
            raise DamagedError(
                f"{self._store.path}: the rows from {first} of shard {self.number} are damaged; "
                "restore the folder from a backup"
            )
        block = np.ascontiguousarray(block[row - first : end - first])
        self.rows.recent[row - self._base : row - self._base + len(block)] = block
        restore_heads(block, row, self.rows, self.shape.head_words)
        self.rows.total = row + len(block)
        if not self.limits.late:
            self._post(row, self.count)
            return
        self._lay_over(generation, row, min(self.late.first, self.count))
        self._decide()
        self.late.post_again(row, self.keyed)

    def _lay_over(self, generation: Generation, row: int, last: int) -> None:
        """Have in the rows up to `last`, which are in memory again, what others have told of them since."""
        recent = self.rows.recent[: self.count - self._base]
        kinds = recent[row - self._base : max(row, last) - self._base, layout.FLAGS] >> layout.KIND_BITS
        for unknown in (row + np.flatnonzero(kinds & np.uint64(0xFF) == layout.UNKNOWN)).tolist():
            if unknown < row:
                continue
            found = told(self._store, self.number, generation.number, unknown)
            if found is None:
                raise DamagedError(
                    f"{self._store.path}: what became of row {unknown} of shard {self.number} is missing; "
                    "restore the folder from a backup"
                )
            found.lay_over(recent, self._base)
            row = found.last

    def finish(self) -> None:
        """Wait until the last flush is on disk, and begin no merge any more."""
        for generation in self.generations:
            generation.postings.finish()

    def close(self) -> None:
        for generation in self.generations:
            generation.close()


def ranges_of(shard: int, generation: int) -> list[Range]:
    """The keys of a shard about a generation that do not go with its column family."""
    flushed = name_key(flush_name(shard, generation, 0))[:-1]
    return [
        (flushed, flushed[:-1] + b"0"),  # what follows "/"
        (rows_key(ROWS, shard, generation, 0), rows_key(ROWS, shard, generation + 1, 0)),
    ]


def _in_files(known: list[dict[str, Any]], base: int) -> int:
    """The first row that is in no file yet, by the generations of the manifest."""
    for item, later in zip_longest(known, known[1:]):
        base = item["first"] + (item["runs"][-1]["last"] if item["runs"] else 0)
        if later is not None and base < later["first"]:
            break
    return base


def power_of_two(least: int) -> int:
    return 1 << max(0, least - 1).bit_length()
