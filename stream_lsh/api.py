"""The public interface in Python: documents in, verdicts out, an index that persists."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
import orjson

from stream_lsh.documents.columns import Columns, Document, columns
from stream_lsh.embedded.temporary import temporary_folder
from stream_lsh.errors import StateError, UsageError
from stream_lsh.index.index import Index
from stream_lsh.judging.verdicts import Judgement, Kind, judge
from stream_lsh.settings import Settings

BATCH = 1024
COMMIT_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Match:
    """An earlier document that is similar enough."""

    id: str | int
    seq: int
    similarity: float


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

    kind: "unique", "near_duplicate", "exact_duplicate", "redelivered" or "rejected" (then `reason` says why).
    of: id of the oldest match, similarity: with that one. matches: best first; truncated: how many more there are.
    """

    id: str | int | None
    seq: int
    kind: str
    of: str | int | None
    similarity: float | None
    matches: tuple[Match, ...]
    truncated: int
    reason: str | None
    verified: str

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

        with Deduplicator(Settings(threshold=0.7), state="index") as deduplicator:
            for verdict in deduplicator.process(documents):
                ...

    Args:
        settings: all defaults if not given. state: folder of the persistent index; without it the index is temporary.
        read_only: for `query` only; nothing is stored.

    Raises:
        StateError: if the folder is in use, damaged, or was made with other settings.
    """

    def __init__(
        self, settings: Settings | None = None, state: str | Path | None = None, *, read_only: bool = False
    ) -> None:
        self.settings = settings or Settings()
        self._temporary = temporary_folder() if state is None else None
        folder = Path(state) if state is not None else Path(self._temporary.name if self._temporary else "")
        self._index = Index(self.settings, folder, durable=state is not None)
        self._read_only = read_only
        job = self._index.store.named("job") or {}
        if job.get("open") and not read_only:
            self._index.close()
            raise StateError(
                f"the index in {folder} belongs to an interrupted run of the command line; "
                "finish that run first, or use another folder"
            )
        self._job = job
        self._seq: int = job.get("next_seq", 0)
        self._committed = time.monotonic()
        self._closed = False
        self._torn = False

    def process(self, documents: Iterable[Document], *, batch: int | None = None) -> Iterator[Verdict]:
        """The verdict on each document, in order; every document is compared with all before it and then stored.

        Args:
            batch: documents taken at a time. By default 1024 from a sequence, and one by one from anything else, so
                that a live feed has each verdict at once.
        """
        if self._read_only:
            raise UsageError("this Deduplicator is read-only: it answers queries and stores nothing")
        size = batch or (BATCH if isinstance(documents, Sequence) else 1)
        iterator = iter(documents)
        while taken := list(islice(iterator, min(size, BATCH))):
            yield from self._process(taken)

    def _process(self, documents: Sequence[Document]) -> Iterator[Verdict]:
        self._check_whole()
        found = self._columns(documents)
        seqs = np.arange(self._seq, self._seq + len(documents))
        signed = self._index.sign(found)
        self._torn = True  # a commit sees all of a batch or nothing
        matches = self._index.match(signed, seqs)
        judgement = judge(matches, found.ids, seqs, self.settings.max_matches, self._id_of)
        self._seq += len(documents)
        self._torn = False
        if self._index.full or time.monotonic() - self._committed >= COMMIT_SECONDS:
            self.commit()
        reasons = {i: rejection.reason for i, rejection in found.rejected.items()}
        return iter([self._verdict(judgement, i, reasons) for i in range(len(documents))])

    def query(self, text: str | Sequence[str]) -> list[Match]:
        """Documents similar to a text (or to a set of strings, under `set_field`), best first; nothing is stored."""
        self._check_whole()
        document = Document(0, text) if isinstance(text, str) else Document(0, set=text)
        found = self._columns([document])
        judgement = judge(
            self._index.query(self._index.sign(found)),
            found.ids,
            np.array([self._seq]),
            self.settings.max_matches,
            self._id_of,
        )
        return list(self._matches(judgement, 0))

    def commit(self) -> None:
        """Make everything processed so far durable; it happens by itself twice a second and at the end.

        Raises:
            StateError: an error or Ctrl-C broke off a batch or a commit; what was committed before is kept.
        """
        self._check_whole()
        self._torn = True
        self._index.commit(
            {
                "job": {
                    "open": False,
                    "outputs": {},
                    "done_in_job": 0,
                    **self._job,
                    "next_seq": self._seq,
                    "time": int(time.time()),
                }
            }
        )
        self._torn = False
        self._committed = time.monotonic()

    def _check_whole(self) -> None:
        if self._torn:
            raise StateError(
                f"a batch or a commit of the index in {self._index.folder} was broken off: close this Deduplicator and "
                "make a new one; what was committed before is in the index"
            )

    def close(self) -> None:
        """Commit and close; a second call does nothing. What an error broke off is not committed."""
        if self._closed:
            return
        self._closed = True
        try:
            if not (self._read_only or self._torn):
                self.commit()
        finally:
            self._index.close()
            if self._temporary is not None:
                self._temporary.cleanup()

    def __len__(self) -> int:
        """Number of documents in the index."""
        return self._index.count

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _columns(self, documents: Sequence[Document]) -> Columns:
        sets = self.settings.set_field is not None
        return columns(documents, sets=sets, max_document_bytes=self.settings.max_document_bytes)

    def _id_of(self, shard: int, row: int) -> bytes:
        return self._index.shards[shard].ids.read(row)

    def _matches(self, judgement: Judgement, i: int) -> Iterator[Match]:
        for m in range(int(judgement.starts[i]), int(judgement.starts[i + 1])):
            yield Match(
                orjson.loads(judgement.older_ids[m]), int(judgement.older_seqs[m]), float(judgement.similarities[m])
            )

    def _verdict(self, judgement: Judgement, i: int, reasons: dict[int, str]) -> Verdict:
        kind = Kind(int(judgement.kinds[i]))
        of, similarity = judgement.oldest.get(i, (b"null", None))
        reason = reasons.get(i, "id_reused" if i in judgement.id_reused else "empty") if kind is Kind.REJECTED else None
        return Verdict(
            orjson.loads(judgement.ids[i]), int(judgement.seqs[i]), kind.label, orjson.loads(of), similarity,
            tuple(self._matches(judgement, i)), int(judgement.truncated[i]), reason, self.settings.verify,
        )  # fmt: skip
