"""What a window of seven days sees, by stream time and by two other rules, on feeds whose times are as they come.

Pairs: a copy and its original that were written at most a window apart are true. An index of the rule sees the original
when the copy comes, or does not (tests/index/segments/test_window.py compares the
index with the rule), and it may see more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench import report
from stream_lsh.documents.times import NO_TIME, milliseconds, moment
from stream_lsh.index.segments.stream_time import StreamTime

EXAMPLE = "python -m bench.times --out results"
HOUR = 3_600_000
DAY = 24 * HOUR
WINDOW = 7 * DAY
AHEAD = 10 * 60_000  # max_future, as it is on Kafka
MAD = 4_080_000_000_000  # in 2099
START = 1_700_000_000_000
EVERY = 2 * 60_000  # ms from one document to the next
COPIES, LAG = 0.3, 2 * DAY  # share of copies, and how long after their originals on average
TOGETHER = HOUR  # in which a backlog is read
COLUMNS = {
    "feed": "feed", "true": "true pairs", "log": "seen by stream time", "capped": "with `max_future`",
    "clock": "by the clock", "largest": "by the largest time", "log_more": "more than true, stream time",
    "clock_more": "clock",
}  # fmt: skip

Times = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Feed:
    """n documents in the order in which they come. written: when; clock: when they come; said: the event times, NO_TIME
    without one. pairs int64[p, 2]: originals and copies."""

    written: Times
    clock: Times
    said: Times
    pairs: Times

    def ordered(self, order: Times, clock: Times) -> Feed:
        """In another order, in which they come at these times."""
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        pairs = np.sort(place[self.pairs], axis=1)  # who comes first counts as the original
        return Feed(self.written[order], clock, self.said[order], pairs)


def live(days: int, seed: int = 1) -> Feed:
    """A document every two minutes, each with the time at which it comes."""
    chance, n = np.random.default_rng(seed), days * DAY // EVERY
    written = START + EVERY * np.arange(n)
    copies = np.flatnonzero(chance.random(n) < COPIES)
    originals = copies - 1 - (chance.exponential(LAG, len(copies)) // EVERY).astype(np.int64)
    pairs = np.stack([originals, copies], axis=1)[originals >= 0]
    return Feed(written, written.copy(), written.copy(), pairs)


def reported(feed: Feed, form: Callable[[int], object]) -> Feed:
    """With times in a form of the feed's."""
    return replace(feed, said=np.array([milliseconds(form(time)) for time in feed.said.tolist()], np.int64))


def missing(feed: Feed, share: float) -> Feed:
    """A share of the documents has no time, but the first."""
    lost = np.random.default_rng(2).random(len(feed.said)) < share
    lost[0] = False
    return replace(feed, said=np.where(lost, NO_TIME, feed.said))


def mad(feed: Feed, of_64: int) -> Feed:
    """On its tenth day so many of any 64 are from 2099."""
    which = np.zeros(64, np.bool_)
    which[np.random.default_rng(3).permutation(64)[:of_64]] = True
    day = np.flatnonzero((feed.written - START) // DAY == 10)
    said = feed.said.copy()
    said[day[which[day % 64]]] = MAD
    return replace(feed, said=said)


def backwards(feed: Feed) -> Feed:
    """The newest first."""
    n = len(feed.said)
    return feed.ordered(np.arange(n)[::-1], _at_once(feed, n))


def filled_in(feed: Feed, days: int, rest: int) -> Feed:
    """Live; then, within an hour, the `days` before that, among what comes live; then the rest lives on."""
    old = np.flatnonzero(feed.written < START + days * DAY)
    before = np.flatnonzero((feed.written >= START + days * DAY) & (feed.written < START + (days + rest) * DAY))
    after = np.arange(before[-1] + 1, len(feed.said))
    among = int(TOGETHER // EVERY)
    place = np.concatenate([np.linspace(0, 1, len(old), endpoint=False), (np.arange(among) + 0.5) / among])
    mixed = np.concatenate([old, after[:among]])[np.argsort(place, kind="stable")]
    clock = feed.written[after[0]] + np.sort(place) * TOGETHER
    order = np.concatenate([before, mixed, after[among:]])
    return feed.ordered(
        order, np.concatenate([feed.written[before], clock.astype(np.int64), feed.written[after[among:]]])
    )


def drained(feed: Feed, partitions: int) -> Feed:
    """Everything waits in so many partitions, and is read from one after the other."""
    n = len(feed.said)
    where = np.random.default_rng(4).integers(0, partitions, n)
    return feed.ordered(np.argsort(where, kind="stable"), _at_once(feed, n))


def _at_once(feed: Feed, n: int) -> Times:
    return np.asarray(feed.written.max() + np.linspace(0, TOGETHER, n), np.int64)


def feeds() -> Mapping[str, Feed]:
    """All of them, by name."""
    plain = live(40)
    return {
        "milliseconds": plain,
        "seconds": reported(plain, lambda time: time / 1000),
        "ISO 8601": reported(plain, moment),
        "30 % without a time": missing(plain, 0.3),
        **{f"{n} of 64 from 2099, for a day": mad(plain, n) for n in (31, 33, 64)},
        "backwards, at once": backwards(plain),
        "20 days live, then the 40 before": filled_in(live(80), 40, 20),
        "4 partitions, one after the other": drained(plain, 4),
    }


def seen(feed: Feed, times: Times) -> tuple[float, float]:
    """The share of the true pairs that a rule sees with these times of the log, and how many more it sees, in shares of
    the true ones."""
    first, second = feed.pairs.T
    true = np.abs(feed.written[second] - feed.written[first]) <= WINDOW
    found = times[second] - times[first] <= WINDOW
    return float((found & true).sum() / true.sum()), float((found & ~true).sum() / true.sum())


def results() -> list[dict[str, Any]]:
    """A row for each feed."""
    rows = []
    for name, feed in feeds().items():
        known = np.where(feed.said == NO_TIME, -1, feed.said)
        log, log_more = seen(feed, StreamTime().advance(feed.said))
        capped, _ = seen(feed, StreamTime().advance(np.minimum(feed.said, feed.clock + AHEAD)))
        clock, clock_more = seen(feed, feed.clock)
        largest, _ = seen(feed, np.maximum.accumulate(known))
        true = np.abs(np.diff(feed.written[feed.pairs], axis=1)) <= WINDOW
        rows.append(
            {
                "feed": name, "true": int(true.sum()), "log": round(log, 3), "capped": round(capped, 3),
                "clock": round(clock, 3), "largest": round(largest, 3), "log_more": round(log_more, 3),
                "clock_more": round(clock_more, 3),
            }
        )  # fmt: skip
    return rows


def main() -> None:
    given = report.parser("times", __doc__.splitlines()[0], EXAMPLE).parse_args()
    where, rows = report.environment(), results()
    print(report.table(COLUMNS, rows))
    report.write(given.out, "times", where, rows, report.table(COLUMNS, rows, markdown=True))


if __name__ == "__main__":
    main()
