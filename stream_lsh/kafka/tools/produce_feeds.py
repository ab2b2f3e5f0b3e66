"""Sends the entries of web feeds to the documents topic: each round of visits, what the feed log has more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import closing

from stream_lsh.documents.columns import Fields
from stream_lsh.embedded.report import Progress
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.kafka.tools.produce import Feeder
from stream_lsh.webfeeds.reader import WebFeeds


def send_feeds(
    settings: KafkaSettings, feeds: WebFeeds, key_field: str | None, rate: float | None,
    sent: Callable[[Feeder, Progress], None],
) -> None:  # fmt: skip
    """Read feeds and send their entries, as long as `feeds` goes on.

    What Kafka has acknowledged is written down after each round. A run that is killed before that sends the entries of
    one round again, with the same ids.

    Args:
        sent: gets each round that had something to send.

    Raises:
        InputError: the log cannot be used, or no feed could be read. BrokerError, StoreError: as of `Feeder.run`.
    """
    with closing(feeds.open(Fields())) as found:
        found.check()
    log = feeds.open_log()
    try:
        log.read = log.sent
        for _ in feeds.rounds(log):
            if log.end.offset > log.sent.offset:
                feeder = Feeder(settings, [str(feeds.log)], key_field=key_field, rate=rate, begin=log.unsent)
                done = asyncio.run(feeder.run())
                log.sent = log.read = log.end
                log.save()
                sent(feeder, done)
    finally:
        log.close()
