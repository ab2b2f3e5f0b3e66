"""Signers with few documents each, played in virtual time: how many frames they send, and how long documents wait.

Documents arrive at random. Nothing else takes time, but that a frame is acknowledged after 1 to 20 ms.
"""

from __future__ import annotations

import argparse
import heapq
import math
import random
from collections.abc import Sequence

from bench import report
from bench.kafka_figures import quantiles
from stream_lsh.kafka.sign import pacing
from stream_lsh.kafka.sign.pacing import MOST_FRAMES, Pacing

COLUMNS = {"name": "signers", "limit": "limit", "frames": "frames/s", "p50": "p50 ms", "p99": "p99 ms"}
ARRIVES, BEGINS, PLACED = range(3)


def played(
    chance: random.Random, rates: Sequence[float], shares: Sequence[float], seconds: int, linger: float = 0.02
) -> tuple[list[int], list[list[float]]]:
    """Signers at which so many documents arrive a second.

    Returns:
        For each second, the frames of all signers, and for how many seconds each document of these frames has waited.
    """
    pacings, begun = [Pacing(linger) for _ in rates], [-1.0] * len(rates)
    for one, share in zip(pacings, shares, strict=True):
        one.share = share
    waiting: list[list[float]] = [[] for _ in rates]
    events = [(chance.expovariate(rate), ARRIVES, i) for i, rate in enumerate(rates)]
    heapq.heapify(events)
    frames, waits, offset = [0] * seconds, [list[float]() for _ in range(seconds)], 0
    while (event := heapq.heappop(events))[0] < seconds:
        now, what, i = event
        if what == ARRIVES:
            if not waiting[i]:
                heapq.heappush(events, (max(now, begun[i] + pacings[i].pause), BEGINS, i))
            waiting[i].append(now)
            heapq.heappush(events, (now + chance.expovariate(rates[i]), ARRIVES, i))
        elif what == BEGINS:
            frames[int(now)] += 1
            waits[int(now)] += [now - arrived for arrived in waiting[i]]
            begun[i], waiting[i] = now, []
            heapq.heappush(events, (now + chance.uniform(0.001, 0.02), PLACED, i))
        else:
            pacings[i].placed(offset, now)
            offset += 1
    return frames, waits


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.pacing", description=__doc__.splitlines()[0])
    parser.add_argument("--rate", type=float, default=1000, help="documents a second in all (%(default)s)")
    parser.add_argument("--signers", type=int, nargs="+", default=[1, 10, 50], help="(1 10 50)")
    parser.add_argument("--seconds", type=int, default=30, help="of which the first ten do not count (%(default)s)")
    given = parser.parse_args()
    rows = []
    for n in given.signers:
        for limit in (math.inf, MOST_FRAMES):
            pacing.MOST_FRAMES = limit
            frames, waits = played(random.Random(n), [given.rate / n] * n, [1 / n] * n, given.seconds)
            late = [1000 * wait for second in waits[10:] for wait in second]
            mean = sum(frames[10:]) / (given.seconds - 10)
            rows.append({"name": str(n), "limit": f"{limit:g}", "frames": mean, **quantiles(late)})
    print(report.table(COLUMNS, rows))


if __name__ == "__main__":
    main()
