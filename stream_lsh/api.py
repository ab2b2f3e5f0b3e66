"""The public interface in Python: documents in, verdicts out, an index that persists."""

from __future__ import annotations

import json
import threading
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import numpy as np
import orjson
from numpy.typing import NDArray

from stream_lsh.documents.columns import Columns, Document, Rejection, columns
from stream_lsh.embedded.engine import Engine
from stream_lsh.embedded.groups import opened
from stream_lsh.embedded.temporary import temporary_folder
from stream_lsh.errors import StoreError, UsageError
from stream_lsh.index.index import Index
from stream_lsh.index.rows import layout
from stream_lsh.judging.verdicts import Judgement, Kind, judge
from stream_lsh.settings.model import Settings

Wanted = str | bytes | int | Sequence[str] | Mapping[str, float] | Sequence[float] | NDArray[Any]
"""What one may look for: a text, a set, weights, a vector, or bits."""
BATCH = 1024
COMMIT_SECONDS = 0.5
NO_VALUES = ("missing_field", "wrong_type", "too_large")  # a query that is refused for that can be put right
MOST_FACTS = 64 * 1024  # bytes of the caller's facts as JSON


@dataclass(frozen=True, slots=True)
class Match:
    """An earlier document that is similar enough; `evidence`: what that rests on, where the measure says more of it
    than a number."""

    id: str | int
    seq: int
    similarity: float
    evidence: Mapping[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class Pair:
    """Two near-duplicates; `verified`: "exact" or "signature"."""

    older: str | int
    newer: str | int
    older_seq: int
    newer_seq: int
    similarity: float
    verified: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on one document.

    Attributes:
        kind: "unique", "near_duplicate", "exact_duplicate", "redelivered", "deleted", "outdated" (older than what is
            known of the id) or "rejected" (then `reason` says why).
        first_kind: of a redelivered document the kind that it had first, with `of`, `similarity` and `group` of then.
        of: id of the oldest match; similarity: with that one.
        group: number of the document that founded the group, its own if it was kept; None against "all".
        matches: best first; truncated: how many more there are.
        incomplete: how many things it was not compared with, although they might have matched.
        replaces: number of the version that was replaced or deleted; heir: id and number of the document that stands
            for its group now. heirs: with several shards heirs are known later: group, id and number of each that
            stands for its group from this document on.
    """

    id: str | int | None
    seq: int
    kind: str
    first_kind: str | None
    of: str | int | None
    similarity: float | None
    group: int | None
    matches: tuple[Match, ...]
    truncated: int
    incomplete: int
    reason: str | None
    verified: str
    replaces: int | None = None
    heir: tuple[str | int, int] | None = None
    heirs: tuple[tuple[int, str | int, int], ...] = ()

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """The near-duplicate pairs that the document makes."""
        assert not self.matches or self.id is not None
        return tuple(
            Pair(match.id, self.id or "", match.seq, self.seq, match.similarity, self.verified)
            for match in self.matches
        )


class Deduplicator:
    """Finds near-duplicates in a stream of documents.

        with Deduplicator(Settings(threshold=0.7), index="index") as deduplicator:
            for verdict in deduplicator.process(documents):
                ...

    Several threads may use one Deduplicator: `process` takes the documents of a batch together, and batches of several
    threads follow one another in the order in which they come.

    Args:
        settings: those that are not given are the index's own; of a new index, the defaults. index: folder of the
            persistent index; without it the index is temporary.
        read_only: for `query` and `facts` only: the index as it was committed last when this was opened, also while
            another process writes to it.
        commit: "auto": everything processed becomes durable twice a second and at the end. "manual": only `commit()`
            makes it durable. As with a database's transaction, what was not committed is gone after `close`, a `with`
            that ends, or a crash; until then it is held in memory. Whoever commits his own position as `facts`, after
            using the verdicts, goes on from there after a crash and gets the verdicts that he has not used again.

    Attributes:
        settings: those of the index.

    Raises:
        StoreError: if the folder is in use, damaged, or was made with other settings.
        UsageError: read_only without a folder, or there is no such way to commit.
    """

    def __init__(
        self,
        settings: Settings | None = None,
        index: str | Path | None = None,
        *,
        read_only: bool = False,
        commit: Literal["auto", "manual"] = "auto",
    ) -> None:
        if commit not in ("auto", "manual"):
            raise UsageError(f"commit = {commit!r}: there are 'auto' and 'manual'")
        if read_only and index is None:
            raise UsageError("read_only = True is for an index that is there: give its folder as index")
        self._lock = threading.RLock()
        self._temporary = temporary_folder() if index is None else None
        folder = Path(index) if index is not None else Path(self._temporary.name if self._temporary else "")
        self._index = Index(
            settings or Settings(), folder, durable=index is not None, read_only=read_only, now=time.time()
        )
        self.settings = self._index.settings
        self._read_only = read_only
        self._automatic = commit == "auto"
        try:
            self._engine = Engine(self._index, opened(self._index, False, None))
            self._facts: bytes = orjson.dumps(self._index.store.named("facts") or {})
            if not read_only:
                self._engine.check_finished()
        except BaseException:
            self._index.close()
            raise
        self._committed = time.monotonic()
        self._untaken = 0  # verdicts that `process` has, and nobody has seen yet
        self._closed = False
        self._torn = False

    def process(self, documents: Iterable[Document], *, batch: int | None = None) -> Iterator[Verdict]:
        """The verdict on each document, in order; every document is compared with those before it and then stored.

        Args:
            batch: documents taken at a time. By default 1024 from a sequence, and one by one from anything else, so
                that a live feed has each verdict at once.

        Raises:
            UsageError: it is read-only; or there is a window, and the very first document has no time.
            StoreError: it is closed, or a batch or a commit was broken off.
        """
        if self._read_only:
            raise UsageError("this Deduplicator is read-only: it answers queries and stores nothing")
        size = batch or (BATCH if isinstance(documents, Sequence) else 1)
        iterator = iter(documents)
        while taken := list(islice(iterator, min(size, BATCH))):
            with self._lock:
                verdicts = self._process(taken)
                self._untaken += len(verdicts)
                pause = self._index.pause * len(taken) / 1000
            left = len(verdicts)
            try:
                for verdict in verdicts:
                    left -= 1
                    self._take(1)
                    yield verdict
            finally:
                self._take(left)  # whoever breaks off does not want them
            if pause:  # merges have to keep up
                time.sleep(pause)

    def _take(self, count: int) -> None:
        with self._lock:
            self._untaken -= count

    def _process(self, documents: Sequence[Document]) -> list[Verdict]:
        self._check_whole()
        found = self._columns(documents)
        signed = self._index.sign(found)
        self._torn = True  # a commit sees all of a batch or nothing
        window = self._index.window
        jumps = window.jumps if window is not None else 0
        try:
            judged = self._engine.add(found, signed)
        except UsageError:  # nothing has changed
            self._torn = False
            raise
        verdicts = [  # a commit may forget the ids
            self._verdict(judged.judgement, i, judged.reasons) for i in range(len(documents))
        ]
        self._torn = False
        if self._automatic and (self._index.full or time.monotonic() - self._committed >= COMMIT_SECONDS):
            self.commit()
        if window is not None and window.jumps > jumps:
            warnings.warn(
                f"the times of the documents went on by more than the window of {self.settings.window} at once: all "
                "that came before is forgotten",
                RuntimeWarning,
                stacklevel=4,
            )
        return verdicts

    def query(self, text: Wanted, within: Mapping[str, str | int | None] | None = None) -> list[Match]:
        """Documents similar to a text (or, as the index has them, to a set of strings, a vector or bits), best first;
        nothing is stored.

        Args:
            within: as of a `Document`.

        Raises:
            UsageError: the values to match within are missing, or cannot be such; it is no vector or bits of the
                dimensions of the index.
        """
        item = self.settings.item
        what = item.kind if item is not None else "text" if isinstance(text, str) else "set"
        document = Document(0, **{what: text}, within=within)  # type: ignore[arg-type]
        found = self._columns([document])
        why = found.rejected.get(0)
        if why is not None and (item is not None or (self.settings.match_within and why.reason in NO_VALUES)):
            raise UsageError(why.detail)
        with self._lock:
            self._check_whole()
            matches = self._index.query(self._index.sign(found))
            judgement = judge(matches, found.ids, np.array([self._engine.seq]), self.settings.max_matches, self._index)
            return list(self._matches(judgement, 0))

    def commit(self, facts: dict[str, Any] | None = None) -> None:
        """Make everything processed so far durable; with commit="auto" it also happens by itself.

        Args:
            facts: a JSON object of the caller's, at most 64 KB as JSON: his position in the feed, say. It becomes
                durable in the same atomic step, in the place of the one before; None leaves that one as it is.

        Raises:
            UsageError: the facts are no JSON object or too large, it is read-only, or with commit="manual" verdicts of
                a batch have not been taken from `process` yet; nothing is committed.
            StoreError: it is closed, or an error or Ctrl-C broke off a batch or a commit; what was committed before is
                kept.
        """
        if self._read_only:
            raise UsageError("this Deduplicator is read-only: it commits nothing")
        encoded = None if facts is None else _encoded(facts)
        with self._lock:
            self._check_whole()
            if self._untaken and not self._automatic:
                raise UsageError(
                    f"{self._untaken:,} verdicts have not been taken from `process` yet, and would be lost in a crash: "
                    "commit behind the loop over them, or let `process` take fewer documents at a time (batch=...)"
                )
            self._torn = True
            self._engine.commit(facts={} if encoded is None else {"facts": orjson.loads(encoded)})
            self._torn = False
            self._facts = encoded or self._facts
            self._committed = time.monotonic()

    @property
    def facts(self) -> dict[str, Any]:
        """The facts that were committed last, by this or an earlier Deduplicator; {} if there are none."""
        value: dict[str, Any] = orjson.loads(self._facts)
        return value

    def _check_whole(self) -> None:
        if self._closed:
            raise StoreError("this Deduplicator is closed: make a new one")
        if self._torn:
            raise StoreError(
                f"a batch or a commit of the index in {self._index.folder} was broken off: close this Deduplicator and "
                "make a new one; what was committed before is in the index"
            )

    def close(self) -> None:
        """Close, with commit="auto" after a last commit; a second call does nothing. What an error broke off is not
        committed."""
        with self._lock:
            if self._closed:
                return
            try:
                if self._automatic and not (self._read_only or self._torn):
                    self.commit()
                    self._index.erase(time.time())
            finally:
                self._closed = True
                self._index.close()
                if self._temporary is not None:
                    self._temporary.cleanup()

    def __len__(self) -> int:
        """Number of documents in the index."""
        with self._lock:
            return self._index.count

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _columns(self, documents: Sequence[Document]) -> Columns:
        sets = self.settings.set_field is not None
        return columns(
            documents, sets=sets, max_document_bytes=self.settings.max_document_bytes,
            match_within=self.settings.match_within, item=self.settings.item,
        )  # fmt: skip

    def _matches(self, judgement: Judgement, i: int) -> Iterator[Match]:
        for m in range(int(judgement.starts[i]), int(judgement.starts[i + 1])):
            id = self._index.id_of(int(judgement.matched_shards[m]), int(judgement.matched_rows[m]))
            similarity, why = float(judgement.matched_similarities[m]), {}
            if len(judgement.evidence):
                why = orjson.loads(b"{%b}" % judgement.evidence[m].removeprefix(b","))
            yield Match(orjson.loads(id), int(judgement.matched_seqs[m]), similarity, why)

    def _verdict(self, judgement: Judgement, i: int, why: Mapping[int, Rejection]) -> Verdict:
        kind, first, group = Kind(int(judgement.kinds[i])), int(judgement.first_kinds[i]), int(judgement.groups[i])
        of = judgement.oldest(i)
        return Verdict(
            id=orjson.loads(judgement.ids[i]),
            seq=int(judgement.seqs[i]),
            kind=kind.label,
            first_kind=None if first == layout.UNKNOWN else Kind(first).label,
            of=orjson.loads(of) if of else None,
            similarity=float(judgement.similarities[i]) if of else None,
            group=None if group == layout.NO_GROUP else group,
            matches=tuple(self._matches(judgement, i)),
            truncated=int(judgement.truncated[i]),
            incomplete=int(judgement.incomplete[i]),
            reason=why[i].reason if i in why else None,
            verified=self.settings.verify,
            replaces=None if (replaces := int(judgement.replaces[i])) < 0 else replaces,
            heir=self._heir(judgement, i),
            heirs=tuple(
                (group, orjson.loads(self._index.id_of(shard, row)), seq)
                for _, group, shard, row, seq in judgement.later[judgement.later[:, 0] == i].tolist()
            ),
        )

    def _heir(self, judgement: Judgement, i: int) -> tuple[str | int, int] | None:
        heir = judgement.heir(i)
        return (orjson.loads(heir), int(judgement.heir_seqs[i])) if heir else None


def _encoded(facts: dict[str, Any]) -> bytes:
    """The caller's facts as JSON.

    Raises:
        UsageError: they are not what a JSON object can hold, or too large.
    """
    if not isinstance(facts, dict):
        raise UsageError(f"facts: a JSON object is needed, a dict; this is a {type(facts).__name__}")
    try:
        json.dumps(facts, allow_nan=False)  # refuses what the other would quietly turn into something else
        encoded = orjson.dumps(facts)
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"facts: they must be JSON: {error}") from None
    if len(encoded) > MOST_FACTS:
        raise UsageError(f"facts: {len(encoded):,} bytes as JSON, at most {MOST_FACTS:,} are kept")
    return encoded
