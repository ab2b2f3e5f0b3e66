"""One shard with a store of its own, kept in step with a changelog: what a match worker on Kafka holds for a partition.

Every frame leaves a change and a reply. Both are written locally in one atomic batch together with the frame's place,
before anything is sent: whatever is killed, the shard holds all of a frame or nothing, and can say both again.
A change is applied only if its predecessor is the last frame applied (the chain rule of docs/architecture.md).
"""

from __future__ import annotations

import struct
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import orjson

from stream_lsh.errors import FormatError, StateError
from stream_lsh.families.signer import Signer
from stream_lsh.index.batch import SignedBatch, shingle
from stream_lsh.index.postings import Postings, Workers
from stream_lsh.index.refusals import plainly
from stream_lsh.index.shard import Matches, Shard
from stream_lsh.index.store import ANSWERS, Store, name_key, rows_key
from stream_lsh.kafka.match.shortlist import shortlist
from stream_lsh.settings import Settings
from stream_lsh.wire.changes import Change
from stream_lsh.wire.frames import Frame, Sequenced, signed_batch
from stream_lsh.wire.replies import Reply, carries

FORMAT = 1
REPLY_BYTES, MATCH_BYTES = 32 << 20, 27  # of the matches in a reply; of one of them beside its id
APPLIED_BYTES = 8 << 20  # of changes written at a time
_ANSWER = struct.Struct("<qqqI")  # predecessor, rows before and after, number of keys
_KEY_BYTES = 11


@dataclass(frozen=True, slots=True)
class Answer:
    """What is to be sent for a frame: the change to the changelog, the reply to the judge. Both are None for a frame
    that was answered so long ago that the judge must have had it.

    documents: how many were matched for it just now, 0 where it is an answer said again.
    """

    offset: int
    change: bytes | None
    reply: bytes | None
    documents: int = field(default=0, compare=False)


class Replica:
    """A shard and its store in a folder; opened as a copy that follows the changelog, until `activate`.

    Args:
        folder: made if missing. answers: frames whose answers are kept to be said again; more than the sequencer lets
            be under way.

    Attributes:
        last: offset in the signatures topic of the last frame applied, -1 if none was.
        changelog_offset: how far the changelog is in the store without a hole, or None.

    Raises:
        DamagedError: what the folder holds is missing, cut off or changed.
        StateError: the folder is in use, cannot be opened, is of another format or of other settings; the message says
        which.
    """

    def __init__(self, settings: Settings, shard: int, folder: Path, *, answers: int = 2048) -> None:
        self.settings = settings
        self.number = shard
        self.folder = folder
        self._most_answers = answers
        with plainly(folder):
            folder.mkdir(parents=True, exist_ok=True)
        self.store = Store(folder / "db", sync=False)  # what a power cut takes, the changelog brings back
        try:
            facts = self._open_format()
            self._answers = deque(self.store.numbers(ANSWERS, shard))
            self._signer = Signer(settings.signing)
        except BaseException:
            self.store.close()
            raise
        self.last: int = facts["last"]
        self.count: int = facts["rows"]
        self.changelog_offset: int | None = facts["changelog"]
        self._base: int = facts["base"]
        self._ignored: int = facts["ignored"]
        self._torn = False
        self._workers: Workers | None = None
        self._shard: Shard | None = None

    def _open_format(self) -> dict[str, int]:
        found = self.store.named("replica")
        if found is None:
            found = {
                "format": FORMAT, "fingerprint": self.settings.fingerprint, "shard": self.number,
                "created": int(time.time()), "last": -1, "rows": 0, "base": 0, "changelog": None,
                "ignored": -1,
            }  # fmt: skip
        if found["format"] != FORMAT:
            raise StateError(
                f"{self.folder} has format {found['format']}, this version reads {FORMAT}; delete the folder: it is "
                "rebuilt from the changelog"
            )
        if found["fingerprint"] != self.settings.fingerprint or found["shard"] != self.number:
            raise StateError(
                f"{self.folder} holds shard {found['shard']} of settings with the fingerprint {found['fingerprint']}, "
                f"here it is shard {self.number} of {self.settings.fingerprint}: use the same settings for all workers "
                "of a topic_prefix, or another data_folder"
            )
        self._made = {name: found[name] for name in ("format", "fingerprint", "shard", "created")}
        facts = {name: found[name] for name in ("last", "rows", "base", "changelog")}
        return {**facts, "ignored": found.get("ignored", -1)}  # older folders do not have it

    # -- following the changelog ------------------------------------------------------------------------------------

    def apply(self, records: Iterable[tuple[int, bytes]], *, trimmed: bool = False) -> None:
        """Store changes (offset in the changelog, value), in order, without a hole between their offsets but for what
        was trimmed.

        trimmed: the changelog does not begin at its beginning any more, and an empty store begins where it begins.

        Raises:
            FormatError: for a record that cannot be read. StateError: a change does not continue the rows here.
        """
        values: dict[bytes, bytes] = {}
        deleted: list[bytes] = []
        size = 0
        self._torn = True  # if the write below fails, closing must not write down what is not there
        for offset, data in records:
            if self.changelog_offset is not None and offset <= self.changelog_offset:
                continue
            change = Change.decode(data, self.settings)
            if change.shard != self.number:
                raise FormatError(f"the changelog of shard {self.number} has a change of shard {change.shard}")
            begins = trimmed and self.last < 0
            if change.offset > self.last and (change.predecessor == self.last or begins):
                if begins:
                    self._base = change.first
                elif change.first != self.count:
                    raise StateError(
                        f"the changelog of shard {self.number} has a change (frame {change.offset} of signatures) that "
                        f"begins at row {change.first}, but {self.folder} has {self.count} rows: they do not belong "
                        "together. Delete the folder: it is rebuilt from the changelog"
                    )
                values.update(change.values)
                values.update(self._answered(change, deleted, values))
                self.last, self.count = change.offset, change.last
                size += len(data)
            elif change.offset > self.last:
                self._ignored = max(self._ignored, change.offset)
            self.changelog_offset = offset
            if size >= APPLIED_BYTES:
                self._write_applied(values, deleted)
                values, deleted, size = {}, [], 0
        self._write_applied(values, deleted)
        self._torn = False

    def _write_applied(self, values: dict[bytes, bytes], deleted: list[bytes]) -> None:
        manifest = self.store.named(f"shard/{self.number}") or {}
        values[name_key(f"shard/{self.number}")] = orjson.dumps(manifest | {"rows": self.count})
        self.store.write(values | self._facts(), deleted)

    @property
    def gap(self) -> bool:
        """Whether the changelog has a change that could not be applied, because one before it is missing here."""
        return self._ignored > self.last

    def confirmed(self, changelog_offset: int) -> None:
        """One of our changes stands in the changelog at this offset; it counts if it is the next one there."""
        if changelog_offset == (-1 if self.changelog_offset is None else self.changelog_offset) + 1:
            self.changelog_offset = changelog_offset

    # -- matching ---------------------------------------------------------------------------------------------------

    def activate(self) -> None:
        """Open the shard, to match; postings of rows above the last flush are rebuilt.

        Raises:
            DamagedError: what is on disk is missing, cut off or changed. StateError: it cannot be opened.
        """
        if self._shard is None:
            with plainly(self.folder / "postings"):
                self._activate(self.folder / "postings")

    def _activate(self, postings: Path) -> None:
        manifest = self.store.named(f"shard/{self.number}") or {}
        rebuild = not postings.exists() or "flushed" not in manifest
        postings.mkdir(exist_ok=True)
        workers = Workers()
        try:
            runs = Postings(postings, self.number, self.store, workers, rebuild=rebuild, base=self._base)
            self._shard = Shard(
                self.number, self.settings, self.store, postings, partial(shingle, self._signer), runs, base=self._base
            )
        except BaseException:
            workers.close()
            raise
        self._workers = workers

    def deactivate(self) -> None:
        """Close the shard; the store stays open. It does not wait for a merge, that is done again."""
        shard, workers, self._shard, self._workers = self._shard, self._workers, None, None
        if shard is None or workers is None:
            return
        try:
            shard.postings.finish()
            if not self._torn:
                self.store.write(shard.manifest() | shard.postings.take() | self._facts())
                shard.postings.committed()
        finally:
            workers.close()
            shard.close()

    def match(self, value: bytes) -> Answer | None:
        """Match and store one record of the frames topic. When this returns, everything is in the store.

        A frame that was matched before gives the same answer again. None: the frame's predecessor is missing; its
        sender will send that and this one again.

        Raises:
            FormatError: the record cannot be read.
        """
        sequenced = Sequenced.decode(value, self.settings)
        if sequenced.offset <= self.last:
            return self._again(sequenced.offset)
        if sequenced.predecessor != self.last:
            return None
        shard = self._active()
        frame = Frame.decode(sequenced.frame, self.settings)
        batch = signed_batch(frame, sequenced.accepted, self.settings, self._signer, sequenced.offset)
        shard.postings.poll()
        self._torn = True  # from here to the write nothing else may be written: the store has all of a frame or nothing
        first = int(shard.rows.count[0])
        matches = shard.match(batch)
        shard.keep(matches, batch)
        reply = self._reply(sequenced, frame, batch, matches, shard).encode(self.settings)
        taken = shard.take()
        local = shard.manifest()
        values = {key: taken[key] for key in taken if key not in local}
        self.count = int(shard.rows.count[0])
        change = Change(
            self.number, sequenced.offset, sequenced.predecessor, first, self.count, values, reply
        )  # fmt: skip
        deleted: list[bytes] = []
        kept = self._answered(change, deleted, {})
        self.last = sequenced.offset
        self.store.write(values | local | shard.postings.take() | kept | self._facts(), deleted)
        self._torn = False
        shard.postings.committed()
        if shard.full:
            shard.flush()
        return Answer(sequenced.offset, change.encode(self.settings), reply, len(batch))

    def _reply(
        self, sequenced: Sequenced, frame: Frame, batch: SignedBatch, matches: Matches, shard: Shard
    ) -> Reply:  # fmt: skip
        matches, older = self._listed(matches, shard)
        mine = carries(self.number, sequenced.offset, self.settings.shards)
        return Reply(
            self.number, sequenced.offset, sequenced.predecessor, matches, older, frame.source if mine else None,
            sequenced.accepted if mine else None,
        )  # fmt: skip

    def _listed(self, matches: Matches, shard: Shard) -> tuple[Matches, list[bytes]]:
        """The matches that the reply names, and their ids: few enough to fit, and the judge would list no more."""
        most = self.settings.max_matches or len(matches.document)
        while True:
            listed = shortlist(matches, most)
            size = len(listed.document) * MATCH_BYTES
            if not most or size <= REPLY_BYTES:
                older = [shard.ids.read(row) for row in listed.row.tolist()]
                if not most or size + sum(map(len, older)) <= REPLY_BYTES:
                    return listed, older
            most //= 2

    def _again(self, offset: int) -> Answer:
        value = self.store.value(rows_key(ANSWERS, self.number, offset))
        if value is None:
            return Answer(offset, None, None)
        predecessor, first, last, n = _ANSWER.unpack_from(value)
        at = _ANSWER.size + n * _KEY_BYTES
        keys = [value[k : k + _KEY_BYTES] for k in range(_ANSWER.size, at, _KEY_BYTES)]
        values = {key: self.store.value(key) or b"" for key in keys}
        reply = value[at:]
        change = Change(self.number, offset, predecessor, first, last, values, reply)
        return Answer(offset, change.encode(self.settings), reply)

    def _answered(self, change: Change, deleted: list[bytes], fresh: dict[bytes, bytes]) -> dict[bytes, bytes]:
        """The value that keeps an answer; the oldest kept one goes, out of `fresh` if it is not written yet."""
        self._answers.append(change.offset)
        while len(self._answers) > self._most_answers:
            old = rows_key(ANSWERS, self.number, self._answers.popleft())
            if fresh.pop(old, None) is None:
                deleted.append(old)
        head = _ANSWER.pack(change.predecessor, change.first, change.last, len(change.values))
        return {rows_key(ANSWERS, self.number, change.offset): b"".join((head, *change.values, change.reply))}

    def _facts(self) -> dict[bytes, bytes]:
        facts = {
            "last": self.last, "rows": self.count, "base": self._base, "changelog": self.changelog_offset,
            "ignored": self._ignored,
        }  # fmt: skip
        return {name_key("replica"): orjson.dumps(self._made | facts)}

    def _active(self) -> Shard:
        if self._shard is None:
            raise RuntimeError(f"shard {self.number} is not active")
        return self._shard

    def close(self) -> None:
        """Close shard and store; nothing is lost."""
        try:
            self.deactivate()
            if not self._torn:
                self.store.write(self._facts())
        finally:
            self.store.close()
