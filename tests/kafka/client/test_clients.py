"""Clients whose broker is not ready or does not answer any more, and header names that are not UTF-8."""

import asyncio
import pkgutil
import socket
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition, conn, errors
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.client import AIOKafkaClient
from aiokafka.conn import AIOKafkaConnection
from aiokafka.consumer import fetcher
from aiokafka.errors import CorruptRecordException
from aiokafka.record.default_records import _DefaultRecordBatchBuilderPy
from support.kafka.header_play import Name
from support.kafka.stages import running

from stream_lsh.kafka.client import clients, private
from stream_lsh.kafka.client.clients import Deletion, seen, unless
from stream_lsh.kafka.client.connection import FINAL, admin
from stream_lsh.kafka.client.reading import reading
from stream_lsh.kafka.run.process import STAGES
from stream_lsh.kafka.run.restarts import may_pass
from stream_lsh.kafka.settings import KafkaSettings


async def test_a_broker_that_names_no_brokers_yet_has_only_just_started(monkeypatch: pytest.MonkeyPatch) -> None:
    async def started(self: AIOKafkaAdminClient) -> None:
        """Answered, but without brokers: as for a moment after a broker's restart."""

    monkeypatch.setattr(AIOKafkaAdminClient, "start", started)
    with pytest.raises(errors.KafkaConnectionError, match="just started") as caught:
        async with admin(KafkaSettings()):
            raise AssertionError("it has no brokers")
    assert may_pass(caught.value) and not isinstance(caught.value, FINAL)


async def test_a_socket_that_has_closed_itself_is_a_lost_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """Found by the loss of two of three brokers: uvloop's transport is closed, and aiokafka sends."""

    def send(*_: Any) -> None:
        raise RuntimeError("the handler is closed")

    monkeypatch.setattr(AIOKafkaConnection, "send", send)
    private.mend_clients()
    with pytest.raises(errors.KafkaConnectionError, match="kafka:9092 is closed") as caught:
        conn.AIOKafkaConnection("kafka", 9092).send(None)
    assert may_pass(caught.value) and not isinstance(caught.value, FINAL)


async def test_a_producer_starts_again_if_the_broker_names_no_brokers_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    async def answered(self: AIOKafkaClient) -> None:
        """As for a moment after a broker's restart; then the broker goes down again."""

    monkeypatch.setattr(AIOKafkaClient, "bootstrap", answered)
    with socket.create_server(("127.0.0.1", 0)) as server:
        free = server.getsockname()[1]
    with pytest.raises(Exception) as caught:
        settings = KafkaSettings(bootstrap_servers=f"127.0.0.1:{free}")
        async with clients.producing(settings, "judge", transactional_id="judge-0"):
            raise AssertionError("it has no brokers")
    assert may_pass(caught.value)


@pytest.mark.parametrize("error", [None, errors.KafkaError("refused"), asyncio.CancelledError()])
async def test_a_producer_is_closed_in_any_case(monkeypatch: pytest.MonkeyPatch, error: BaseException | None) -> None:
    """aiokafka's own sender waits for the answer to what is under way, or ends with an error."""
    monkeypatch.setattr(clients, "CLOSE_SECONDS", 0.2)
    calls: list[str] = []

    async def closing() -> None:
        calls.append("closing")
        if error is not None:
            raise error
        await asyncio.sleep(3600)

    async def closed() -> None:
        calls.append("client closed")

    producer: Any = SimpleNamespace(
        _closed=False, _sender=SimpleNamespace(close=closing), client=SimpleNamespace(close=closed)
    )
    await asyncio.wait_for(clients.drop_producer(producer), 30)
    assert calls == ["closing", "client closed"] and producer._closed


@pytest.fixture
def mute() -> Iterator[str]:
    """The address of a server that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize("role", ["sign", "sequence", "judge", "forward"])
async def test_a_stop_does_not_wait_for_a_server_that_never_answers(role: str, mute: str) -> None:
    async with running(pkgutil.resolve_name(STAGES[role]), KafkaSettings(bootstrap_servers=mute)):
        await asyncio.sleep(0.3)
        began = time.monotonic()
    assert time.monotonic() - began < 20  # and not until the request has timed out, or later


async def test_work_that_cancels_itself_was_not_stopped() -> None:
    """As aiokafka's does while the broker is away."""

    async def work() -> None:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await unless(work(), asyncio.get_running_loop().create_future())


async def test_an_error_that_was_asked_for_is_not_complained_of() -> None:
    said: list[Any] = []

    async def fail() -> None:
        raise ValueError

    asyncio.get_running_loop().set_exception_handler(lambda _, context: said.append(context["message"]))
    for callback in (seen, lambda _: None):
        task = asyncio.create_task(fail())
        task.add_done_callback(callback)
        await asyncio.wait([task])
        del task
        said.append("next")
    assert said == ["next", "Task exception was never retrieved", "next"]


def batch(*headers: list[tuple[str, bytes | None]], codec: int = 0, base: int = 0) -> bytearray:
    """A batch with a record for each list of headers; its offsets begin at `base`."""
    builder = _DefaultRecordBatchBuilderPy(2, codec, 0, -1, -1, 0, 1 << 20)
    for number, found in enumerate(headers):
        builder.append(number, 1000 + number, b"key", b"value %d" % number * 20, found)
    data = builder.build()
    data[:8] = base.to_bytes(8, "big")
    return data


@pytest.mark.parametrize("codec", [0, 1])
def test_names_become_text_and_nothing_else_changes(codec: int) -> None:
    bad: list[tuple[str, bytes | None]] = [(Name(b"\xff\xfe"), b"\xff"), (Name(b"a\xc3"), None), ("ü", b"")]
    one: list[tuple[str, bytes | None]] = [("traceparent", b"1")]
    data = batch(one, bad, one, bad, codec=codec) + batch(one, base=4) + batch(bad, base=5)
    private.mend_clients()
    found = fetcher.MemoryRecords(bytes(data))
    listed = []
    while found.has_next():
        each = found.next_batch()
        assert each.validate_crc()
        listed += list(each)
    assert [record.offset for record in listed] == list(range(6))
    assert [record.timestamp for record in listed] == [1000, 1001, 1002, 1003, 1000, 1000]
    assert [record.value[:7] for record in listed] == [b"value %d" % i for i in (0, 1, 2, 3, 0, 0)]
    text = [("\\xff\\xfe", b"\xff"), ("a\\xc3", None), ("ü", b"")]
    assert [record.headers for record in listed] == [one, text, one, text, one, text]
    assert all(type(name) is str for record in listed for name, _ in record.headers)


def test_what_is_damaged_stays_an_error() -> None:
    data = batch([("a", b"1")], [("b", b"2")])
    del data[-3:]
    data[8:12] = (len(data) - 12).to_bytes(4, "big")
    private.mend_clients()
    [*found] = [fetcher.MemoryRecords(bytes(data)).next_batch()]
    assert not found[0].validate_crc()
    with pytest.raises(CorruptRecordException):
        list(found[0])


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (errors.TopicAuthorizationFailedError(), "allow this client the operation Delete on the topic (ACL)"),
        (errors.PolicyViolationError(), "give the topic a cleanup.policy with delete"),
        (errors.NotLeaderForPartitionError(), "this is tried again"),
    ],
    ids=["acl", "policy", "temporary"],
)
async def test_refused_deletion_is_said_once(
    caplog: pytest.LogCaptureFixture, error: errors.KafkaError, remedy: str
) -> None:  # fmt: skip
    async def refuse(_: object) -> None:
        raise error

    deletion, client = Deletion(), SimpleNamespace(delete_records=refuse)
    for first in (7, 8):
        assert not await deletion.before(client, {TopicPartition("news.frames", 3): first})
    name = str(error) or type(error).__name__
    assert caplog.messages == [
        f"news.frames, partition 3: the records before offset 7 are no longer needed and could not be deleted ({name}):"
        f" {remedy}"
    ]


async def test_quota_is_said_once(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """The match role opens a reader for each hole in a changelog."""
    times = iter((0, 1500, 900))

    async def send(*_: object) -> object:
        return SimpleNamespace(throttle_time_ms=next(times))

    async def start(self: Any) -> None:
        await self._client.send(0, None)

    async def stop(self: Any) -> None:
        self._closed = True

    for place, name, work in (
        (AIOKafkaClient, "send", send),
        (AIOKafkaConsumer, "start", start),
        (AIOKafkaConsumer, "stop", stop),
    ):
        monkeypatch.setattr(place, name, work)
    for _ in range(3):
        async with reading(KafkaSettings(bootstrap_servers="kafka-2:9092", topic_prefix="news")):
            pass
    assert caplog.messages == [
        "Kafka at kafka-2:9092 holds this client (client id news.reading) back by a quota, here for 1.5 s: raise its "
        "producer_byte_rate, consumer_byte_rate or request_percentage"
    ]
