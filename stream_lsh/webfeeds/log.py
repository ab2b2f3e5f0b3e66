"""The feed log: the entries that were read from web feeds; and beside it what is known of each feed."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import BinaryIO

import orjson

from stream_lsh.documents.columns import Position
from stream_lsh.errors import InputError
from stream_lsh.index.store.files import append, replace_file, sync_folder
from stream_lsh.webfeeds.entries import Entry, keyed

STATE = ".state"
"""Behind the name of a log: the file with what is known of each feed."""


@dataclass(frozen=True, slots=True)
class FeedState:
    """A feed. etag, modified: of its last answer, all of whose entries are in the log. due: when it may be fetched
    again, seconds since 1970. failures: visits without a feed since the last one with it."""

    etag: str | None = None
    modified: str | None = None
    due: float = 0.0
    failures: int = 0


class FeedLog:
    """A file of JSON lines to which entries are appended, each once. It is an input like any other.

    An entry counts as seen when its line is on the disk, so a run that is killed loses and repeats none. Only one
    process has the log.

    Raises:
        InputError: it cannot be written, or another process has it.
    """

    def __init__(self, path: Path, *, versions: bool) -> None:
        """versions: an entry whose text has changed is appended again."""
        self.path = path
        self._versions = versions
        self._seen: dict[bytes, bytes] = {}  # the version of each entry
        self.feeds: dict[str, FeedState] = {}
        self.end = self.sent = Position()
        """The end of the log; the end of what Kafka has acknowledged of it."""
        try:
            self._file = self._open()
            self._read()
        except OSError as error:
            raise InputError(f"cannot use {path} as the log of entries: {error.strerror}.") from None

    def _open(self) -> BinaryIO:
        new = not self.path.exists()
        file = self.path.open("a+b", buffering=0)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.close()
            raise InputError(f"another process reads feeds into {self.path}: stop it, or name another file.") from None
        if new:
            sync_folder(self.path.parent)
        return file

    def _read(self) -> None:
        whole = 0
        with self.path.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if not line.endswith(b"\n"):
                    break  # what a killed run has not written to its end; the feed has the entry still
                try:
                    entry = keyed(line)
                except ValueError:
                    raise InputError(
                        f"{self.path}, line {number}, is no entry of a feed: name a new file, or a log of entries."
                    ) from None
                self._seen[entry.key] = entry.version
                whole += len(line)
                self.end = Position(whole, number)
        os.ftruncate(self._file.fileno(), whole)
        try:
            known = orjson.loads(self._state.read_bytes())
            if known["size"] <= whole:  # else the log was replaced, and what 304 stands for may be missing
                self.feeds = {url: FeedState(**state) for url, state in known["feeds"].items()}
                self.sent = Position(*map(int, known["sent"]))
        except FileNotFoundError:
            pass
        except (ValueError, KeyError, TypeError):
            self.feeds = {}  # it is damaged: each feed is read completely once

    @property
    def _state(self) -> Path:
        return self.path.with_name(self.path.name + STATE)

    def add(self, entries: Sequence[Entry]) -> int:
        """Append those that are new, and wait for the disk. Returns how many. Raises InputError."""
        last = {entry.key: entry for entry in entries}  # a file may have an entry twice
        new = [entry for key, entry in last.items() if self._seen.get(key) != entry.version]
        if not self._versions:
            new = [entry for entry in new if entry.key not in self._seen]
        data = b"".join(entry.line for entry in new)
        try:
            if data:
                append(self._file.fileno(), data)
                self.end = Position(self.end.offset + len(data), self.end.line + len(new))
                self._seen |= {entry.key: entry.version for entry in new}
        except OSError as error:
            raise InputError(f"cannot write {self.path}: {error.strerror}; its entries are read again later.") from None
        return len(new)

    def update(self, url: str, **changes: object) -> None:
        """Change what is known of a feed."""
        self.feeds[url] = replace(self.feeds.get(url, FeedState()), **changes)  # type: ignore[arg-type]

    def save(self) -> None:
        """Write down what is known of the feeds, and what was sent. Raises InputError."""
        feeds = {url: asdict(state) for url, state in self.feeds.items()}
        known = {"size": self.end.offset, "sent": [self.sent.offset, self.sent.line], "feeds": feeds}
        data = orjson.dumps(known, option=orjson.OPT_INDENT_2)
        try:
            replace_file(self._state, data)
        except OSError as error:
            raise InputError(f"cannot write {self._state}: {error.strerror}.") from None

    def close(self) -> None:
        """Let another process have it."""
        self._file.close()
