"""What workers and `stream-lsh kafka status` tell Prometheus."""

from __future__ import annotations

from stream_lsh.kafka.run.metrics import Probe, Registry
from stream_lsh.kafka.tools.exporter import metrics
from stream_lsh.kafka.tools.status import Report, Role

SEEN = Report(
    time=0, provisional=0, oldest=0, decided=0, under_way=0, window=1, shards=[], workers=None, unread=None,
    roles=[Role("judge", [], [], waiting=0, unit="document", seconds=0, left=None)],
)  # fmt: skip


def exposition() -> str:
    """Every metric in the text format, those with labels with one sample each."""
    registry = Registry()
    watch = Probe("match", registry)
    watch.documents.inc(1)
    watch.batch(1, 0.1)
    watch.verdicts("unique", 1)
    watch.pairs.inc(1)
    watch.lag(0, 1)
    watch.committed()
    watch.ignored("replay")
    watch.index(0, 1, 1, 1)
    watch.stream_time(1, 0)
    watch.recovery(0, 1)
    watch.restarts.inc()
    watch.stalled("no_flow")
    watch.in_flight(1)
    watch.waited([0.1])
    watch.rejected("not_json")
    watch.grouped({"created": 1}, {"spreads": 1}, 1)
    watch.registry.aborted.labels("judge")
    return registry.exposition()[0].decode() + metrics(SEEN).decode()
