"""What a role tells of its work and its health, and at which level what the clients of Kafka leave behind is said."""

import asyncio
import gc
import json
import urllib.error
import urllib.request
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import errors
from aiokafka.conn import AIOKafkaConnection
from aiokafka.producer.message_accumulator import MessageAccumulator, MessageBatch
from aiokafka.structs import TopicPartition
from prometheus_client.parser import text_string_to_metric_families

from stream_lsh import __version__
from stream_lsh.kafka.run import logs
from stream_lsh.kafka.run.health import LIVE_SECONDS, Health
from stream_lsh.kafka.run.metrics import Probe, Registry, served
from stream_lsh.kafka.run.restarts import may_pass


def samples(registry: Registry) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    text, kind = registry.exposition()
    assert kind.startswith("text/plain")
    families = text_string_to_metric_families(text.decode())
    return {(s.name, frozenset(s.labels.items())): s.value for family in families for s in family.samples}


def value(registry: Registry, name: str, **labels: str) -> float | None:
    return samples(registry).get((f"stream_lsh_{name}", frozenset(labels.items())))


REPORTS: list[tuple[Callable[[Probe], object], dict[str, float]]] = [
    (lambda probe: (probe.documents.inc(3), probe.documents.inc(4)), {"documents_total": 7}),
    (lambda probe: probe.batch(7, 0.0015),
     {"batch_documents_sum": 7, "batch_documents_bucket le=5.0": 0, "batch_documents_bucket le=10.0": 1,
      "stage_seconds_bucket le=0.002": 1}),
    (lambda probe: (probe.verdicts("unique", 5), probe.verdicts("near_duplicate", 2)),
     {"verdicts_total kind=unique": 5, "verdicts_total kind=near_duplicate": 2}),
    (lambda probe: probe.pairs.inc(9), {"pairs_total": 9}),
    (lambda probe: (probe.not_compared.inc(2), probe.not_compared.inc(3)), {"not_compared_total": 5}),
    (lambda probe: probe.lag(0, 11), {"lag_records partition=0": 11}),
    (lambda probe: (probe.ignored("a"), probe.ignored("a", 2)), {"ignored_records_total reason=a": 3}),
    (lambda probe: probe.index(3, 1000, 5000), {"index_documents shard=3": 1000, "index_bytes shard=3": 5000}),
    (lambda probe: probe.recovery(3, 17), {"recovery_remaining_records shard=3": 17}),
    (lambda probe: probe.restarts.inc(), {"restarts_total": 1}),
    (lambda probe: (probe.stalled("no_flow", 0), probe.stalled("no_flow")), {"stalls_total reason=no_flow": 1}),
    (lambda probe: probe.in_flight(6), {"frames_in_flight": 6}),
    (lambda probe: probe.excluded.set(2), {"excluded_partitions": 2, "rebalances_total": 0}),
    (lambda probe: probe.waited([0.004, 0.3, 70]),
     {"verdict_latency_seconds_bucket le=0.005": 1, "verdict_latency_seconds_bucket le=60.0": 2,
      "verdict_latency_seconds_count": 3}),
    (lambda probe: probe.rejected("not_json"), {"rejected_total reason=not_json": 1}),
    (lambda probe: (probe.excluded.set(2), probe.assigned({0})), {"excluded_partitions": 0, "rebalances_total": 1}),
    (lambda probe: probe.stopped("no group cache"), {"stopped": 1}),
    (lambda _: None, {"stopped": 0, "last_commit_timestamp_seconds": 0, "ignored_records_total reason=foreign": 0}),
]  # fmt: skip


@pytest.mark.parametrize(("report", "found"), REPORTS)
def test_probe_reports_each_metric(report: Callable[[Probe], object], found: dict[str, float]) -> None:
    """Of its own role; what another role has done is not in it."""
    registry = Registry()
    probe, other = Probe("judge", registry), Probe("sign", registry)
    other.documents.inc(100)
    report(probe)
    for what, number in found.items():
        name, *label = what.split()
        assert value(registry, name, role="judge", **dict(pair.split("=") for pair in label)) == number
    assert value(registry, "documents_total", role="sign") == 100
    assert value(registry, "build_info", version=__version__) == 1


def test_transactions_and_commits_are_counted() -> None:
    probe = Probe("judge")
    with pytest.raises(KeyError), probe.transaction():
        raise KeyError
    with probe.transaction():
        pass
    probe.committed()
    assert value(probe.registry, "aborted_transactions_total", role="judge") == 1
    assert (value(probe.registry, "last_commit_timestamp_seconds", role="judge") or 0) > 1.7e9


def test_series_of_revoked_partitions_are_removed() -> None:
    probe = Probe("match")
    for shard in (0, 1):
        probe.lag(shard, 5)
        probe.index(shard, 10, 100)
    probe.recovery(1, 3)
    probe.assigned({0})
    probe.revoked(1)
    probe.revoked(2)
    assert value(probe.registry, "lag_records", role="match", partition="0") == 5
    assert value(probe.registry, "lag_records", role="match", partition="1") is None
    assert value(probe.registry, "index_documents", role="match", shard="0") == 10
    for name in ("index_documents", "index_bytes", "recovery_remaining_records"):
        assert value(probe.registry, name, role="match", shard="1") is None


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def get(port: int, path: str) -> tuple[int, str, bytes]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=20) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read()
    except urllib.error.HTTPError as answer:
        return answer.code, answer.headers["Content-Type"], answer.read()


async def test_over_http() -> None:
    clock = Clock()
    health, registry = Health(clock), Registry()
    sign, judge = Probe("sign", registry, health), Probe("judge", registry, health)
    async with served(health, registry, "127.0.0.1", 0) as port:
        status, kind, body = await asyncio.to_thread(get, port, "/health")
        assert status == 200 and kind.startswith("application/json")
        assert json.loads(body)["roles"]["sign"] == {
            "live": True,
            "seconds_since": {"started": 0, "committed": None, "idle": None},
        }
        clock.now += LIVE_SECONDS - 1
        sign.committed()
        clock.now += 2
        status, _, body = await asyncio.to_thread(get, port, "/health")
        found = json.loads(body)
        assert status == 503 and not found["live"]
        assert found["roles"]["sign"]["live"] and not found["roles"]["judge"]["live"]
        assert found["roles"]["sign"]["seconds_since"]["committed"] == 2
        judge.idle()
        assert (await asyncio.to_thread(get, port, "/health"))[0] == 200
        clock.now += LIVE_SECONDS + 1
        assert (await asyncio.to_thread(get, port, "/health"))[0] == 503
        status, kind, body = await asyncio.to_thread(get, port, "/metrics")
        assert status == 200 and kind.startswith("text/plain") and b"stream_lsh_documents_total" in body
        assert (await asyncio.to_thread(get, port, "/"))[0] == 404


NEVER = "exception was never retrieved"


def said(leave: Callable[[], Any], caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    """Level and first words of what the log says when that is done in a loop."""

    async def body() -> None:
        loop = asyncio.get_running_loop()
        logs.hush(loop, may_pass)
        logs.hush(loop, may_pass)
        leave()
        await asyncio.sleep(0.01)
        gc.collect()

    with caplog.at_level("DEBUG"), caplog.at_level("DEBUG", logs.log.name):  # others may have set that of the package
        asyncio.run(body())
    return [
        (record.levelname, record.getMessage().partition("\n")[0])
        for record in caplog.records
        if record.name in ("asyncio", logs.log.name) and "selector" not in record.getMessage()
    ]


def future(error: Exception) -> Callable[[], None]:
    return lambda: asyncio.get_running_loop().create_future().set_exception(error)


FORGOTTEN = {
    errors.ProducerFenced(): "DEBUG",
    errors.KafkaConnectionError("gone"): "DEBUG",
    ConnectionResetError(): "DEBUG",
    ValueError("a bug"): "ERROR",
    OSError(28, "full"): "ERROR",
}


def test_messages_of_libraries(caplog: pytest.LogCaptureFixture) -> None:
    reported = said(lambda: [future(error)() for error in FORGOTTEN], caplog)
    assert sorted(reported) == sorted((level, f"Future {NEVER}") for level in FORGOTTEN.values())


def test_what_clients_raise_in_their_own_tasks_and_callbacks(caplog: pytest.LogCaptureFixture) -> None:
    """aiokafka puts batches back that it has given up already."""

    def leave() -> Any:
        accumulator = MessageAccumulator(None, 1000, 0, 30)
        batch = MessageBatch(TopicPartition("t", 0), accumulator.create_builder(), 30, 0)

        async def again() -> None:
            accumulator.reenqueue(batch)

        async def cut_off() -> None:  # raised in asyncio, by a call of aiokafka
            reader = asyncio.StreamReader()
            reader.feed_eof()
            await AIOKafkaConnection._read(lambda: SimpleNamespace(_reader=reader))

        asyncio.get_running_loop().call_soon(accumulator.reenqueue, batch)
        return [asyncio.ensure_future(work()) for work in (again, cut_off)]

    (callback, *tasks) = said(leave, caplog)
    assert callback[0] == "DEBUG" and callback[1].startswith("Exception in callback MessageAccumulator.reenqueue")
    assert tasks == [("DEBUG", f"Task {NEVER}")] * 2


def test_own_errors_in_tasks_and_callbacks_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        raise KeyError("a bug")

    async def failing() -> None:
        fail()

    def leave() -> Any:
        asyncio.get_running_loop().call_soon(fail)
        return asyncio.ensure_future(failing())

    assert [level for level, _ in said(leave, caplog)] == ["ERROR", "ERROR"]


async def test_a_handler_that_is_there_already_stays() -> None:
    heard: list[str] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: heard.append(context["message"]))
    logs.hush(loop, may_pass)
    future(errors.ProducerFenced())()
    assert heard == [f"Future {NEVER}"]
