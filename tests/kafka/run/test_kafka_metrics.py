"""What a role tells of its work, as Prometheus reads it."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from stream_lsh import __version__
from stream_lsh.kafka.run.metrics import Probe, Registry


def samples(registry: Registry) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    text, kind = registry.exposition()
    assert kind.startswith("text/plain")
    families = text_string_to_metric_families(text.decode())
    return {(s.name, frozenset(s.labels.items())): s.value for family in families for s in family.samples}


def value(registry: Registry, name: str, **labels: str) -> float | None:
    return samples(registry).get((f"stream_lsh_{name}", frozenset(labels.items())))


def test_everything_that_a_watch_tells() -> None:
    registry = Registry()
    watch, other = Probe("judge", registry), Probe("sign", registry)
    assert value(registry, "ignored_records_total", role="judge", reason="foreign") == 0  # its first is an increase
    watch.documents(3)
    watch.documents(4)
    other.documents(100)
    watch.batch(7, 0.0015)
    watch.verdicts("unique", 5)
    watch.verdicts("near_duplicate", 2)
    watch.pairs(9)
    watch.not_compared(2)
    watch.not_compared(3)
    watch.lag(0, 11)
    watch.ignored("a gap before it")
    watch.ignored("a gap before it", 2)
    watch.index(3, 1000, 5000)
    watch.recovery(3, 17)
    watch.restarted()
    watch.stalled("no_flow", 0)
    watch.stalled("no_flow")
    watch.committed()
    watch.in_flight(6)
    watch.excluded(2)
    watch.waited([0.004, 0.3, 70])
    watch.rejected("not_json")
    with pytest.raises(KeyError), watch.transaction():
        raise KeyError
    with watch.transaction():
        pass
    watch.stopped("no shelf")
    assert value(registry, "documents_total", role="judge") == 7
    assert value(registry, "documents_total", role="sign") == 100
    assert value(registry, "batch_documents_sum", role="judge") == 7
    assert value(registry, "batch_documents_bucket", role="judge", le="5.0") == 0
    assert value(registry, "batch_documents_bucket", role="judge", le="10.0") == 1
    assert value(registry, "stage_seconds_bucket", role="judge", le="0.002") == 1
    assert value(registry, "verdicts_total", role="judge", kind="unique") == 5
    assert value(registry, "verdicts_total", role="judge", kind="near_duplicate") == 2
    assert value(registry, "pairs_total", role="judge") == 9
    assert value(registry, "not_compared_total", role="judge") == 5
    assert value(registry, "lag_records", role="judge", partition="0") == 11
    assert value(registry, "ignored_records_total", role="judge", reason="a gap before it") == 3
    assert value(registry, "index_documents", role="judge", shard="3") == 1000
    assert value(registry, "index_bytes", role="judge", shard="3") == 5000
    assert value(registry, "recovery_remaining_records", role="judge", shard="3") == 17
    assert value(registry, "restarts_total", role="judge") == 1
    assert value(registry, "stalls_total", role="judge", reason="no_flow") == 1
    assert value(registry, "frames_in_flight", role="judge") == 6
    assert value(registry, "excluded_partitions", role="judge") == 2
    assert value(registry, "verdict_latency_seconds_bucket", role="judge", le="0.005") == 1
    assert value(registry, "verdict_latency_seconds_bucket", role="judge", le="60.0") == 2
    assert value(registry, "verdict_latency_seconds_count", role="judge") == 3
    assert value(registry, "rejected_total", role="judge", reason="not_json") == 1
    assert value(registry, "aborted_transactions_total", role="judge") == 1
    assert value(registry, "build_info", version=__version__) == 1
    assert value(registry, "rebalances_total", role="judge") == 0
    watch.assigned({0})
    assert value(registry, "rebalances_total", role="judge") == 1
    assert value(registry, "excluded_partitions", role="judge") == 0
    assert value(registry, "stopped", role="judge") == 1 and value(registry, "stopped", role="sign") == 0
    assert (value(registry, "last_commit_timestamp_seconds", role="judge") or 0) > 1.7e9
    assert value(registry, "last_commit_timestamp_seconds", role="sign") == 0


def test_what_this_member_has_lost_is_no_longer_told() -> None:
    watch = Probe("match")
    for shard in (0, 1):
        watch.lag(shard, 5)
        watch.index(shard, 10, 100)
    watch.recovery(1, 3)
    watch.assigned({0})
    watch.revoked(1)
    watch.revoked(2)
    assert value(watch.registry, "lag_records", role="match", partition="0") == 5
    assert value(watch.registry, "lag_records", role="match", partition="1") is None
    assert value(watch.registry, "index_documents", role="match", shard="0") == 10
    for name in ("index_documents", "index_bytes", "recovery_remaining_records"):
        assert value(watch.registry, name, role="match", shard="1") is None
