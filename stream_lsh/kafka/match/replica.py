"""One shard with a store of its own, kept in step with a changelog: what a match worker on Kafka holds for a partition.

Every frame leaves a change and a reply. Both are written locally in one atomic batch together with the frame's place,
before anything is sent: whatever is killed, the shard holds all of a frame or nothing, and can say both again.
A change is applied only if its predecessor is the last frame applied (the chain rule of docs/architecture.md).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from stream_lsh.errors import ForeignError, FormatError, StateError
from stream_lsh.families.signer import Signer
from stream_lsh.index.batch import parts
from stream_lsh.index.dead import DEAD_ROWS, dead_in, died, marked
from stream_lsh.index.files import make_folder
from stream_lsh.index.generation import FOLDER, Generation
from stream_lsh.index.keys import Hashes
from stream_lsh.index.late import facts
from stream_lsh.index.leaving import Leaving
from stream_lsh.index.matches import Matches
from stream_lsh.index.matching import Matching
from stream_lsh.index.places import Places
from stream_lsh.index.postings import Workers
from stream_lsh.index.refusals import plainly
from stream_lsh.index.shard import NO_NUMBERS, Shard, ranges_of
from stream_lsh.index.store import DEAD, Store, name_key
from stream_lsh.judging.verdicts import shortlist
from stream_lsh.kafka.match.forgetting import Forgetting
from stream_lsh.kafka.match.kept_answers import KeptAnswers, missing
from stream_lsh.settings import Settings
from stream_lsh.wire.changes import Change, Late
from stream_lsh.wire.decisions import Decisions
from stream_lsh.wire.envelope import OLDER
from stream_lsh.wire.frames import Frame
from stream_lsh.wire.replies import Reply, carries, named
from stream_lsh.wire.sequenced import Sequenced
from stream_lsh.wire.signed import signed_batch

FORMAT = 2
REPLY_BYTES, MATCH_BYTES = 32 << 20, 23  # of the matches in a reply; of one of them beside its name
APPLIED_BYTES = 8 << 20  # of changes written at a time
_INPUT = b"documents"  # the name under which places are kept: there is one topic that documents come from


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
        folder: made if missing. foreign: told of each record of the changelog that is none, with its offset; it is
            passed over.

    Attributes:
        last: offset in the signatures topic of the last frame applied, -1 if none was. forgetting: None = no window.
        changelog_offset: how far the changelog is in the store without a hole, or None.

    Raises:
        DamagedError: what the folder holds is missing, cut off or changed.
        StateError: the folder is in use, cannot be opened, is of another format or of other settings; the message says
        which.
    """

    def __init__(
        self, settings: Settings, shard: int, folder: Path, *,
        foreign: Callable[[int, ForeignError], object] = lambda offset, error: None,
    ) -> None:  # fmt: skip
        self.settings = settings
        self._foreign = foreign
        self.number = shard
        self.folder = folder
        with plainly(folder):
            make_folder(folder)
        self.store = Store(folder / "db", sync=False, joint=True)  # what a power cut takes, the changelog brings back
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
        self._leaving = Leaving(folder, self.store, self._deletes)
        if self.forgetting is not None and self.forgetting.window.spans:
            self._leaving.sweep(self.forgetting.window.spans[0].number)
        self._torn = self._activated = False
        self._workers: Workers | None = None
        self._shard: Shard | None = None
        self._signer: Signer
        self._hashes: Hashes
        self._places: Places

    def _open_format(self) -> dict[str, Any]:
        facts = self.store.named("replica")
        if facts is None:
            facts = {
                "format": FORMAT, "settings": self.settings.answers, "shard": self.number,
                "created": int(time.time()), "key": None, "last": -1, "rows": 0, "base": 0, "changelog": None,
                "ignored": -1,
            }  # fmt: skip
        if facts["format"] != FORMAT:
            older = f"{OLDER}; this prefix needs another data_folder then"
            raise StateError(
                f"{self.folder} has format {facts['format']}, this version reads {FORMAT}: "
                f"{'upgrade this worker' if facts['format'] > FORMAT else older}"
            )
        differences = self.settings.differences(facts["settings"])
        other = [f"{name} = {there!r} (here {here!r})" for name, (there, here) in differences.items()]
        if facts["shard"] != self.number:
            other.insert(0, f"it is shard {facts['shard']} (here {self.number})")
        if other:
            raise StateError(
                f"{self.folder} was made with other settings: {', '.join(other)}; use the same settings for all "
                "workers of a topic_prefix, or another data_folder"
            )
        self._made = {name: facts[name] for name in ("format", "settings", "shard", "created")}
        return dict(facts)

    def _check_key(self, key: bytes, where: str) -> None:
        """Take the index's key from the first record that says it.

        Raises:
            StateError: it is another one.
        """
        if self._key is None:
            self._key = key
        elif key != self._key:
            raise StateError(
                f"{where} has the key of another index than {self.folder}. If the topics were made anew, delete "
                f"{self.folder}; else two pipelines use the same topic_prefix: rebuild under another one with "
                "stream-lsh reindex"
            )

    # -- following the changelog ------------------------------------------------------------------------------------

    def apply(self, records: Iterable[tuple[int, bytes]], *, start: int = 0) -> None:
        """Store changes (offset in the changelog, value), in order, without a hole between their offsets but for what
        was trimmed.

        start: the first offset that the changelog has; an empty store begins where it begins.

        Raises:
            FormatError: for a record that cannot be read; but one that is none is passed over.
            StateError: a change does not continue the rows here.
        """
        values: dict[bytes, bytes] = {}
        deleted: list[bytes] = []
        begun: list[tuple[int, int]] = []
        dead: list[NDArray[np.int64]] = []
        late: Late | None = None
        size = 0
        self._torn = True  # if the write below fails, closing must not write down what is not there
        for offset, data in records:
            if self.changelog_offset is not None and offset <= self.changelog_offset:
                continue
            try:
                change = Change.decode(data, self.settings)
            except ForeignError as error:  # nobody's change; one of ours that was missing would show in the next
                self._foreign(offset, error)
                self.changelog_offset = offset
                continue
            if change.shard != self.number:
                raise FormatError(f"the changelog of shard {self.number} has a change of shard {change.shard}")
            self._check_key(change.key, f"the changelog of shard {self.number}")
            begins = start > 0 and self.last < 0
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
                begun += change.generations()
                dead.append(change.dead)
                late = change.late
                values.update(self._answers.add(change, deleted, values))
                self.last, self.count = change.offset, change.last
                size += len(data)
                if self.forgetting is not None:
                    self.forgetting.follow(change, offset)
            elif change.offset > self.last:
                self._ignored = max(self._ignored, change.offset)
                if self.forgetting is not None:
                    self.forgetting.ignored(change, first=offset == start)
            elif self.forgetting is not None:
                self.forgetting.placed(change.offset, offset)
            self.changelog_offset = offset
            if size >= APPLIED_BYTES:
                self._write_applied(values, deleted, begun, late, dead)
                values, deleted, begun, dead, size = {}, [], [], [], 0
        self._write_applied(values, deleted, begun, late, dead)
        self._torn = False

    def _write_applied(
        self, values: dict[bytes, bytes], deleted: list[bytes], begun: Iterable[tuple[int, int]], late: Late | None,
        dead: Sequence[NDArray[np.int64]],
    ) -> None:  # fmt: skip
        manifest = self.store.named(f"shard/{self.number}") or {"generations": []}
        known = manifest["generations"]
        for number, first in begun:
            if known and number <= known[-1]["number"]:
                continue
            while known and known[-1]["first"] >= first:  # nothing has come into it
                known.pop()
            known.append({"number": number, "first": first, "next": 0, "runs": []})
        manifest |= {"rows": self.count, "generations": known}
        if late is not None:
            manifest["undecided"] = facts(*late)
        generations = [(item["number"], item["first"]) for item in known]
        gone = np.concatenate([np.empty(0, np.int64), *dead])
        gone = gone[gone >> 2 >= (generations[0][1] if generations else self.count)]  # others were trimmed away
        if len(gone):
            values.update(marked(self.store, self.number, generations, gone))
            manifest[DEAD_ROWS] = manifest.get(DEAD_ROWS, 0) + len(gone)
        values[name_key(f"shard/{self.number}")] = orjson.dumps(manifest)
        self.store.write(values | self._facts(), deleted)
        if self.forgetting is not None:
            self._forget_copied(self.forgetting, manifest)

    def _forget_copied(self, forgetting: Forgetting, manifest: dict[str, Any]) -> None:
        """Let go of what has left the window, where the shard is not open."""
        known = manifest["generations"]
        decided = manifest["undecided"]["rows"][0] if self.settings.late else self.count
        asked = self._answers.first_row(self.count)
        gone = forgetting.forget(
            [(item["number"], item["first"]) for item in known],
            lambda number, behind: behind <= decided and behind < asked, self.last,
        )  # fmt: skip
        if gone:
            manifest["generations"] = [item for item in known if item["number"] > gone[-1]]
            if DEAD_ROWS in manifest:  # their marks go with the generations
                manifest[DEAD_ROWS] -= sum(dead_in(self.store, self.number, number) for number in gone)
            ranges = [keys for number in gone for keys in ranges_of(self.number, number)]
            values = {name_key(f"shard/{self.number}"): orjson.dumps(manifest)}
            self.store.write(values | self._facts(), ranges=ranges)
        self._leaving.add(dict.fromkeys(gone, ()))

    @property
    def gap(self) -> bool:
        """Whether the changelog has a change that could not be applied, because one before it is missing here."""
        return self._ignored > self.last

    @property
    def missing(self) -> int:
        """How many of the rows that who comes can see were trimmed away."""
        return max(0, self._base - (0 if self.forgetting is None else self.forgetting.seen))

    def confirmed(self, frame: int, changelog_offset: int) -> None:
        """Our change of a frame stands in the changelog at this offset; that counts if it is the next one there."""
        if self.forgetting is not None:
            self.forgetting.placed(frame, changelog_offset)
        if changelog_offset == (-1 if self.changelog_offset is None else self.changelog_offset) + 1:
            self.changelog_offset = changelog_offset

    # -- matching ---------------------------------------------------------------------------------------------------

    def activate(self) -> None:
        """Open the shard, to match; postings of rows above the last flush are rebuilt. An empty one is opened by its
        first frame, which has the key.

        Raises:
            DamagedError: what is on disk is missing, cut off or changed. StateError: it cannot be opened.
        """
        self._activated = True
        if self._shard is None and self._key is not None:
            with plainly(self.folder / FOLDER):
                self._shard = self._opened(self._key)

    def _opened(self, key: bytes) -> Shard:
        self._signer, self._hashes = Signer(self.settings.signing, key), Hashes(self.settings.signing, key)
        self._workers = workers = Workers()
        try:
            shard = Shard(
                self.number, self.settings, self.store, self.folder, self._hashes, self._signer.shingle, workers,
                base=self._base,
            )  # fmt: skip
        except BaseException:
            workers.close()
            raise
        self._places = Places(shard, self.store)
        return shard

    def deactivate(self) -> None:
        """Close the shard; the store stays open. It does not wait for a merge, that is done again."""
        shard, workers, self._shard, self._workers = self._shard, self._workers, None, None
        self._activated = False
        if shard is None or workers is None:
            return
        try:
            shard.finish()
            if not self._torn:
                manifest, passed = shard.manifest()
                self.store.write(manifest | self._facts(), ranges=passed)
                shard.committed()
        finally:
            workers.close()
            shard.close()

    @property
    def pause(self) -> float:
        """Seconds to wait for every 1,000 documents, so that merges keep up."""
        return 0.0 if self._shard is None else self._shard.pause

    def match(self, value: bytes) -> Answer | None:
        """Match and store one record of the frames topic. When this returns, everything is in the store.

        A frame that was matched before gives the same answer again. None: the frame's predecessor is missing; its
        sender will send that and this one again.

        Raises:
            FormatError: the record cannot be read.
        """
        sequenced = Sequenced.decode(value, self.settings)
        self._check_key(sequenced.key, "the frames topic")
        if sequenced.offset <= self.last:
            return self._again(sequenced.offset)
        if sequenced.predecessor != self.last:
            return None
        shard = self._active()
        frame = Frame.decode(sequenced.frame, self.settings)
        batch = signed_batch(frame, sequenced, self.settings, self._hashes, self._signer)
        shard.poll()
        self._torn = True  # from here to the write nothing else may be written: the store has all of a frame or nothing
        first, values = shard.count, dict[bytes, bytes]()
        step, places, block = Matching(shard, batch), sequenced.places(len(batch)), self.settings.block
        forgetting, gone, seen = self.forgetting, dict[int, list[Generation]](), None
        if forgetting is None:
            generations = places // self.settings.documents_of_a_generation
        else:
            generations = forgetting.cut(sequenced.offset, batch.documents.log, places)
        for generation, start, stop in parts(places, generations, block):
            values.update(shard.pending())  # what `begin` flushes is in files here, but not for those who follow
            groups = self._enter(shard, int(places[start]) // block, sequenced) if block else NO_NUMBERS
            shard.begin(generation)
            # A block begins with a document that counts; whatever is before it in its frame leaves no trace.
            begin = start if sequenced.accepted is None else start + int(np.argmax(sequenced.accepted[start:stop]))
            step.run(begin, stop, groups)
            shard.keep(step.matches(), batch, start, stop)
            if self.settings.updates and self.settings.against == "unique":  # else there are no heirs
                row_of, source = step.matches().row_of[start:stop], frame.source
                partitions = source.partitions[start:stop].astype(np.int64)
                self._places.add(_INPUT, row_of, partitions, source.offsets[start:stop])
        reply = self._reply(sequenced, frame, step.matches(), shard).encode(self.settings)
        if forgetting is not None:
            seen = forgetting.behind(generations, shard.begins, shard.count)
            gone = self._forgotten(shard, forgetting, sequenced.offset)
        local, passed = shard.take()
        local |= self._places.take()
        values.update((key, taken) for key, taken in local.items() if not key.startswith((name_key(""), DEAD)))
        self.count = shard.count
        late = (shard.late.block, shard.late.first, shard.late.second) if block else None
        dead = died(local, self.store)
        if seen is not None:  # a generation that nobody sees any more is still here, or not
            dead = dead[dead >> 2 >= seen.first]
        change = Change(
            self.number, sequenced.offset, sequenced.predecessor, first, self.count, sequenced.key, values, reply, late,
            dead, seen,
        )  # fmt: skip
        deleted: list[bytes] = []
        kept = self._answers.add(change, deleted, {})
        self.last = sequenced.offset
        self.store.write(local | kept | self._facts(), deleted, passed)
        self._torn = False
        shard.committed()
        self._leaving.add(gone)
        if shard.full:
            shard.flush()
        return Answer(sequenced.offset, change.encode(self.settings), reply, len(batch))

    def _forgotten(self, shard: Shard, forgetting: Forgetting, frame: int) -> dict[int, list[Generation]]:
        """Leave out of the shard what nobody sees any more; it counts until the next manifest."""
        gone = forgetting.forget(
            shard.begins,
            lambda number, behind: shard.lets_go(number) and behind < self._answers.first_row(self.count),
            frame,
        )
        return {number: shard.drop(number) for number in gone}

    def _enter(self, shard: Shard, block: int, sequenced: Sequenced) -> NDArray[np.int64]:
        """The next document is of this block of the log. One that begins comes with what is decided by then; the groups
        that are to be told then who may stand for them.

        Raises:
            FormatError: it does not.
        """
        groups = NO_NUMBERS
        if block > shard.late.block and block > 1:
            if not len(sequenced.decisions):
                raise FormatError("a sequenced frame is damaged: a block begins in it, and it has no decisions")
            decided = Decisions.decode(sequenced.decisions, self.settings)
            shard.tell(decided.fates, decided.names, decided.heirs.seq)
            groups = decided.gone[:, 1].copy()
        shard.enter(block)
        return groups

    def _reply(self, sequenced: Sequenced, frame: Frame, matches: Matches, shard: Shard) -> Reply:
        rows = np.concatenate((matches.went[matches.went[:, 2] >= 0, 2:4], matches.heirs[:, 2:]))
        heirs = {seq: self._place(row) for row, seq in rows.tolist()}
        matches, names = self._listed(matches, shard)
        mine = carries(self.number, sequenced.offset, self.settings.shards)
        return Reply(
            self.number, sequenced.offset, sequenced.predecessor, matches, names, frame.source if mine else None,
            sequenced.accepted if mine else None, heirs, sequenced.log if mine else None,
        )  # fmt: skip

    def _place(self, row: int) -> tuple[int, int]:
        """Source partition and offset of a document that became a row.

        Raises:
            DamagedError: they are missing.
        """
        found = self._places.of(row)
        if found is None:
            raise missing(self.store, self.number, row)
        return found[1:]

    def _listed(self, matches: Matches, shard: Shard) -> tuple[Matches, list[bytes]]:
        """The matches that the reply has, and its names: few enough to fit, and the judge would list no more."""
        # Where several shards keep, only the judge knows what counts: all that were found, as far as they fit.
        most = 0 if self.settings.late else self.settings.max_matches
        most = most or len(matches.document)
        while True:
            listed = shortlist(matches, most)
            size = len(listed.document) * MATCH_BYTES
            if not most or size <= REPLY_BYTES:
                found, said = named(listed, shard.ids)
                if not most or size + sum(map(len, said)) <= REPLY_BYTES:
                    return found, said
            most //= 2

    def _again(self, offset: int) -> Answer:
        assert self._key is not None, "a frame was applied, which has it"
        change = self._answers.change(offset, self._key, self._flushed)
        if change is None:
            return Answer(offset, None, None)
        return Answer(offset, change.encode(self.settings), change.reply)

    def _flushed(self, first: int, last: int) -> bytes:
        shard = self._active()
        return (shard.value_untold if self.settings.late else shard.value_of)(first, last)

    def _facts(self) -> dict[bytes, bytes]:
        facts: dict[str, Any] = {
            "last": self.last, "rows": self.count, "base": self._base, "changelog": self.changelog_offset,
            "ignored": self._ignored, "key": self._key and self._key.hex(),
        }  # fmt: skip
        if self.forgetting is not None:
            facts["window"] = self.forgetting.facts
        return {name_key("replica"): orjson.dumps(self._made | facts)}

    def _active(self) -> Shard:
        if self._activated:
            self.activate()
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
            self._deletes.shutdown()
            self.store.close()
