"""Documents and verdicts of one source partition, joined in the order of the documents. Pure.

Several topics share the partitions of `verdicts`. Each topic has a join of its own.

Both arrive in the order of the documents. The offsets of documents have gaps (transaction markers, compacted records).
Each verdict is there once, because the judge commits verdicts in transactions.

Only compaction can leave a document out: if retention deletes one, reading fails. So a verdict without its document is
skipped. So is a document without a verdict if a later document has one: it was compacted before it was signed, or its
verdict is lost.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Generic, NamedTuple, TypeVar

from stream_lsh.wire.source import Record, header_bytes

D = TypeVar("D", bound=Record)


Header = tuple[str, bytes]


class Verdict(NamedTuple):
    """A verdict.

    Attributes:
        at, time, key: its own offset, timestamp (ms) and key.
        document: offset of the document.
        reason, detail: of a rejected document.
        tombstone: headers of the tombstone, if the document has ended a kept one.
        new_representatives: ids and headers of tombstones for kept documents that ended earlier.
        supersedes: id of the document that it supersedes, as JSON text, b"" for none.
        topic: of the document.
    """

    at: int
    document: int
    kind: str
    reason: str = ""
    detail: str = ""
    time: int = 0
    key: bytes | None = None
    tombstone: Sequence[Header] = ()
    new_representatives: Sequence[tuple[bytes, Sequence[Header]]] = ()
    supersedes: bytes = b""
    topic: str = ""

    @property
    def has_tombstones(self) -> bool:
        """Whether it causes tombstones in `unique`."""
        return bool(self.tombstone or self.new_representatives or self.supersedes)


class Joined(NamedTuple, Generic[D]):
    """A document and its verdict. None: the document is not there any more, but its verdict causes tombstones."""

    document: D | None
    verdict: Verdict


class Join(Generic[D]):
    """Joins from two committed positions on.

    Args:
        new: nothing of the partition was joined before.

    Attributes:
        position: offset of the first document that is not joined yet.
        read: offset up to which documents were taken.
        lost: number of verdicts without document and documents without verdict, because the other was deleted.
        begin: the offset before which documents were deleted, as far as is known.
        compacted: number of verdicts without document, because a later document with the same key has replaced it.
        without_verdict: offsets of documents that have none and get none. The caller empties it.
        needed: offset of the first verdict that is needed once all results of `take` are delivered.
        size: bytes of the waiting documents.
    """

    def __init__(self, documents: int, verdicts: int, *, new: bool = False) -> None:
        self.position = self.read = documents
        self.lost = self.compacted = 0
        self.without_verdict: list[int] = []
        self.size = 0
        self._documents: deque[D] = deque()
        self._verdicts: deque[Verdict] = deque()
        self.needed = verdicts
        self.begin = documents if new or not verdicts else 0
        self._skip = False

    def add_documents(self, records: Iterable[D]) -> None:
        """Add documents with ascending offsets, starting where the last call ended."""
        for record in records:
            if record.offset >= self.read:
                self._documents.append(record)
                self.size += weight(record)
                self.read = record.offset + 1

    def add_verdicts(self, verdicts: Iterable[Verdict]) -> None:
        """Add verdicts in the order of their topic. Some of the first may have been joined before."""
        self._verdicts.extend(verdict for verdict in verdicts if verdict.at >= self.needed)

    def documents_deleted(self, begin: int) -> None:
        """The documents topic now begins at offset `begin`. Earlier documents that were not read are lost."""
        self.begin = max(self.begin, begin)
        self.read = max(self.read, begin)
        if not self._documents:  # committed, so that the loss is reported once
            self.position = max(self.position, begin)

    def verdicts_deleted(self) -> None:
        """Verdicts were deleted before they were read. The documents before the next verdict's are lost."""
        self._skip = True

    def reached(self, documents: int, verdicts: int) -> None:
        """Between what was added and these positions there are only transaction markers."""
        self.read = max(self.read, documents)
        if not self._documents and not self._verdicts:
            self.position = max(self.position, self.read)
            self.needed = max(self.needed, verdicts)

    def judged(self, end: int) -> None:
        """All verdicts on documents before offset `end` were added. Those of them that wait have none."""
        while self._documents and not self._verdicts and self._documents[0].offset < end:
            document = self._documents.popleft()
            self.size -= weight(document)
            self.without_verdict.append(document.offset)
            self.position = max(self.position, document.offset + 1)

    @property
    def first_verdict(self) -> int | None:
        """Offset of the first verdict that waits; None if none does."""
        return self._verdicts[0].at if self._verdicts else None

    @property
    def waiting(self) -> tuple[int, int]:
        """Number of documents and verdicts that wait for their counterpart."""
        return len(self._documents), len(self._verdicts)

    def take(self, most: int, most_bytes: int) -> list[Joined[D]]:
        """What can be joined, in order: at most `most` documents and `most_bytes`, which the last one may exceed."""
        found: list[Joined[D]] = []
        size = 0
        verdicts, documents = self._verdicts, self._documents
        while verdicts and len(found) < most and size < most_bytes:
            verdict = verdicts[0]
            head = documents[0].offset if documents else self.read
            if verdict.document < head:
                if verdict.document < self.begin:
                    self.lost += 1
                else:
                    self.compacted += 1
                if verdict.has_tombstones:
                    found.append(Joined(None, verdict))
            elif not documents:
                break
            else:
                document = documents.popleft()
                self.size -= weight(document)
                if verdict.document > head:
                    if self._skip:
                        self.lost += 1
                    else:
                        self.without_verdict.append(document.offset)
                    continue
                found.append(Joined(document, verdict))
                size += weight(document)
            verdicts.popleft()
            self.position, self.needed = max(self.position, verdict.document + 1), verdict.at + 1
            self._skip = False
        return found


def weight(document: Record) -> int:
    """Approximate memory of a document, in bytes."""
    return 500 + len(document.key or b"") + len(document.value or b"") + header_bytes(document.headers)
