"""The feed log: the entries that were read from web feeds, as long as they are kept."""

from __future__ import annotations

import fcntl
import hashlib
import os
import sqlite3
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from stream_lsh.documents.columns import Position
from stream_lsh.embedded.inputs import HEAD_BYTES
from stream_lsh.errors import InputError
from stream_lsh.index.store.files import append, sync_folder
from stream_lsh.webfeeds.entries import Entry, keyed
from stream_lsh.webfeeds.state import FeedState, State

STATE, WRITING = ".state", ".writing"
"""Behind the name of a log: the file with what is known of its feeds; what will take its place."""
LEAST_BYTES = 2**20  # are removed at once, and at least half of the log
_COPIED = 2**20  # bytes at once
_STEPS = 16  # marks in a retention


class FeedLog:
    """A file of JSON lines to which entries are appended, each once. It is an input like any other.

    An entry counts as seen when its line is on the disk, so a run that is killed loses and repeats none. Only one
    process has the log. An entry is known as long as its feed shows it, and then for the retention. Lines are removed
    at the beginning of the file, by writing the others into a new one; positions count the removed lines still.

    Attributes:
        start, end: of what the file has. read: what precedes it, the index or Kafka has. sent: so of Kafka, remembered.
        heads: `State.heads`.

    Raises:
        InputError: it cannot be written, or another process has it.
    """

    def __init__(self, path: Path, *, versions: bool, retention: float) -> None:
        """versions: an entry whose text has changed is appended again. retention: seconds."""
        self.path = path = Path(os.path.realpath(path))  # the state is beside the file, whatever links lead to it
        self._writing = path.with_name(path.name + WRITING)
        self._versions = versions
        self._retention = retention
        self.feeds: dict[str, FeedState] = {}
        self.start = self.end = self.sent = self.read = Position()
        with self._guarded():
            self._file = self._open()
            try:
                self._state = State(path.with_name(path.name + STATE))
            except BaseException:
                self._file.close()
                raise
            try:
                self._recover()
                self.heads = self._state.heads()
            except BaseException:
                self.close()
                raise

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            lost = not isinstance(error, sqlite3.OperationalError)
            raise InputError(
                f"cannot use {self.path}{STATE}, the state of the feed log: {error}."
                f"{' Delete it: feeds are read completely once, and an index may need --only-new.' if lost else ''}"
            ) from None
        except OSError as error:
            raise InputError(f"cannot use {self.path} as the log of entries: {error.strerror}.") from None

    def _open(self) -> BinaryIO:
        new = not self.path.exists()
        while True:
            file = self.path.open("a+b", buffering=0)
            self._lock(file)
            if os.path.samestat(os.fstat(file.fileno()), self.path.stat()):
                break
            file.close()  # another process has written a new one meanwhile
        if new:
            sync_folder(self.path.parent)
        return file

    def _lock(self, file: BinaryIO) -> None:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.close()
            raise InputError(f"another process reads feeds into {self.path}: stop it, or name another file.") from None

    def _recover(self) -> None:
        """Find out where the file begins and ends, and take entries whose round was not completed."""
        self._writing.unlink(missing_ok=True)
        size = os.fstat(self._file.fileno()).st_size
        known = self._state.positions()
        self.start, self.end, self.sent = (known.get(name, Position()) for name in ("start", "end", "sent"))
        if "next" in known and known["next"].offset + size == self.end.offset:
            self.start = known["next"]  # the new file is in place already
        ends = self.end.offset - self.start.offset
        if not 0 <= ends <= size or (ends and os.pread(self._file.fileno(), 1, ends - 1) != b"\n"):
            self._state.clear()  # the log was replaced: its feeds may show what it lacks
            self.start = self.end = self.sent = Position()
        else:
            self.feeds = self._state.feeds()
        with self.path.open("rb") as lines:
            lines.seek(self.end.offset - self.start.offset)
            self._state.add(self._entries(lines))
        os.ftruncate(self._file.fileno(), self.end.offset - self.start.offset)
        self.save()

    def _entries(self, lines: BinaryIO) -> Iterator[Entry]:
        """Those of lines behind the end, which moves along."""
        for line in lines:
            if not line.endswith(b"\n"):
                return  # what a killed run has not written to its end; the feed has the entry still
            try:
                entry = keyed(line)
            except ValueError:
                raise InputError(
                    f"{self.path}, line {self.end.line + 1}, is no entry of a feed: name a new file, or a log of "
                    "entries."
                ) from None
            self.end = Position(self.end.offset + len(line), self.end.line + 1)
            self.feeds.setdefault(entry.feed, FeedState(due=time.time()))
            yield entry

    def add(self, entries: Sequence[Entry], now: float) -> int:
        """Append those that are new, and wait for the disk. now: seconds since 1970. Returns how many. Raises
        InputError."""
        last = {entry.key: entry for entry in entries}  # a file may have an entry twice
        with self._guarded():
            known = {key: self._state.version(entry) for key, entry in last.items()}
            new = [
                entry for key, entry in last.items()
                if known[key] is None or (self._versions and known[key] != entry.version)
            ]  # fmt: skip
            if new:
                self._state.mark(self.end, now, self._retention / _STEPS)
                self._append(b"".join(entry.line for entry in new))
                self.end = Position(self.end.offset + sum(len(entry.line) for entry in new), self.end.line + len(new))
                self._state.add(new)
        return len(new)

    def _append(self, data: bytes) -> None:
        try:
            append(self._file.fileno(), data)
        except OSError as error:
            raise InputError(f"cannot write {self.path}: {error.strerror}; its entries are read again later.") from None

    def show(self, url: str, entries: Sequence[Entry], now: float) -> None:
        """A feed shows these entries, and no others: what it has not shown for the retention is forgotten with the next
        `save`. Raises InputError."""
        with self._guarded():
            self._state.show(url, entries, now)
            self._state.forget(url, now - self._retention)

    def update(self, url: str, **changes: object) -> None:
        """Change what is known of a feed."""
        self.feeds[url] = replace(self.feeds.get(url, FeedState()), **changes)  # type: ignore[arg-type]

    def save(self) -> None:
        """Write down what is known of the feeds, and what was sent. Raises InputError."""
        with self._guarded():
            self._commit()

    def _commit(self, **more: Position) -> None:
        self._state.commit(self.feeds, {"start": self.start, "end": self.end, "sent": self.sent, **more})

    def trim(self, now: float, urls: Collection[str]) -> str | None:
        """Remove lines that are older than the retention and that the reader has. Forget feeds that are not read.

        Args:
            now: seconds since 1970. urls: of all feeds that are read.

        Returns:
            What is wrong if lines should be removed and cannot: the log goes on without that.

        Raises:
            InputError: the disk refuses.
        """
        before = now - self._retention
        with self._guarded():
            for url in [url for url, feed in self.feeds.items() if url not in urls and feed.due <= before]:
                self._state.forget_feed(url)
                del self.feeds[url]
            until = [self._state.read_by(before), self.read, *([self.sent] if self.sent.offset else [])]
            start = min(until, key=lambda position: position.offset)
            removed, size = start.offset - self.start.offset, self.end.offset - self.start.offset
            if removed >= max(LEAST_BYTES, size / 2):
                return self._cut(start)
        return None

    def _cut(self, start: Position) -> str | None:
        """Remove what precedes a position. Returns why that cannot be done: a full disk may have room for entries."""
        self.save()  # what comes may be taken back
        try:
            new = self._copy(start)
            try:
                self._commit(next=start)  # from here on the size of the file says which one it is
                self._writing.replace(self.path)
            except BaseException:
                new.close()
                raise
        except (OSError, sqlite3.Error) as error:
            self._writing.unlink(missing_ok=True)
            self._state.rollback()
            self.heads = self._state.heads()
            return str(error)
        sync_folder(self.path.parent)
        self._file.close()
        self._file, self.start = new, start
        self._state.unmark(start)
        self.save()
        return None

    def _copy(self, start: Position) -> BinaryIO:
        """What follows a position, as a file of its own, locked."""
        if not self.heads:
            head = os.pread(self._file.fileno(), HEAD_BYTES, 0)
            ends = {0, len(head), *(end + 1 for end, byte in enumerate(head) if byte == 10)}
            self.heads = {end: hashlib.sha256(head[:end]).hexdigest() for end in ends}
            self._state.set_heads(self.heads)
        new = self._writing.open("w+b", buffering=0)
        try:
            self._lock(new)
            status = os.fstat(self._file.fileno())
            with suppress(PermissionError):
                os.fchown(new.fileno(), status.st_uid, status.st_gid)
            os.fchmod(new.fileno(), status.st_mode & 0o7777)
            for at in range(start.offset - self.start.offset, self.end.offset - self.start.offset, _COPIED):
                append(new.fileno(), os.pread(self._file.fileno(), _COPIED, at))
        except BaseException:
            new.close()
            raise
        return new

    @property
    def unsent(self) -> Position:
        """Where in the file that begins which Kafka has not acknowledged."""
        return Position(max(0, self.sent.offset - self.start.offset), max(self.sent.line, self.start.line))

    def close(self) -> None:
        """Let another process have it."""
        self._state.close()
        self._file.close()
