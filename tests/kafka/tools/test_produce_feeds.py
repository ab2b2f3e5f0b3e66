"""Entries of web feeds onto the documents topic: each once, over restarts and failures."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.feed_server import FeedServer, item, rss, serving_feeds

from stream_lsh.embedded.report import Progress
from stream_lsh.errors import BrokerError
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.kafka.tools import produce_feeds
from stream_lsh.kafka.tools.produce import Feeder
from stream_lsh.kafka.tools.produce_feeds import send_feeds
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
