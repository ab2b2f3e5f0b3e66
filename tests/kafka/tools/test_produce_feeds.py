"""Entries of web feeds, and files while the broker goes away, onto the documents topic: each once, over failures."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.feed_server import FeedServer, item, rss, serving_feeds
from support.kafka.brokers import Make, settings_for
from support.kafka.proxy import Proxied, Proxy
from support.kafka.stages import PATIENCE
from support.long_form import rotating
from support.simulation.cluster import Cluster
from support.simulation.network import Fault, Outcome
from support.simulation.runner import simulated

from stream_lsh.embedded.report import Progress
from stream_lsh.errors import BrokerError
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.kafka.tools import produce_feeds
from stream_lsh.kafka.tools.produce import Feeder
from stream_lsh.kafka.tools.produce_feeds import send_feeds
from stream_lsh.kafka.tools.topics import create
from stream_lsh.webfeeds.reader import WebFeeds


@pytest.fixture
def server() -> Iterator[FeedServer]:
    with serving_feeds() as found:
        yield found


def send(settings: KafkaSettings, server: FeedServer, folder: Path) -> None:
    feeds = WebFeeds([server.url + "/"], folder / "log", report=lambda _: None)
    send_feeds(settings, feeds, None, None, lambda feeder, sent: None)


def test_restart_sends_what_was_not_acknowledged_and_nothing_else(
    server: FeedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[str] = []
    away = False

    class Fake(Feeder):
        async def run(self) -> Progress:
            found = [line for lines in self._lines for line in lines]
            if away:
                raise BrokerError("away")
            taken.extend(f"{(line.key or b'').decode().partition('#')[2]} {line.line}" for line in found)
            return Progress(len(found), 0, 0, 0, 0, 0, None, 0.1)

    monkeypatch.setattr(produce_feeds, "Feeder", Fake)
    settings = KafkaSettings()
    server.shows("/", rss(item(2), item(1)))
    send(settings, server, tmp_path)
    send(settings, server, tmp_path)
    assert taken == ["n1 1", "n2 2"]
    away = True
    server.shows("/", rss(item(3)))
    with pytest.raises(BrokerError):
        send(settings, server, tmp_path)
    away = False
    server.shows("/", rss(item(4)))
    send(settings, server, tmp_path)
    assert taken[2:] == ["n3 3", "n4 4"]


pytestmark = pytest.mark.long


@pytest.fixture
def proxy(proxied: Proxied) -> Proxy:
    return proxied.proxies[0]


@pytest.fixture
def settings(proxied: Proxied, proxy: Proxy, prefix: str, tmp_path: Path) -> KafkaSettings:
    """Topics, and the way to them that can be cut."""
    asyncio.run(create(settings_for(proxied.broker, prefix, tmp_path, partitions=2)))
    return settings_for(
        proxied.broker, prefix, tmp_path, bootstrap_servers=f"127.0.0.1:{proxy.port}", give_up_seconds=3
    )  # fmt: skip


def lines(first: int, count: int) -> bytes:
    return b"".join(json.dumps({"id": f"d{n}", "text": f"text {n}"}).encode() + b"\n" for n in range(first, count))


def cut(proxy: Proxy) -> None:
    proxy.refuse()
    proxy.cut()


@simulated()
@pytest.mark.parametrize("silent", rotating([False, True], 1))
async def test_a_broker_that_stops_is_given_up(make: Make, cluster: Cluster, tmp_path: Path, silent: bool) -> None:
    settings, source = await make(partitions=2, give_up_seconds=3), tmp_path / "a.jsonl"
    source.write_bytes(lines(0, 100_000))

    def report(sent: Progress) -> None:
        if sent.documents:
            cluster.network.fault = lambda *_: Outcome(late=1e6) if silent else Outcome(Fault.LOST)

    feeder = Feeder(settings, [str(source)], rate=1000, report=report)
    with pytest.raises(BrokerError, match=r"has acknowledged nothing for 3 s \(give_up_seconds\)"):
        await feeder.run()
    assert 0 < feeder.sent < 100_000


@pytest.mark.parametrize("number", rotating([signal.SIGINT, signal.SIGTERM], 1))
def test_a_signal_ends_it_all_the_same(proxy: Proxy, settings: KafkaSettings, number: int) -> None:
    environment = os.environ | {"STREAM_LSH_TOPIC_PREFIX": settings.topic_prefix}
    words = ["kafka", "produce", "-", "--bootstrap-servers", settings.bootstrap_servers, "-X", "give_up_seconds=3600"]
    running = subprocess.Popen(
        [sys.executable, "-m", "stream_lsh.cli", *words], stdin=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    )
    try:
        assert running.stdin is not None and running.stderr is not None
        running.stdin.write(lines(0, 10))
        running.stdin.flush()
        assert b"10 documents" in running.stderr.readline()  # the progress
        cut(proxy)
        running.stdin.write(lines(10, 20))
        running.stdin.flush()
        time.sleep(1)  # for them to be on their way; if they are not yet, the test shows less
        running.send_signal(number)
        assert running.wait(PATIENCE) == 128 + number
        said = running.stderr.read().decode()
        assert "10 documents acknowledged before it ended; to continue, send the same again" in said
        assert "Traceback" not in said and "never retrieved" not in said
    finally:
        running.kill()
        running.communicate()
