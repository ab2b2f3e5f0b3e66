"""Reads web feeds, once or again and again, into a log, which is an input of a job."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from stream_lsh.documents.columns import Fields, Position
from stream_lsh.embedded.inputs import LineInput, LineRange, check_packages
from stream_lsh.embedded.lines import Lines
from stream_lsh.embedded.pages import Refusal
from stream_lsh.embedded.webhook import LONGEST_AFTER
from stream_lsh.errors import InputError, UsageError
from stream_lsh.webfeeds.entries import Entry, entries_of
from stream_lsh.webfeeds.fetching import Answer, Limits, Turns, visit, wrong_with
from stream_lsh.webfeeds.log import FeedLog
from stream_lsh.webfeeds.state import FeedState
from stream_lsh.wording import duration

LONGEST_WAIT, FIRST_WAIT = LONGEST_AFTER, 60.0  # seconds until a feed that fails is fetched again
_TICK = 0.2  # longest sleep at once, so that a signal is seen


@dataclass
class WebFeeds:
    """Web feeds that are read into a log.

    Args:
        urls: of feeds. log: the file of the entries. every: seconds between two visits of a feed; None: one visit.
        versions: an entry whose text has changed is an entry again. report: gets a sentence about each feed that fails.
        retention: seconds for which the log keeps lines, and knows an entry that its feed does not show any more.

    Raises:
        UsageError: a URL cannot be fetched.
    """

    urls: Sequence[str]
    log: Path
    every: float | None = None
    versions: bool = False
    report: Callable[[str], None] = print
    limits: Limits = field(default_factory=Limits)
    retention: float = 30 * 86_400.0

    def __post_init__(self) -> None:
        self.urls = list(dict.fromkeys(self.urls))
        for url in self.urls:
            if (wrong := wrong_with(url)) is not None:
                raise UsageError(f"--feed {url!r}: {wrong}")

    def __str__(self) -> str:
        return str(self.log)

    def open(self, fields: Fields) -> FeedInput:
        """The input of a job."""
        return FeedInput(self, fields)

    def open_log(self) -> FeedLog:
        """The log, for this process alone. Raises InputError."""
        return FeedLog(self.log, versions=self.versions, retention=self.retention)

    def rounds(self, log: FeedLog) -> Iterator[None]:
        """Fetch what is due, again and again; each time new entries may be in the log, also before the first round.

        Raises:
            InputError: of a single round, no feed could be read; the log cannot be written.
        """
        yield
        while True:
            failed = asyncio.run(self._round(log))
            yield
            if self.every is None:
                if failed == len(self.urls):
                    raise InputError("no feed could be read; the reasons are above.")
                return
            while (wait := min(self._wait(log, url) for url in self.urls)) > 0:
                time.sleep(min(wait, _TICK))

    def _wait(self, log: FeedLog, url: str) -> float:
        """Seconds until a feed may be fetched; at most the longest that a visit asks for, if a clock was set back."""
        now, longest = time.time(), max(self.every or 0.0, LONGEST_WAIT)
        if log.feeds.get(url, FeedState()).due > now + longest:
            log.update(url, due=now + longest)
        return log.feeds.get(url, FeedState()).due - now

    async def _round(self, log: FeedLog) -> int:
        """Visit all feeds that are due. Returns how many could not be read."""
        import httpx

        if (wrong := log.trim(time.time(), self.urls)) is not None:
            self.report(f"cannot remove old lines of {self.log}: {wrong}")
        turns, slots = Turns(self.limits.pause), asyncio.Semaphore(self.limits.at_once)
        async with httpx.AsyncClient(timeout=self.limits.seconds) as client:

            async def one(url: str) -> list[Entry] | None:
                wait, state = self._wait(log, url), log.feeds.get(url, FeedState())
                if wait > 0:
                    if self.every is None:
                        self.report(f"{url} is not fetched again for {duration(wait)}")
                    return [] if state.failures == 0 else None
                async with slots:
                    answer = await visit(client, turns, url, state, self.limits)
                return await self._take(log, url, state, answer)

            done = await asyncio.gather(*map(one, self.urls))
        # The order of arrival decides which document is kept: of one round the oldest comes first.
        found = sorted((entry for entries in done for entry in entries or ()), key=lambda entry: entry.time)
        log.add(found, time.time())
        log.save()
        return done.count(None)

    async def _take(self, log: FeedLog, url: str, state: FeedState, answer: Answer) -> list[Entry] | None:
        """The entries that a visit has brought, None if the feed could not be read; and when the next visit is due."""
        entries: list[Entry] = []
        now, wrong, asked = time.time(), answer.wrong, (state.etag, state.modified)
        if answer.data is not None:
            try:
                # In a thread: what parsing takes must not count as the time that another server takes.
                entries, cut = await asyncio.to_thread(entries_of, answer.data, url, answer.base, answer.type, now)
            except Refusal as refusal:
                wrong = str(refusal)
            else:
                log.show(url, entries, now)
                asked = answer.etag, answer.modified
                if cut is not None:  # the rest may come the next time
                    self.report(f"{url} is read as far as it goes: {cut}")
                    asked = None, None
        if wrong is None:
            due = now + (self.every or 0.0)
            log.update(url, etag=asked[0], modified=asked[1], due=due, failures=0)
            return entries
        wait = min((self.every or FIRST_WAIT) * 2 ** min(state.failures, 20), LONGEST_WAIT)
        due = now + max(wait if self.every is not None or answer.after else 0.0, answer.after)
        log.update(url, due=due, failures=state.failures + 1)
        later = f"; it is fetched again in {duration(due - now)}" if due > now else ""
        self.report(f"{url} could not be read: {wrong}{later}")
        return None


class FeedInput(LineInput):
    """The log of web feeds, which grows while it is read. No other process changes it between `check` and `close`."""

    changed = "its beginning is another now, or its .state was lost"

    def __init__(self, feeds: WebFeeds, fields: Fields) -> None:
        super().__init__(str(feeds.log), fields)
        self._feeds = feeds
        self._log: FeedLog | None = None
        self.live = True

    def check(self, *, columns: bool = True) -> None:
        """Raises InputError also for a missing package, and makes the log if there is none."""
        check_packages("--feed", "feeds", "feedparser", "httpx")
        self._log = self._feeds.open_log()
        self.start = self._log.start
        super().check(columns=columns)

    def _identity(self, head_bytes: int) -> tuple[str, str, int] | None:
        if self._log is None or not (heads := self._log.heads):
            return super()._identity(head_bytes)
        size = min(head_bytes, max(heads))
        return str(Path(self.name).resolve()), heads.get(size, ""), size

    def lines(self, position: Position) -> Iterator[Lines]:
        assert self._log is not None, "it was not checked"
        for _ in self._feeds.rounds(self._log):
            self.start = self._log.start
            for lines in super().lines(position):
                position = lines.position
                yield lines

    def again(self, ranges: Sequence[LineRange]) -> Iterator[Lines]:
        if ranges and ranges[0][0].offset < self.start.offset:
            raise InputError(
                f"the first {self.start.line:,} lines of {self.name} were removed and cannot be read again."
            )
        return super().again(ranges)

    def committed(self, position: Position) -> None:
        if self._log is not None:
            self._log.read = position

    def close(self) -> None:
        if self._log is not None:
            self._log.close()
