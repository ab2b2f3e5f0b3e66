"""How far a run is, on standard error: a bar on a terminal, a plain line now and then elsewhere.

The job calls back a few times a second; the only clock is the one in its reports.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import TYPE_CHECKING

from stream_lsh.cli.failures import complain
from stream_lsh.hashing import notice
from stream_lsh.wording import count, duration, per_second, share

if TYPE_CHECKING:
    from rich.progress import TaskID

    from stream_lsh.embedded.report import Progress

WINDOW = 15.0  # seconds that count for the speed: the first document waits for compilation
FIRST_LINE, NEXT_LINE = 2.0, 10.0
PATIENCE = 4.0
NOTHING_YET = "no documents yet"


class Speed:
    """Documents and bytes a second over the last seconds, from the reports themselves."""

    def __init__(self, window: float = WINDOW) -> None:
        self._window = window
        self._seen: deque[tuple[float, int, int]] = deque()

    def add(self, report: Progress) -> None:
        """Take a report into account."""
        self._seen.append((report.seconds, report.documents, report.bytes_read))
        while len(self._seen) > 2 and self._seen[1][0] < report.seconds - self._window:
            self._seen.popleft()

    def documents(self) -> float | None:
        """Documents a second, None while unknown."""
        return self._rate(1)

    def seconds_left(self, report: Progress) -> float | None:
        """Time until all bytes are read, None while unknown or for a pipe."""
        rate = self._rate(2)
        if report.bytes_total is None or not rate:
            return None
        return max(0, report.bytes_total - report.bytes_read) / rate

    def _rate(self, column: int) -> float | None:
        if len(self._seen) < 2:
            return None
        first, last = self._seen[0], self._seen[-1]
        seconds = last[0] - first[0]
        return (last[column] - first[column]) / seconds if seconds > 1e-6 else None


def phrases(report: Progress, speed: Speed) -> list[str]:
    """`123,456 documents`, `38,211/s`, `1,204 duplicates`, and what else there is to say."""
    rate = speed.documents()
    parts = [count(report.documents, "document")]
    if rate is not None:
        parts.append(per_second(rate))
    parts.append(count(report.duplicates, "duplicate"))
    if report.rejected:
        parts.append(f"{report.rejected:,} rejected")
    return parts


Words = Callable[["Progress", Speed], list[str]]


class Lines:
    """A line after two seconds and every ten from then on, and one if there is nothing to report for a while."""

    def __init__(
        self, write: Callable[[str], None], patience: float = PATIENCE, words: Words = phrases, idle: str = NOTHING_YET
    ) -> None:
        self._write = write
        self._words = words
        self._speed = Speed()
        self._due = FIRST_LINE
        self._waiting = threading.Timer(patience, lambda: write(f"stream-lsh: {idle}"))
        self._waiting.daemon = True

    def __enter__(self) -> Callable[[Progress], None]:
        self._waiting.start()
        return self.report

    def __exit__(self, *_: object) -> None:
        self._waiting.cancel()

    def report(self, report: Progress) -> None:
        """Write a line if it is time for one."""
        self._waiting.cancel()
        self._speed.add(report)
        if report.seconds < self._due:
            return
        self._due = report.seconds + NEXT_LINE
        parts = self._words(report, self._speed)
        if report.bytes_total:
            parts.append(f"{share(report.bytes_read, report.bytes_total)} read")
        left = self._speed.seconds_left(report)
        if left is not None:
            parts.append(f"about {duration(round(left))} left")
        self._write("stream-lsh: " + ", ".join(parts))


class Bar:
    """A bar that is drawn in place; it disappears at the end, the summary stays."""

    def __init__(self, words: Words = phrases, idle: str = NOTHING_YET) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, SpinnerColumn, TextColumn
        from rich.progress import Progress as Display

        self._words = words
        self._idle = idle
        self._speed = Speed()
        self._display = Display(
            SpinnerColumn(),
            TextColumn("{task.fields[share]}"),
            BarColumn(bar_width=None),
            TextColumn("{task.fields[phrases]}"),
            TextColumn("[dim]{task.fields[left]}"),
            console=Console(stderr=True),
            refresh_per_second=4,
            transient=True,
            expand=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._task: TaskID | None = None

    def __enter__(self) -> Callable[[Progress], None]:
        self._display.start()
        notice.say = self._say
        self._task = self._display.add_task("", total=None, share="", phrases=self._idle, left="")
        return self.report

    def __exit__(self, *_: object) -> None:
        notice.say = complain
        self._display.stop()

    def _say(self, message: str) -> None:
        """Write a line above the bar."""
        self._display.console.print(f"stream-lsh: {message}", markup=False, highlight=False)

    def report(self, report: Progress) -> None:
        """Show a report; the display draws itself four times a second."""
        self._speed.add(report)
        left = self._speed.seconds_left(report)
        parts = self._words(report, self._speed)
        room = self._display.console.width - 30  # what the bar and the time left need at least
        while len(parts) > 1 and len("  ".join(parts)) > room:
            parts.pop()
        assert self._task is not None
        self._display.update(
            self._task,
            total=report.bytes_total,
            completed=report.bytes_read,
            share=share(report.bytes_read, report.bytes_total) if report.bytes_total else "",
            phrases="  ".join(parts),
            left=f"{duration(round(left))} left" if left is not None else "",
        )


def progress_display(
    *, quiet: bool, writes_standard_output: bool, words: Words = phrases, idle: str = NOTHING_YET
) -> AbstractContextManager[Callable[[Progress], None]]:
    """The display that fits: none, a bar on a terminal, lines elsewhere.

    words: what to say about a report; idle: while there is none.

    A bar and documents on the same terminal would spoil each other, so there it is lines as well.
    """
    if quiet:
        return nullcontext(lambda _: None)
    if sys.stderr is None or not sys.stderr.isatty():
        return Lines(_to_standard_error, words=words, idle=idle)
    from rich.console import Console

    shared = writes_standard_output and sys.stdout is not None and sys.stdout.isatty()
    if shared or Console(stderr=True).is_dumb_terminal:
        return Lines(_to_standard_error, words=words, idle=idle)
    return Bar(words, idle)


def _to_standard_error(line: str) -> None:
    with suppress(OSError):  # it has no reader any more; the work continues
        print(line, file=sys.stderr, flush=True)
