"""What workers and `stream-lsh kafka status` tell Prometheus."""

from stream_lsh.kafka.run.metrics import Probe, Registry
from stream_lsh.kafka.tools.exporter import metrics
from stream_lsh.kafka.tools.status import Report, Role

SEEN = Report(
    time=0, provisional=0, oldest=0, with_verdict=0, under_way=0, window=1, shards=[], workers=None, unread=None,
    roles=[Role("judge", [], [], waiting=0, unit="document", seconds=0, left=None)],
)  # fmt: skip


def exposition() -> str:
    """Every metric in the text format, those with labels with one sample each."""
    registry = Registry()
    probe = Probe("match", registry)
    probe.documents.inc(1)
    probe.batch(1, 0.1)
    probe.verdicts("unique", 1)
    probe.pairs.inc(1)
    probe.lag(0, 1)
    probe.committed()
    probe.ignored("replay")
    probe.index(0, 1, 1, 1)
    probe.stream_time(1, 0, 0)
    probe.clocks(1, 0)
    probe.checkpoint(0.1)
    probe.recovery(0, 1)
    probe.restarts.inc()
    probe.stalled("no_flow")
    probe.in_flight(1)
    probe.waited([0.1])
    probe.rejected("not_json")
    probe.grouped({"created": 1}, {"spreads": 1}, 1)
    probe.registry.aborted.labels("judge")
    probe.registry.elsewhere.labels("match")
    return registry.exposition()[0].decode() + metrics(SEEN).decode()
