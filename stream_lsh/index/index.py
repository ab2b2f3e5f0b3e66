"""The index: P shards over one store, and the order in which a batch goes through them."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from stream_lsh.documents.columns import Columns
from stream_lsh.errors import DamagedError, StateError, StreamLshError
from stream_lsh.families.signer import Signer
from stream_lsh.index import layout
from stream_lsh.index.batch import SignedBatch, shingle, sign_batch
from stream_lsh.index.postings import Postings, Workers
from stream_lsh.index.shard import Matches, Shard
from stream_lsh.index.store import Store, name_key
from stream_lsh.settings import Settings

FORMAT = 1


class Index:
    """Signing and matching against a persistent index.

    Args:
        folder: where it lives (created if missing). durable: wait for the disk at every commit.

    Raises:
        StateError: for other settings, another format, another process, damage; the message names the file and the
        remedy.
    """

    def __init__(self, settings: Settings, folder: Path, *, durable: bool = True) -> None:
        self.settings = settings
        self.folder = folder
        self._signer = Signer(settings.signing)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StateError(f"state folder {folder} cannot be made: {error.strerror}") from None
        self._torn = False
        self._workers = Workers()
        self.shards: list[Shard] = []
        self.store = Store(folder / "db", sync=durable)
        try:
            self._open_format()
            postings = folder / "postings"
            rebuild = not postings.exists()
            postings.mkdir(exist_ok=True)
            for number in range(settings.shards):
                runs = Postings(postings, number, self.store, self._workers, rebuild=rebuild)
                shingler = partial(shingle, self._signer)
                self.shards.append(Shard(number, settings, self.store, postings, shingler, runs))
        except BaseException:
            self._release()
            raise
        self._pool = ThreadPoolExecutor(settings.shards, "shard") if settings.shards > 1 else None

    def _open_format(self) -> None:
        found = self.store.named("index")
        if found is None:
            if (self.folder / "postings").exists():
                raise DamagedError(
                    f"the index in {self.folder} is damaged: {self.store.path} is empty, but there are postings of "
                    "what it held; restore the whole folder from a backup or start a new one"
                )
            facts = {
                "format": FORMAT,
                "created": int(time.time()),
                "settings": self.settings.answers,
                "fingerprint": self.settings.fingerprint,
            }
            self.store.write({name_key("index"): orjson.dumps(facts)})
            return
        if found.get("format") != FORMAT:
            raise StateError(
                f"{self.store.path} has format {found.get('format')}, this version reads {FORMAT}; "
                "start a new folder and feed it again"
            )
        if found["fingerprint"] != self.settings.fingerprint:
            mine, theirs = self.settings.answers, found["settings"]
            other = ", ".join(
                f"{name} = {theirs.get(name)!r} (now {mine[name]!r})" for name in mine if theirs.get(name) != mine[name]
            )
            raise StateError(
                f"the index in {self.folder} was made with other settings: {other}; use those, or another folder"
            )

    @property
    def count(self) -> int:
        """Number of documents stored."""
        return sum(int(shard.rows.count[0]) for shard in self.shards)

    def sign(self, columns: Columns) -> SignedBatch:
        """A batch signed; may run beside `match` in another thread."""
        return sign_batch(self._signer, self.settings, columns, want_shingles=self.settings.verify == "exact")

    def match(self, batch: SignedBatch, seqs: NDArray[np.int64]) -> list[Matches]:
        """Match and store a batch whose documents have the (ascending) numbers `seqs`: one result a shard.

        Batches must come in order, from one thread, and not while the index is `full`.
        """
        if self.full:
            raise RuntimeError("the memory segment is full: commit before the next batch")
        self._maintain()
        batch.documents.seqs[:] = seqs
        if self.settings.against == "unique":
            found = self._match_stepwise(batch)
        elif self._pool is None:
            found = [self.shards[0].match(batch)]
        else:
            found = list(self._pool.map(lambda shard: shard.match(batch), self.shards))
        for shard, matches in zip(self.shards, found, strict=True):
            shard.keep(matches, batch)
        return found

    def query(self, batch: SignedBatch) -> list[Matches]:
        """Match a batch without storing anything."""
        return [self._look(shard, batch) for shard in self.shards]

    def _look(self, shard: Shard, batch: SignedBatch) -> Matches:
        step = shard.step(batch, batch.documents)
        for i in range(len(batch)):
            step.run(i, i + 1, layout.ASK)
        return step.matches()

    def _match_stepwise(self, batch: SignedBatch) -> list[Matches]:
        """`against unique`: whether a document may be met by later ones is known only when all shards have answered
        for it."""
        n = len(batch)
        steps = [shard.step(batch, batch.owned_by(shard.number)) for shard in self.shards]
        if len(steps) == 1:
            start, decision = 0, layout.OPEN
            while True:
                reached, matched = steps[0].run(start, n, decision)
                if reached >= n:
                    return [steps[0].matches()]
                start, decision = reached, layout.NOT_UNIQUE if matched else layout.UNIQUE
        for i in range(n):
            matched = False
            for step in steps:
                matched |= step.run(i, i + 1, layout.ASK)[1]
            owner = steps[batch.owner[i]]
            if owner.status[i] == layout.NEW:
                owner.run(i, i + 1, layout.NOT_UNIQUE if matched else layout.UNIQUE)
        return [step.matches() for step in steps]

    def _maintain(self) -> None:
        for shard in self.shards:
            shard.postings.poll()

    @property
    def full(self) -> bool:
        """Whether `commit` is due before another batch, because memory segments must be flushed."""
        return any(shard.full for shard in self.shards)

    def commit(self, facts: Mapping[str, Any]) -> None:
        """Make everything up to now durable, together with the given facts (JSON by name), in one atomic write.

        Raises:
            StateError: an earlier commit was broken off.
        """
        if self._torn:
            raise StateError(
                f"a commit of the index in {self.folder} was broken off: open it again; "
                "what was committed before is in it"
            )
        values = {name_key(name): orjson.dumps(value) for name, value in facts.items()}
        # The shards hand over their rows and call them committed; if these are not written, nothing may be any more.
        self._torn = True
        for shard in self.shards:
            values.update(shard.take())
            values.update(shard.postings.take())
        self.store.write(values)
        for shard in self.shards:
            shard.postings.committed()
            if shard.full:
                shard.flush()
        self._torn = False

    def close(self) -> None:
        """Close without committing: what was not committed is gone."""
        try:
            if self._pool is not None:
                self._pool.shutdown()  # where `match` was interrupted, shards may be at work still
            if not self._torn:
                self._write_manifest()
        finally:
            self._release()

    def _write_manifest(self) -> None:
        """Let what the background threads have finished count."""
        for shard in self.shards:
            shard.postings.finish()
        if any(shard.postings.changed for shard in self.shards):
            values: dict[bytes, bytes] = {}
            for shard in self.shards:
                values.update(shard.manifest())
                values.update(shard.postings.take())
            self.store.write(values)
            for shard in self.shards:
                shard.postings.committed()

    def _release(self) -> None:
        """Close everything that is open, last the store; whatever of it fails, the rest is closed."""
        with ExitStack() as stack:
            stack.callback(self.store.close)
            for shard in self.shards:
                stack.callback(shard.close)
            stack.callback(self._workers.close)
            for shard in self.shards:
                with suppress(StreamLshError):  # what went wrong before is what is to be told
                    shard.postings.finish()


def disk_bytes(folder: Path) -> int:
    """Bytes that a folder's files take; it may be in use: what is renamed or deleted meanwhile is not counted."""
    total = 0
    for where, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                total += Path(where, name).lstat().st_size
    return total
