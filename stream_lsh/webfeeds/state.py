"""What is known of the feeds of a log: a file of SQLite beside it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass
from pathlib import Path

from stream_lsh.documents.columns import Position
from stream_lsh.errors import InputError
from stream_lsh.webfeeds.entries import Entry

FORMAT = 1
_TABLES = f"""
BEGIN;
CREATE TABLE feeds (url TEXT PRIMARY KEY, etag TEXT, modified TEXT, due REAL, failures INTEGER);
CREATE TABLE entries (feed TEXT, key BLOB, version BLOB, absent REAL, PRIMARY KEY (feed, key)) WITHOUT ROWID;
CREATE INDEX absent_entries ON entries (absent) WHERE absent IS NOT NULL;
CREATE TABLE marks (byte INTEGER PRIMARY KEY, line INTEGER, time REAL);
CREATE TABLE positions (name TEXT PRIMARY KEY, byte INTEGER, line INTEGER);
CREATE TABLE heads (bytes INTEGER PRIMARY KEY, hash TEXT);
PRAGMA user_version = {FORMAT};
COMMIT;
"""


@dataclass(frozen=True, slots=True)
class FeedState:
    """A feed. etag, modified: of its last answer, all of whose entries are in the log. due: when it may be fetched
    again, seconds since 1970. failures: visits without a feed since the last one with it."""

    etag: str | None = None
    modified: str | None = None
    due: float = 0.0
    failures: int = 0


class State:
    """The file. What is changed counts with the next `commit`: all of it, or after a crash nothing.

    entries: hashes of those that were read, and since when their feed has not shown them (`absent`, seconds since 1970;
    NULL while it does). marks: what of the log was read by a time. positions: of the log. heads: hashes of what was its
    beginning.

    Raises (each method):
        sqlite3.Error: the file cannot be read or written.
    """

    def __init__(self, path: Path) -> None:
        """Open it. What is no such file is replaced: each feed is read completely once. Raises InputError for a later
        format."""
        self._file = self._open(path)
        try:
            found = self._file.execute("PRAGMA user_version").fetchone()[0]
        except sqlite3.OperationalError:  # the disk refuses
            raise
        except sqlite3.DatabaseError:
            found = None
        if found is not None and found > FORMAT:
            self._file.close()
            raise InputError(
                f"{path} has format {found}, and this version reads format {FORMAT}: use the version that wrote it, or "
                "delete it, and feeds are read completely once."
            )
        if found != FORMAT:
            self._file.close()
            path.unlink(missing_ok=True)
            path.with_name(f"{path.name}-journal").unlink(missing_ok=True)
            self._file = self._open(path)
            self._file.executescript(_TABLES)

    @staticmethod
    def _open(path: Path) -> sqlite3.Connection:
        return sqlite3.connect(path, check_same_thread=False)  # one at a time uses it

    def close(self) -> None:
        """Close it, without what was not committed."""
        self._file.close()

    def commit(self, feeds: Mapping[str, FeedState], positions: Mapping[str, Position]) -> None:
        """Make all changes durable. feeds, positions: all of them."""
        self._file.execute("DELETE FROM feeds")
        self._file.executemany(
            "INSERT INTO feeds VALUES (?, ?, ?, ?, ?)", ((url, *astuple(feed)) for url, feed in feeds.items())
        )
        self._file.execute("DELETE FROM positions")
        self._file.executemany(
            "INSERT INTO positions VALUES (?, ?, ?)", ((name, at.offset, at.line) for name, at in positions.items())
        )
        self._file.commit()

    def rollback(self) -> None:
        """Take back what was not committed."""
        self._file.rollback()

    def clear(self) -> None:
        """Forget all: the log is another one."""
        for table in ("feeds", "entries", "marks", "positions", "heads"):
            self._file.execute(f"DELETE FROM {table}")

    def feeds(self) -> dict[str, FeedState]:
        """The feeds by URL."""
        return {url: FeedState(*state) for url, *state in self._file.execute("SELECT * FROM feeds")}

    def positions(self) -> dict[str, Position]:
        """The positions by name."""
        return {name: Position(byte, line) for name, byte, line in self._file.execute("SELECT * FROM positions")}

    def heads(self) -> dict[int, str]:
        """SHA-256 of so many bytes at the beginning that the log once had; empty while it has it."""
        return dict(self._file.execute("SELECT * FROM heads"))

    def set_heads(self, heads: Mapping[int, str]) -> None:
        """Remember these."""
        self._file.executemany("INSERT INTO heads VALUES (?, ?)", heads.items())

    def version(self, entry: Entry) -> bytes | None:
        """The version of an entry that was read last, None if it is new."""
        found = self._file.execute(
            "SELECT version FROM entries WHERE feed = ? AND key = ?", (entry.feed, entry.key)
        ).fetchone()  # fmt: skip
        return None if found is None else bytes(found[0])

    def add(self, entries: Iterable[Entry]) -> None:
        """Entries whose lines are in the log; their feeds show them."""
        self._file.executemany(
            "REPLACE INTO entries VALUES (?, ?, ?, NULL)", ((entry.feed, entry.key, entry.version) for entry in entries)
        )

    def show(self, url: str, entries: Iterable[Entry], now: float) -> None:
        """A feed shows these entries, and no others."""
        shown = {entry.key for entry in entries}
        before = {
            key for (key,) in self._file.execute("SELECT key FROM entries WHERE feed = ? AND absent IS NULL", (url,))
        }
        changes = [(now, url, key) for key in before - shown] + [(None, url, key) for key in shown - before]
        self._file.executemany("UPDATE entries SET absent = ? WHERE feed = ? AND key = ?", changes)

    def forget(self, url: str, before: float) -> None:
        """Delete the entries that a feed has not shown since a time."""
        self._file.execute("DELETE FROM entries WHERE feed = ? AND absent <= ?", (url, before))

    def forget_feed(self, url: str) -> None:
        """Delete all entries of a feed."""
        self._file.execute("DELETE FROM entries WHERE feed = ?", (url,))

    def mark(self, end: Position, now: float, step: float) -> None:
        """What of the log precedes `end` was read by `now`. There is a mark each `step` seconds."""
        if not self._file.execute("SELECT 1 FROM marks WHERE time > ? AND time <= ?", (now - step, now)).fetchone():
            self._file.execute("REPLACE INTO marks VALUES (?, ?, ?)", (end.offset, end.line, now))

    def read_by(self, time: float) -> Position:
        """A position, all before which was read by a time."""
        query = "SELECT byte, line FROM marks WHERE time <= ? ORDER BY byte DESC LIMIT 1"
        return Position(*(self._file.execute(query, (time,)).fetchone() or ()))

    def unmark(self, start: Position) -> None:
        """Delete the marks of what precedes a position."""
        self._file.execute("DELETE FROM marks WHERE byte < ?", (start.offset,))
