"""Counts of a service since its start: by the second for the page, and as metrics for Prometheus."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from prometheus_client import CollectorRegistry, Gauge, Histogram, Info, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from stream_lsh import __version__
from stream_lsh.documents.engine_errors import ENGINE_ERROR
from stream_lsh.embedded.report import Counts
from stream_lsh.judging.verdicts import Kind
from stream_lsh.serve.requests import Counts as RequestCounts
from stream_lsh.serve.work import Round

SECONDS = 900  # number of seconds that are stored separately
LATENCIES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)
_OTHER = len(LATENCIES)


@dataclass(slots=True)
class Second:
    """Counts of one second: documents by kind, and answers by latency, in the classes of LATENCIES (upper bounds).
    slowest: latency of the slowest answer, in seconds."""

    at: int
    kinds: list[int] = field(default_factory=lambda: [0] * len(Kind))
    latencies: list[int] = field(default_factory=lambda: [0] * (_OTHER + 1))
    slowest: float = 0.0


class Tally:
    """The counts of a service. Used only in its event loop."""

    def __init__(self, seq: Callable[[], int], waiting: Callable[[], int], listeners: Callable[[], int]) -> None:
        self.counts = Counts()
        self.started = time.time()
        self.groups = self.alerts = self.refused = 0
        self._seconds: deque[Second] = deque(maxlen=SECONDS)
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        Info("stream_lsh_build", "Which version this is.", registry=registry).info({"version": __version__})
        registry.register(self)
        self._latency = Histogram(
            "stream_lsh_serve_latency_seconds", "Time from a request for a verdict to its answer.", buckets=LATENCIES,
            registry=registry,
        )  # fmt: skip
        for name, text, function in (
            ("serve_next_seq", "Seq of the next document.", seq),
            ("serve_waiting_documents", "Documents without an answer.", waiting),
            ("serve_listeners", "Listeners of events.", listeners),
        ):
            self.gauge(name, text, function)
        self.requests = RequestCounts(registry)
        self._index: tuple[int, int] | None = None  # documents, bytes

    def collect(self) -> Iterator[Metric]:
        """The totals as metrics, for the registry."""
        counts, begun = self.counts, self.started
        verdicts = CounterMetricFamily("stream_lsh_serve_verdicts", "Verdicts by kind.", labels=("kind",))
        for kind in Kind:
            verdicts.add_metric((kind.label,), counts.kinds[kind], begun)
        yield verdicts
        rejected = CounterMetricFamily("stream_lsh_serve_rejected", "Rejected documents by reason.", labels=("reason",))
        # From 0 on: a series that begins with 1 shows no increase.
        for reason, number in {ENGINE_ERROR: 0, **counts.rejected}.items():
            rejected.add_metric((reason,), number, begun)
        yield rejected
        for name, text, number in (
            ("pairs", "Pairs of near-duplicates.", counts.pairs),
            ("not_compared_documents", "Verdicts of documents that were not compared with all candidates.",
             counts.not_compared),
            ("refused", "Requests refused: too much waited, or no valid HTTP.", self.refused),
        ):  # fmt: skip
            yield CounterMetricFamily(f"stream_lsh_serve_{name}", text, number, created=begun)
        if self._index is not None:
            documents, size = self._index
            yield GaugeMetricFamily("stream_lsh_serve_index_documents", "Documents in the index.", documents)
            yield GaugeMetricFamily("stream_lsh_serve_index_bytes", "Bytes of the index on disk.", size)

    def gauge(self, name: str, text: str, function: Callable[[], float]) -> None:
        """Add a metric whose value a function gives."""
        Gauge(f"stream_lsh_{name}", text, registry=self.registry).set_function(function)

    def _second(self) -> Second:
        now = int(time.time())
        if not self._seconds or self._seconds[-1].at != now:
            self._seconds.append(Second(now))
        return self._seconds[-1]

    def add(self, done: Round) -> None:
        """Count a commit."""
        second, before = self._second(), list(self.counts.kinds)
        for judged, _ in done.judged:
            self.counts.add(judged.judgement, [why.reason for why in judged.reasons.values()])
            self.groups += 0 if judged.events is None else len(judged.events.places) + len(judged.events.ended)
            self.alerts += judged.alerts.count(b"\n")
        for kind in Kind:
            second.kinds[kind] += self.counts.kinds[kind] - before[kind]

    def verdict(self, verdict: Mapping[str, Any]) -> None:
        """Count a verdict of a pipeline, as in its topic."""
        kind, counts = Kind[verdict["kind"].upper()], self.counts
        self._second().kinds[kind] += 1
        counts.documents += 1
        counts.kinds[kind] += 1
        counts.truncated += "truncated" in verdict
        counts.replaced += "replaces" in verdict and kind != Kind.DELETED
        counts.not_compared += "not_compared" in verdict
        if kind == Kind.REJECTED:
            reason = verdict["reason"]
            counts.rejected[reason] = counts.rejected.get(reason, 0) + 1

    def answered(self, seconds: float) -> None:
        """Count an answer. seconds: from the request to the answer."""
        self._latency.observe(seconds)
        place = next((i for i, most in enumerate(LATENCIES) if seconds <= most), _OTHER)
        second = self._second()
        second.latencies[place] += 1
        second.slowest = max(second.slowest, seconds)

    def refuse(self) -> None:
        """Count a request that was refused because too many waited, or by the server itself."""
        self.refused += 1

    def measure(self, documents: int, size: int) -> None:
        """Set the size of the index: documents, and bytes on disk."""
        self._index = documents, size

    def history(self, seconds: int) -> list[dict[str, Any]]:
        """The last seconds in which anything was done, oldest first: documents by kind, upper bounds (ms) of the
        latency of 50 and of 99 % of the answers, and the latency of the slowest one; null if there were none."""
        after = time.time() - 1 - seconds
        return [
            {
                "at": second.at,
                "kinds": {kind.label: n for kind, n in zip(Kind, second.kinds, strict=True) if n},
                "p50_ms": _quantile(second, 0.5),
                "p99_ms": _quantile(second, 0.99),
                "max_ms": _quantile(second, 1),
            }
            for second in self._seconds
            if second.at >= after
        ]

    @property
    def totals(self) -> dict[str, Any]:
        """Totals since the start of the service."""
        counts = self.counts
        return {
            "documents": counts.documents,
            "kinds": {kind.label: counts.kinds[kind] for kind in Kind},
            "rejected": dict(counts.rejected), "pairs": counts.pairs, "truncated": counts.truncated,
            "not_compared": counts.not_compared, "replaced": counts.replaced, "group_events": self.groups,
            "alerts": self.alerts, "refused_requests": self.refused,
        }  # fmt: skip

    @property
    def exposition(self) -> bytes:
        """All metrics in Prometheus' text format."""
        return generate_latest(self.registry)


def _quantile(second: Second, share: float) -> float | None:
    """An upper bound of this share of a second's latencies, in ms, at most the slowest one; None if there are none."""
    wanted, seen, slowest = share * sum(second.latencies), 0, round(1000 * second.slowest, 1)
    for bound, count in zip((*LATENCIES, second.slowest), second.latencies, strict=True):
        seen += count
        if seen and seen >= wanted and share < 1:
            return min(1000 * bound, slowest)
    return slowest if seen else None
