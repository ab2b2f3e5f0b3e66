"""The store of one shard, kept in step with a changelog partition: a standby, or a shard before it is active.

A change is applied only if its predecessor is the last frame applied (the chain rule of docs/internals/protocol.md).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson

from stream_lsh.errors import ForeignError, FormatError, StoreError
from stream_lsh.index.erasure.queue import ERASED_VERSIONS, behind_window, places
from stream_lsh.index.kernel.document_frequency import folded
from stream_lsh.index.rows.deleted_rows import DELETED_ROWS, deleted_count
from stream_lsh.index.rows.row_file import Shape
from stream_lsh.index.segments.manifest import ranges_of
from stream_lsh.index.segments.removal import Removal
from stream_lsh.index.store.column_families import limit_cache
from stream_lsh.index.store.errors import plainly
from stream_lsh.index.store.files import make_folder, replace_file
from stream_lsh.index.store.rocksdb import Store, name_key
from stream_lsh.kafka.match.applied import Applied, deletions, manifest_of
from stream_lsh.kafka.match.based import erased_by, overwrite, purge
from stream_lsh.kafka.match.cycle import Cycle
from stream_lsh.kafka.match.forgetting import Forgetting
from stream_lsh.kafka.match.kept_answers import KeptAnswers
from stream_lsh.kafka.match.volume import Amount, Volume
from stream_lsh.settings.model import Settings
from stream_lsh.wire.bases import BEGINS, ENDS, HAS_ROWS, Base, Mark, record_of
from stream_lsh.wire.changes import Change
from stream_lsh.wire.envelope import OLDER
from stream_lsh.wire.parts import Adjacent

FORMAT, CLEANED = 2, 3  # CLEANED: something was erased; earlier revisions cannot read this format
APPLIED_BYTES = 8 << 20  # limit of the changes written together


class OtherOwner(Exception):
    """Another owner also writes changes of this shard."""


SNAPSHOT = "snapshot"
"""The file in a shard's folder with the first offset of the last snapshot that counts. It can be read if the store is
damaged."""


def begins_with_snapshot(folder: Path, start: int) -> bool:
    """Whether a changelog that begins at this offset has a snapshot that counts, so that it has the whole shard. False
    if the folder does not know."""
    try:
        return start <= int((folder / SNAPSHOT).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return False


class Rebuild(Exception):
    """The store cannot follow the changelog: it has to be built again from there. whole: whether the changelog surely
    has all that is needed."""

    def __init__(self, reason: str, *, whole: bool) -> None:
        super().__init__(reason)
        self.whole = whole


class Copy:
    """A shard's store in a folder. It follows the changelog.

    Args:
        folder: created if missing.
        foreign: gets the offset of each skipped changelog record that no version of this program writes.
        erase_after: seconds after which deleted and replaced versions are erased. None: no time counts.
        limit: bytes that the changelog may always have, see `Cleaning`. None: its size does not count. With neither of
            the two nothing is erased.

    Attributes:
        last: offset in signatures of the last frame applied, -1 if there is none.
        forgetting: the window's state; None: no window.
        changelog_offset: offset up to which the store has the changelog without a gap, or None.
        cycle: state of the snapshots in the changelog up to there.
        began: the first record of the latest snapshot, if it is known.
        volume: how large it is up to there, if there is a `limit`.
        now: the latest time that was seen to pass here, by the append times of frames, in seconds since 1970.
        torn: whether the store may lag behind the state in memory. Nothing more may be applied then.

    Raises:
        DamagedError: a file is missing, truncated or changed.
        StoreError: the folder is in use, cannot be opened, or is of another format or other settings. The message says
            which.
    """

    def __init__(
        self, settings: Settings, shard: int, folder: Path, *, erase_after: int | None = None,
        limit: int | None = None, foreign: Callable[[int, ForeignError], object] = lambda offset, error: None,
    ) -> None:  # fmt: skip
        self.settings = settings
        self._foreign = foreign
        self.number = shard
        self.folder = folder
        with plainly(folder):
            make_folder(folder)
        self._erase_after, self._limit = erase_after, limit
        self._erases = erase_after is not None or limit is not None
        limit_cache(settings.cache_bytes)
        # Not synced: what is lost in a power failure is read again from the changelog.
        self.store = Store(folder / "db", sync=False, joint=not self._erases)
        try:
            facts = self._open_format()
            self._answers = KeptAnswers(settings, self.store, shard, int(facts["rows"]))
        except BaseException:
            self.store.close()
            raise
        self.last: int = facts["last"]
        self.count: int = facts["rows"]
        self.changelog_offset: int | None = facts["changelog"]
        self._base: int = facts["base"]
        self._ignored: int = facts["ignored"]
        self._key: bytes | None = bytes.fromhex(facts["key"]) if facts["key"] else None
        self.forgetting = Forgetting(settings, facts.get("window"), self.last) if settings.window is not None else None
        self._deletes = ThreadPoolExecutor(1, f"delete-{shard}")
        self._leaving = Removal(folder, self.store, self._deletes)
        if self.forgetting is not None and self.forgetting.window.spans:
            self._leaving.sweep(self.forgetting.window.spans[0].number)
        if known := facts.get("cleaning"):
            self.cycle = Cycle.of(known)
        else:  # nothing was read, or only by a version without snapshots
            self.cycle = Cycle(facts.get("placed", -1 if self.last < 0 else None))
        began = facts.get("began")
        self.began = None if began is None else Mark(*began)
        self.volume = Volume(facts.get("bytes"), counts=limit is not None)
        self.now: float = facts.get("now", 0.0)
        # Keys overwritten since the snapshot began; None: unknown, because it began before the store was opened.
        self._anew: list[bytes] | None = None if self.cycle.begun and self.cycle.taking is None else []
        self._parts = Adjacent(settings)
        self.torn = False

    def _open_format(self) -> dict[str, Any]:
        facts = self.store.named("replica")
        if facts is None:
            facts = {
                "format": FORMAT, "settings": self.settings.answers, "shard": self.number,
                "created": int(time.time()), "key": None, "last": -1, "rows": 0, "base": 0, "changelog": None,
                "ignored": -1,
            }  # fmt: skip
        if facts["format"] not in (FORMAT, CLEANED):
            older = f"{OLDER}; this prefix needs another data_folder then"
            raise StoreError(
                f"{self.folder} has format {facts['format']}, this version reads {CLEANED}: "
                f"{'upgrade this worker' if facts['format'] > CLEANED else older}"
            )
        differences = self.settings.differences(facts["settings"])
        other = [f"{name} = {there!r} (here {here!r})" for name, (there, here) in differences.items()]
        if facts["shard"] != self.number:
            other.insert(0, f"it is shard {facts['shard']} (here {self.number})")
        if other:
            raise StoreError(
                f"{self.folder} was made with other settings: {', '.join(other)}; use the same settings for all "
                "workers of a topic_prefix, or another data_folder"
            )
        self._made = {name: facts[name] for name in ("format", "settings", "shard", "created")}
        if self._erases:
            self._made["format"] = CLEANED
        return dict(facts)

    def _check_key(self, key: bytes, where: str) -> None:
        """Take the index's key from the first record, and compare it with later ones.

        Raises:
            StoreError: it is another key.
        """
        if self._key is None:
            self._key = key
        elif key != self._key:
            raise StoreError(
                f"{where} has the key of another index than {self.folder}. If the topics were created again, delete "
                f"{self.folder}; else two pipelines use the same topic_prefix: rebuild under another one with "
                "stream-lsh kafka reindex"
            )

    # -- following the changelog ------------------------------------------------------------------------------------

    def apply(self, records: Iterable[tuple[int, bytes]], *, start: int = 0) -> None:
        """Store changes in order.

        Args:
            records: offset in the changelog, and value. The offsets have no gaps, except for what was trimmed.
            start: the first offset of the changelog. An empty store begins there.

        Raises:
            FormatError: a record is unreadable. Records that no version of this program writes are skipped.
            StoreError: a change does not continue the rows of the store.
            Rebuild: a change counts in place of our own; or the changelog begins after the end of this store, and has
                all that is needed.
        """
        applied = Applied()
        self.torn = True  # if a write below fails, closing must not store the newer state
        for end, record in records:
            if self.changelog_offset is not None and end <= self.changelog_offset:
                continue
            applied.size += len(record)
            self.volume.read(len(record))
            try:
                found = self._parts.read(end, record, record_of)
            except ForeignError as error:  # if it replaced one of our changes, the next change shows the gap
                self._foreign(end, error)
                self.changelog_offset = end
                continue
            except FormatError as error:
                raise FormatError(f"the changelog of shard {self.number}, offset {end}: {error}") from None
            if found is None:
                if self._parts.begin is None:
                    self.changelog_offset = end
                continue
            offset, base_or_change = found
            self._check_record(base_or_change)
            if isinstance(base_or_change, Base) or applied.size >= APPLIED_BYTES:
                self._write_applied(applied)
                applied = Applied()
            if isinstance(base_or_change, Base):
                self._apply_base(base_or_change, offset, end, start)
            else:
                self._apply_change(base_or_change, offset, start, applied)
                self.changelog_offset = end
        self._write_applied(applied)
        if self.gap and self.forgetting is not None and self.forgetting.outlived:
            raise Rebuild(f"all that {self.folder} holds has left the window", whole=True)
        self.torn = False

    def _check_record(self, record: Base | Change) -> None:
        """Raise FormatError or StoreError if it is of another shard or index."""
        if record.shard != self.number:
            what = "snapshot record" if isinstance(record, Base) else "change"
            raise FormatError(f"the changelog of shard {self.number} has a {what} of shard {record.shard}")
        self._check_key(record.key, f"the changelog of shard {self.number}")

    def _apply_change(self, change: Change, offset: int, start: int, applied: Applied) -> None:
        if self.forgetting is not None and self.cycle.taking is not None and offset == start:
            raise Rebuild(f"the snapshot from which {self.folder} is built has left the window", whole=True)
        begins, placed = start > 0 and self.last < 0, self.cycle.last_frame
        if (-1 if placed is None else placed) < change.offset <= self.last and not self._answers.agrees(change):
            raise Rebuild(f"the changelog has another worker's change of the frame at {change.offset}", whole=False)
        self.cycle.change(change.offset, change.predecessor, first=begins or offset == start > 0)
        if change.offset > self.last and (change.predecessor == self.last or begins):
            if begins:
                self._base = change.first
            elif change.first != self.count:
                raise StoreError(
                    f"the changelog of shard {self.number} has a change (frame {change.offset} of signatures) that "
                    f"begins at row {change.first}, but {self.folder} has {self.count} rows: they do not belong "
                    "together. Delete the folder: it is rebuilt from the changelog"
                )
            applied.add(change, self._answers)
            self.last, self.count = change.offset, change.last
            if self.forgetting is not None:
                self.forgetting.follow(change, offset)
        elif change.offset > self.last:
            self._ignored = max(self._ignored, change.offset)
            if self.forgetting is not None:
                self.forgetting.ignored(change, first=offset == start)
        elif self.forgetting is not None:
            self.forgetting.placed(change.offset, offset)
        new = self.cycle.last_frame == change.offset != placed
        self._count_change(self.volume.whole(change.values if new else {}))

    def _count_base(self, offset: int, mark: Mark, amount: Amount) -> bool:
        """The next record is a snapshot record. Returns whether it completes a snapshot that counts."""
        if mark.part == BEGINS:
            self.began = mark
        counts = self.cycle.base(offset, mark)
        self.volume.snapshot(mark.part, amount, counts=counts)
        if counts:
            with suppress(OSError):  # an older offset is safe
                replace_file(self.folder / SNAPSHOT, f"{self.cycle.cleaned}\n".encode())
        return counts

    def _count_change(self, amount: Amount) -> None:
        self.volume.change(amount)
        if self.forgetting is not None:
            self.volume.follow(span.number for span in self.forgetting.window.spans)

    def _write_applied(self, applied: Applied) -> None:
        manifest = applied.write(self.store, self.number, self.count, self._facts())
        if self.forgetting is not None:
            self._forget_copied(self.forgetting, manifest)

    def _apply_base(self, base: Base, offset: int, end: int, start: int) -> None:
        """Apply a snapshot record. An empty store begins with the snapshot; another one erases what the snapshot has
        erased.

        Args:
            offset, end: of its first and its last part in the changelog. They are the same if it is not cut.

        Raises:
            Rebuild: the changelog begins after the end of this store, with a snapshot.
        """
        self._made["format"] = CLEANED
        mark, manifest, deleted = base.mark, manifest_of(self.store, self.number), list[bytes]()
        values: dict[bytes, bytes] = {}
        if mark.part == BEGINS:
            self._anew = []
            deleted = self._answers.forget(base.facts["answered"])
            if self.last < 0 and start > 0:
                self.cycle.take(mark.frame)
                self.last, self.count, self._base = mark.frame, mark.last, mark.first
                if self.forgetting is not None:
                    self.forgetting = Forgetting(self.settings, base.facts["window"], mark.frame)
                    self.forgetting.begin(offset)
                lines = [{"number": number, "first": first} for number, first in base.facts["segments"]]
                manifest = {"rows": self.count, "segments": [{**line, "next": 0, "runs": []} for line in lines]}
                if self.settings.late:
                    manifest["provisional"] = base.facts["provisional"]
            elif offset == start and (mark.frame > self.last or self.cycle.taking is not None):
                raise Rebuild(f"the changelog was cleaned since {self.folder} was left", whole=True)
            elif offset == start:
                self.cycle.last_frame = mark.frame
        elif mark.part == HAS_ROWS and mark.first < mark.last <= self._first(manifest):
            pass  # these rows have left the window
        elif mark.part == HAS_ROWS and self.cycle.taking == mark.frame:
            values |= base.values
            values |= deletions(self.store, self.number, manifest, base.deleted_rows)
        elif mark.part == HAS_ROWS and mark.last <= self.count and self.cycle.taking is None:
            shape, lines = Shape(self.settings), manifest["segments"]
            values |= erased_by(base, self.store, self.folder, lines, shape)
            if self._anew is not None:
                self._anew += values
        counts = self._count_base(offset, mark, self.volume.whole(base.values, snapshot=True))
        if mark.part == ENDS:
            if self.cycle.taking is None:
                rare, passed = folded(self.store, self.number, trimmed=self._base > 0)
                if rare:
                    self.store.write(rare, ranges=passed)
            overwrite(self.store, self.folder, self.number, manifest["segments"], Shape(self.settings))
            self._deletes.submit(self._purge).result()  # not while segments are deleted
        if counts:
            self.cycle.at = base.facts["at"]
            values[name_key(ERASED_VERSIONS)] = orjson.dumps(base.facts["erased"])
            deleted += [name_key(place.name) for place in places(self.store) if place.there < mark.before]
        values[name_key(f"shard/{self.number}")] = orjson.dumps(manifest)
        self.changelog_offset = end
        self.store.write(values | self._facts(), deleted)

    def _first(self, manifest: dict[str, Any]) -> int:
        """The first row that still exists, by the shard's manifest."""
        segments = manifest["segments"]
        return int(segments[0]["first"]) if segments else self.count

    def _purge(self) -> None:
        """Remove from the disk what was overwritten since the snapshot began."""
        anew, self._anew = self._anew, []
        if anew is None:
            self.store.purge_all()
        else:
            purge(self.store, anew)
        self.store.sweep()

    def _forget_copied(self, forgetting: Forgetting, manifest: dict[str, Any]) -> None:
        """Delete segments that have left the window, while the shard is not open for matching."""
        known = manifest["segments"]
        decided = manifest["provisional"]["rows"][0] if "provisional" in manifest else self.count
        asked = self._answers.first_row(self.count)
        expired = forgetting.forget(
            [(item["number"], item["first"]) for item in known],
            lambda number, behind: behind <= decided and behind < asked, self.last,
        )  # fmt: skip
        if expired:
            manifest["segments"] = [item for item in known if item["number"] > expired[-1]]
            if DELETED_ROWS in manifest:  # segments are deleted with their marks
                manifest[DELETED_ROWS] -= sum(deleted_count(self.store, self.number, number) for number in expired)
            ranges = [keys for number in expired for keys in ranges_of(self.number, number)]
            values = {name_key(f"shard/{self.number}"): orjson.dumps(manifest)}
            left = behind_window(self.store, self._first(manifest))
            self.store.write(values | self._facts(), map(name_key, left), ranges)
        self._leaving.add(dict.fromkeys(expired, ()))

    @property
    def key(self) -> bytes | None:
        """The key of the index; None before the first frame."""
        return self._key

    @property
    def gap(self) -> bool:
        """Whether a change of the changelog could not be applied, because an earlier one is missing here."""
        return self._ignored > self.last

    @property
    def missing(self) -> int:
        """Number of trimmed rows that new documents can still match."""
        return max(0, self._base - (0 if self.forgetting is None else self.forgetting.seen))

    @property
    def begin(self) -> int | None:
        """Offset of the first part of a record in the changelog whose other parts may follow; None: there is none."""
        begin, offset = self._parts.begin, self.changelog_offset
        return None if begin is None or (offset is not None and begin <= offset) else begin

    def confirmed(self, what: int | Mark, changelog_offset: int, records: int = 1) -> bool:
        """Note that our change of a frame, or our snapshot record, has this offset in the changelog, and that all
        records before it are ours or such as `agrees` accepts. records: how many it is there, if it is cut into parts.

        Returns:
            Whether it completes a snapshot.

        Raises:
            OtherOwner: a snapshot has ended, but another owner has written in between.
        """
        reached, counts = (-1 if self.changelog_offset is None else self.changelog_offset) + 1, False
        if changelog_offset < reached:  # the changelog was followed since
            return False
        if changelog_offset > reached:
            self.cycle.interrupt()
        amount = self.volume.placed(what)
        if isinstance(what, Mark):
            counts = changelog_offset == reached and self._count_base(changelog_offset, what, amount)
        else:
            if self.cycle.last_frame is not None and what <= self.cycle.last_frame:  # it is there already
                amount[1:] = 0
            else:
                self.cycle.last_frame = what
            self._count_change(amount)
            if self.forgetting is not None:
                self.forgetting.placed(what, changelog_offset)
        self.changelog_offset = changelog_offset + records - 1
        if isinstance(what, Mark) and what.part == ENDS and not counts:
            raise OtherOwner(f"shard {self.number} was cleaned, but others have written to its changelog meanwhile")
        return counts

    def agrees(self, records: Iterable[tuple[int, bytes]], *, whole: bool = True) -> bool:
        """Whether records that another worker has written before our next change do not matter: they are changes of
        frames that we have matched, too, with the same result.

        Args:
            records: offset in the changelog, and value.
            whole: whether our change follows them, so that parts at their end count for nothing.
        """
        parts = Adjacent(self.settings)
        for offset, record in records:
            try:
                found = parts.read(offset, record, record_of)
            except ForeignError as error:
                self._foreign(offset, error)
                continue
            except FormatError:
                return False
            if found is None:
                continue
            change = found[1]
            if isinstance(change, Base) or (change.shard, change.key) != (self.number, self._key):
                return False
            if change.offset > self.last or not self._answers.agrees(change):
                return False
        return whole or parts.begin is None

    def _facts(self) -> dict[bytes, bytes]:
        facts: dict[str, Any] = {
            "last": self.last, "rows": self.count, "base": self._base, "changelog": self.changelog_offset,
            "ignored": self._ignored, "key": self._key and self._key.hex(), "placed": self.cycle.last_frame,
        }  # fmt: skip
        if self.forgetting is not None:
            facts["window"] = self.forgetting.facts
        if self._made["format"] == CLEANED:
            facts["cleaning"], facts["now"], facts["began"] = self.cycle, self.now, self.began and [*self.began]
        if self.volume.counts:
            facts["bytes"] = self.volume.facts
        return {name_key("replica"): orjson.dumps(self._made | facts)}

    def _release(self) -> None:
        """Close the store once all deletions are done."""
        self._deletes.shutdown()
        self.store.close()
