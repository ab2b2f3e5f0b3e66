"""Documents and verdicts of one source partition, joined in the order of the documents; pure.

Both come in runs, each in the order of the documents. Documents have holes between their offsets (markers of
transactions, what was compacted); verdicts are there once, for the judge commits them in transactions.

In a run of documents nothing is left out but by compaction: where retention deletes, reading fails. So a verdict whose
document the run has not got is passed over, and so is a document that has no verdict while a later one has: it was
compacted before it was signed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Generic, NamedTuple, TypeVar

from stream_lsh.wire.source import Record, header_bytes

D = TypeVar("D", bound=Record)


Header = tuple[str, bytes]


class Verdict(NamedTuple):
    """at, time, key: its own offset, timestamp (ms) and key. document: offset of that. reason, detail: of a rejected
    one. gone: of one with which a kept document went the headers that say so. representatives: of one from which on
    others stand in the places of kept ones that went before, their keys, and the headers that say so."""

    at: int
    document: int
    kind: str
    reason: str = ""
    detail: str = ""
    time: int = 0
    key: bytes | None = None
    gone: Sequence[Header] = ()
    new_representatives: Sequence[tuple[bytes | None, Sequence[Header]]] = ()


class Joined(NamedTuple, Generic[D]):
    """A document and the verdict on it. None: it is not there any more, but tombstones come of its verdict."""

    document: D | None
    verdict: Verdict


class Join(Generic[D]):
    """Joins from two committed positions on.

    Attributes:
        position: offset of the first document that is not joined yet. read: offset up to which documents were taken.
        lost: verdicts without their document, and documents without their verdict, because the other is deleted.
        compacted: the same, because a later document with the same key has taken the place of this one.
        settled: offset of the first verdict that is still needed once all that `take` gave is delivered.
        size: bytes of the documents that wait.
    """

    def __init__(self, documents: int, verdicts: int) -> None:
        self.position = self.read = documents
        self.lost = self.compacted = 0
        self.size = 0
        self._documents: deque[D] = deque()
        self._verdicts: deque[Verdict] = deque()
        self.settled = verdicts
        self._begin = documents if not verdicts else 0  # documents before it are not there any more
        self._skip = False

    def add_documents(self, records: Iterable[D]) -> None:
        """Take documents, their offsets ascending, going on where the last call ended."""
        for record in records:
            if record.offset >= self.read:
                self._documents.append(record)
                self.size += weight(record)
                self.read = record.offset + 1

    def add_verdicts(self, verdicts: Iterable[Verdict]) -> None:
        """Take verdicts as they stand in their topic."""
        self._verdicts.extend(verdicts)

    def gone(self, begin: int) -> None:
        """The documents topic begins at offset `begin` now: what is before it and was not read cannot be read."""
        self._begin = max(self._begin, begin)
        self.read = max(self.read, begin)

    def verdicts_gone(self) -> None:
        """Verdicts were deleted before they were read: documents before the next verdict's are lost."""
        self._skip = True

    def reached(self, documents: int, verdicts: int) -> None:
        """Nothing but what Kafka keeps for itself stands before these positions, and after what was taken."""
        self.read = max(self.read, documents)
        if not self._documents and not self._verdicts:
            self.position = max(self.position, self.read)
            self.settled = max(self.settled, verdicts)

    @property
    def waiting(self) -> tuple[int, int]:
        """Documents and verdicts that wait for the others."""
        return len(self._documents), len(self._verdicts)

    def take(self, most: int, most_bytes: int) -> list[Joined[D]]:
        """What can be joined, in order: at most `most` documents, and `most_bytes` of them but for the last."""
        found: list[Joined[D]] = []
        size = 0
        verdicts, documents = self._verdicts, self._documents
        while verdicts and len(found) < most and size < most_bytes:
            verdict = verdicts[0]
            head = documents[0].offset if documents else self.read
            if verdict.document < head:
                if verdict.document < self._begin:
                    self.lost += 1
                else:
                    self.compacted += 1
                if verdict.gone or verdict.new_representatives:
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
                        self.compacted += 1
                    continue
                found.append(Joined(document, verdict))
                size += weight(document)
            verdicts.popleft()
            self.position, self.settled = max(self.position, verdict.document + 1), verdict.at + 1
            self._skip = False
        return found


def weight(document: Record) -> int:
    """About how many bytes of memory a document takes."""
    return 500 + len(document.key or b"") + len(document.value or b"") + header_bytes(document.headers)
