"""Documents and verdicts of one source partition, joined in the order of the documents; pure.

Both come in runs. Documents have holes between their offsets (markers of transactions, what was compacted), verdicts
repeat, and may for a while have holes too (a judge without transactions that failed sends the missing ones and all
after them again).

In a run of documents nothing is left out but by compaction: where retention deletes, reading fails. So a verdict whose
document the run has not got is passed over. A document without a verdict may have been compacted before it was signed;
that only reading it again can tell, for in its place a verdict may still come.
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
    one. gone: of one with which a kept document went the headers that say so. heirs: of one from which on others stand
    in the places of kept ones that went before, their keys, and the headers that say so."""

    at: int
    document: int
    kind: str
    reason: str = ""
    detail: str = ""
    time: int = 0
    key: bytes | None = None
    gone: Sequence[Header] = ()
    heirs: Sequence[tuple[bytes | None, Sequence[Header]]] = ()


class Joined(NamedTuple, Generic[D]):
    """A document and the verdict on it. None: it is not there any more, but tombstones come of its verdict."""

    document: D | None
    verdict: Verdict


class Join(Generic[D]):
    """Joins from two committed positions on.

    Attributes:
        position: offset of the first document that is not joined yet. read: offset up to which documents were taken.
        lost: verdicts without their document, and documents without their verdict, because the other is deleted.
        compacted: verdicts without their document, because a later one with the same key has taken its place.
        size: bytes of the documents that wait.
    """

    def __init__(self, documents: int, verdicts: int) -> None:
        self.position = self.read = documents
        self.lost = self.compacted = 0
        self.size = 0
        self._documents: deque[D] = deque()
        self._verdicts: deque[Verdict] = deque()
        self._begin = 0  # documents before it are not there any more
        self._settled = verdicts
        self._hole: int | None = None
        self._skip = False
        self._first = verdicts == 0  # no verdict has been settled yet: none can be a repeat

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
        if not self._documents and not self._verdicts and self._hole is None:
            self.position = max(self.position, self.read)
            self._settled = max(self._settled, verdicts)

    def begin_again(self) -> tuple[int, int]:
        """Forget what waits; the positions that both are to be read from again."""
        self._documents.clear()
        self._verdicts.clear()
        self.size = 0
        self.read, self._settled, self._hole = max(self.position, self._begin), self.settled, None
        return self.read, self._settled

    @property
    def waiting(self) -> tuple[int, int]:
        """Documents and verdicts that wait for the others."""
        return len(self._documents), len(self._verdicts)

    @property
    def hole(self) -> bool:
        """Whether a verdict has come while the one on an earlier document is missing."""
        return self._hole is not None

    @property
    def settled(self) -> int:
        """Offset of the first verdict that is still needed once all that `take` gave is delivered."""
        return self._settled if self._hole is None else self._hole

    def take(self, most: int, most_bytes: int) -> list[Joined[D]]:
        """What can be joined, in order: at most `most` documents, and `most_bytes` of them but for the last."""
        found: list[Joined[D]] = []
        size = 0
        verdicts, documents = self._verdicts, self._documents
        while verdicts and len(found) < most and size < most_bytes:
            verdict = verdicts[0]
            if verdict.document >= self.position:
                head = documents[0].offset if documents else self.read
                if verdict.document < head:
                    if verdict.document < self._begin:
                        self.lost += 1
                    else:
                        self.compacted += 1
                    if verdict.gone or verdict.heirs:
                        found.append(Joined(None, verdict))
                    self._settle(verdict)
                elif not documents:
                    break
                elif verdict.document > head and self._skip:
                    self.size -= weight(documents.popleft())
                    self.lost += 1
                    continue
                elif verdict.document > head:
                    if self._hole is None:
                        self._hole = verdict.at
                else:
                    document = documents.popleft()
                    found.append(Joined(document, verdict))
                    size += weight(document)
                    self.size -= weight(document)
                    self._settle(verdict)
            elif self._first:
                self.lost += 1
            verdicts.popleft()
            self._settled = verdict.at + 1
        return found

    def _settle(self, verdict: Verdict) -> None:
        self.position = verdict.document + 1
        # What came too early comes again, after this one.
        self._hole = None
        self._skip = self._first = False


def weight(document: Record) -> int:
    """About how many bytes of memory a document takes."""
    return 500 + len(document.key or b"") + len(document.value or b"") + header_bytes(document.headers)
