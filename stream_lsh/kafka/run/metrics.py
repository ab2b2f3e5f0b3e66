"""Prometheus metrics of a worker, their HTTP port, and `Probe`, through which a role reports."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, ProcessCollector, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from stream_lsh import __version__
from stream_lsh.documents.engine_errors import ENGINE_ERROR
from stream_lsh.errors import FormatError
from stream_lsh.kafka.run.health import Health
from stream_lsh.tracing import tracer
from stream_lsh.wire.source import Headers

Handler = Callable[[Any], Awaitable[Any]]
"""From a request of aiohttp to its response."""
BATCHES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 4096)
FOREIGN = "foreign"  # reason of `ignored`: bytes that no version of this program writes
LATENCIES = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60)
SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)


class Registry:
    """All metrics of a process, created once. The label `role` separates its roles."""

    def __init__(self) -> None:
        self._collector = collector = CollectorRegistry()
        ProcessCollector(registry=collector)  # memory, processor time, open files
        Info("stream_lsh_build", "Which version this is.", registry=collector).info({"version": __version__})

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"stream_lsh_{name}", text, ("role", *labels), registry=collector)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"stream_lsh_{name}", text, ("role", *labels), registry=collector)

        def histogram(name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
            return Histogram(f"stream_lsh_{name}", text, ("role",), buckets=buckets, registry=collector)

        self.documents = counter("documents", "Documents that a role has processed.")
        self.verdicts = counter("verdicts", "Verdicts by kind: unique, duplicate, rejected and so on.", "kind")
        self.pairs = counter("pairs", "Pairs of near-duplicates.")
        self.not_compared = counter(
            "not_compared", "Buckets that were not read to their end, and candidates that were not verified."
        )
        self.ignored = counter("ignored_records", "Records that were not applied, by reason.", "reason")
        self.elsewhere = counter(
            "other_partition", "Updates and deletions that arrived from another partition than their document."
        )
        self.rejected = counter("rejected", "Documents rejected, by reason.", "reason")
        self.rebalances = counter("rebalances", "Assignments of partitions to a role by its consumer group.")
        self.aborted = counter("aborted_transactions", "Failed transactions.")
        self.restarts = counter("restarts", "Restarts of a role after a failure.")
        self.stalls = counter("stalls", "Stalls of a role, by reason.", "reason")
        self.stopped = gauge("stopped", "1 if a role has given up while the others continue.")
        self.batch = histogram("batch_documents", "Documents in a batch.", BATCHES)
        self.latency = histogram("verdict_latency_seconds", "From a document's timestamp to its verdict's.", LATENCIES)
        self.seconds = histogram("stage_seconds", "Processing time of a batch.", SECONDS)
        self.lag = gauge("lag_records", "Records of an input partition that are not read yet.", "partition")
        self.in_flight = gauge("frames_in_flight", "Frames sent to the shards that the judge has not completed.")
        self.excluded = gauge(
            "excluded_partitions", "Source partitions that are not read because the outputs lack them."
        )
        self.index_documents = gauge("index_documents", "Documents in a shard.", "shard")
        self.index_bytes = gauge("index_bytes", "Bytes of a shard on disk.", "shard")
        self.recovery = gauge("recovery_remaining_records", "Changelog records that a shard has yet to read.", "shard")
        self.events = counter("group_events", "Events of groups, by kind: created, joined and so on.", "event")
        self.alerts = counter("alerts", "Alerts, by rule.", "rule")
        self.forgotten = gauge(
            "alerts_dropped", "Groups and sources that a rule dropped early because its table was full."
        )
        self.stream_time = gauge("stream_time_timestamp_seconds", "With a window or groups: stream time, since 1970.")
        self.shift = gauge("stream_time_shift_seconds", "By how much stream time was set back in all.")
        self.jumps = counter("stream_time_jumps", "Jumps of stream time by more than the window at once.")
        self.clocks = gauge(
            "clock_difference_seconds", "From a frame's time of signing to its append time, by two clocks."
        )
        self.checkpoint = gauge(
            "checkpoint_age_ratio",
            "Age of the sequencer's checkpoint, if it lacks frames, as a share of retention_hours.",
        )
        self.oldest = gauge(
            "oldest_segment_timestamp_seconds", "Stream time of the oldest segment of a shard.", "shard"
        )
        self.last_commit = gauge("last_commit_timestamp_seconds", "Time of the last commit of a role, since 1970.")

    def exposition(self) -> tuple[bytes, str]:
        """All metrics as text, and its content type."""
        return generate_latest(self._collector), CONTENT_TYPE_PLAIN_0_0_4


@asynccontextmanager
async def served(health: Health, registry: Registry, host: str, port: int) -> AsyncIterator[int]:
    """Serve /health (200 or 503, JSON) and /metrics (Prometheus). Yields the port (0: a free one).

    Raises:
        OSError: the port is taken, or the host is not one of this machine.
    """
    import orjson
    from aiohttp import web  # only here: a worker without a port does not need it

    async def answer_health(_: web.Request) -> web.Response:
        live, report = health.report()
        return web.Response(
            status=200 if live else 503, body=orjson.dumps(report) + b"\n", content_type="application/json"
        )

    async def answer_metrics(_: web.Request) -> web.Response:
        body, kind = registry.exposition()
        return web.Response(body=body, headers={"Content-Type": kind})

    async with answering(answer_health, answer_metrics, host, port) as used:
        yield used


@asynccontextmanager
async def answering(health: Handler, metrics: Handler, host: str, port: int) -> AsyncIterator[int]:
    """Answer /health and /metrics. Yields the port, and raises, as `served`."""
    from aiohttp import web

    application = web.Application()
    application.router.add_get("/health", health)
    application.router.add_get("/metrics", metrics)
    runner = web.AppRunner(application, access_log=None, handle_signals=False, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


class Probe:
    """What one role reports about its work. Calls are cheap and thread-safe.

    Without `registry` and `health` it has its own (for tests, and for a stage that runs alone).

    Raises:
        UsageError: as `Tracer`.

    Attributes:
        documents, pairs, not_compared, restarts, excluded: metrics of `Registry`, for this role.
        commits: calls of `committed`, by which progress is detected.
    """

    def __init__(self, role: str, registry: Registry | None = None, health: Health | None = None) -> None:
        self.role = role
        self.registry = registry = registry or Registry()
        self.health = health or Health()
        self.commits = 0
        self._pulse = self.health.pulse(role)
        self.documents = registry.documents.labels(role)
        self.pairs = registry.pairs.labels(role)
        self.not_compared = registry.not_compared.labels(role)
        self.restarts = registry.restarts.labels(role)
        self._rebalances = registry.rebalances.labels(role)
        self._batch = registry.batch.labels(role)
        self._seconds = registry.seconds.labels(role)
        self._last_commit = registry.last_commit.labels(role)
        self._stopped = registry.stopped.labels(role)
        registry.ignored.labels(role, FOREIGN)  # from 0 on: a series that begins with 1 shows no increase
        registry.rejected.labels(role, ENGINE_ERROR)
        self.excluded = registry.excluded.labels(role)
        self._tracer = tracer()
        self._lags: set[int | str] = set()
        self._shards: set[int] = set()

    @property
    def last_idle(self) -> float | None:
        """When the role last had nothing to do, by the clock of its `Health`."""
        return self._pulse.idle

    def batch(self, number: int, seconds: float) -> None:
        """A batch of `number` documents took `seconds` of work."""
        self._batch.observe(number)
        self._seconds.observe(seconds)

    def traced(self, seconds: float, documents: int, headers: Callable[[], Iterable[Headers]], **facts: int) -> None:
        """With traces, make a span of `seconds` until now, for so many documents.

        Args:
            headers: of these documents, as far as they have some. A FormatError is left to the role that needs them.
            facts: `frame` (its offset in signatures), `shard`, `partition`.
        """
        if self._tracer is not None:
            named: dict[str, str | int] = {f"stream_lsh.{name}": value for name, value in facts.items()}
            named |= {"messaging.system": "kafka", "messaging.batch.message_count": documents}
            with suppress(FormatError):
                self._tracer.ended(self.role, seconds, headers(), named)

    def verdicts(self, kind: str, number: int) -> None:
        """`number` more verdicts of a kind."""
        self.registry.verdicts.labels(self.role, kind).inc(number)

    def lag(self, partition: int | str, records: int) -> None:
        """An input partition of this member has `records` left to read."""
        self._lags.add(partition)
        self.registry.lag.labels(self.role, partition).set(records)

    def assigned(self, partitions: AbstractSet[int | str]) -> None:
        """The input partitions of this member. It no longer reports the lag of any others."""
        for partition in self._lags - partitions:
            self.registry.lag.remove(self.role, str(partition))
        self._lags &= partitions
        self._rebalances.inc()
        self.excluded.set(0)

    def committed(self) -> None:
        """Progress was committed: the broker has all outputs, and our position."""
        self.commits += 1
        self._pulse.committed = self.health.clock()
        self._last_commit.set(time.time())

    def idle(self) -> None:
        """The input was checked and is empty, and nothing is uncommitted. While the role waits it does not count."""
        if self._pulse.waits is None:
            self._pulse.idle = self.health.clock()

    def in_flight(self, frames: int) -> None:
        """`frames` are in flight to the judge."""
        self.registry.in_flight.labels(self.role).set(frames)

    def stream_time(self, time: int, jumps: int, shift: int) -> None:
        """Stream time (ms) with its shift, and how often it has newly advanced by more than the window at once."""
        self.registry.stream_time.labels(self.role).set((time - shift) / 1000)
        self.registry.shift.labels(self.role).set(shift / 1000)
        self.registry.jumps.labels(self.role).inc(jumps)

    def clocks(self, appended: int, signed: int) -> None:
        """Append time and time of signing of a frame (ms)."""
        self.registry.clocks.labels(self.role).set((appended - signed) / 1000)

    def checkpoint(self, age: float) -> None:
        """The age of the sequencer's checkpoint, as a share of `retention_hours`. 0: it lacks nothing."""
        self.registry.checkpoint.labels(self.role).set(age)

    def ignored(self, reason: str, number: int = 1) -> None:
        """`number` records were not applied, for a reason of a fixed set."""
        self.registry.ignored.labels(self.role, reason).inc(number)

    def index(self, shard: int, documents: int, size: int, oldest: int | None = None) -> None:
        """A shard has `documents` documents in `size` bytes. oldest: stream time (ms) of the first, with a window."""
        if oldest is not None:
            self.registry.oldest.labels(self.role, shard).set(oldest / 1000)
        self._shards.add(shard)
        self.registry.index_documents.labels(self.role, shard).set(documents)
        self.registry.index_bytes.labels(self.role, shard).set(size)

    def recovery(self, shard: int, remaining: int) -> None:
        """A shard has `remaining` changelog records to read before it can reply."""
        self._shards.add(shard)
        self.registry.recovery.labels(self.role, shard).set(remaining)

    def revoked(self, shard: int) -> None:
        """This member has lost a shard. Another member reports its size from now on."""
        if shard in self._shards:
            self._shards.discard(shard)
            registry = self.registry
            for gauge in (registry.index_documents, registry.index_bytes, registry.recovery, registry.oldest):
                with suppress(KeyError):  # not every shard has all of them
                    gauge.remove(self.role, str(shard))

    def waited(self, seconds: Iterable[float]) -> None:
        """The latencies of documents, from their timestamps to their verdicts, in seconds."""
        latency = self.registry.latency.labels(self.role)
        for found in seconds:
            latency.observe(found)

    def rejected(self, reason: str) -> None:
        """A document was rejected, for a reason of a fixed set."""
        self.registry.rejected.labels(self.role, reason).inc()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Counts the transaction inside as aborted if it raises."""
        try:
            yield
        except BaseException:
            self.registry.aborted.labels(self.role).inc()
            raise

    def grouped(self, events: Mapping[str, int], alerts: Mapping[str, int], forgotten: int) -> None:
        """New events of groups by kind and new alerts by rule. forgotten: total times that a rule had no room."""
        for kind, number in events.items():
            self.registry.events.labels(self.role, kind).inc(number)
        for rule, number in alerts.items():
            self.registry.alerts.labels(self.role, rule).inc(number)
        self.registry.forgotten.labels(self.role).set(forgotten)

    def stalled(self, reason: str, number: int = 1) -> None:
        """The role makes no progress although there is work, for a reason of a fixed set. number 0: creates the
        series."""
        self.registry.stalls.labels(self.role, reason).inc(number)

    def waits(self, what: str | None) -> None:
        """The role has work, and waits for something that is not Kafka; None: it does not any more."""
        self._pulse.waits = what

    def stopped(self, reason: str) -> None:
        """The role has given up, for a reason that an operator must look at."""
        self._pulse.stopped = reason
        self._stopped.set(1)
