"""Alerts are raised by what workers really tell: scraped, repeated, and given to Prometheus' own evaluation."""

import re
import signal
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from support.kafka.harness import Pipeline, until
from support.kafka.recorded import Recorded, scraped
from support.kafka.sequence_play import frame
from support.kafka.stages import grow, line, produce

from stream_lsh.kafka.client.connection import client_options
from stream_lsh.kafka.settings import ROLES, KafkaSettings
from stream_lsh.kafka.tools.broker import free_port
from stream_lsh.kafka.tools.exporter import metrics
from stream_lsh.kafka.tools.observer import observing
from stream_lsh.kafka.tools.status import Report, report
from stream_lsh.kafka.tools.topics import create
from stream_lsh.wire.frames import STARTS


@pytest.mark.first
def test_a_worker_that_is_frozen_and_what_arrives_in_its_topics(
    broker: Any, prefix: str, tmp_path: Path, promtool: str
) -> None:
    """Nothing is raised while all is well, and again when it is."""
    ports = {"control": free_port(), "match": free_port()}
    recorded = Recorded()
    with Pipeline(broker.bootstrap, prefix, tmp_path, partitions=1, text_field=("text",)) as pipeline:
        settings, topics = pipeline.settings, pipeline.topics

        def scrape(minutes: float) -> None:
            found = pipeline.run(looked(settings))
            texts = {name: scraped(port) for name, port in ports.items()}
            recorded.scrape(minutes, texts | {"status": metrics(found).decode()})

        def firing(what: str) -> bool:
            return what in (scraped(ports["control"]) or "")

        def feed(first: int, good: int, bad: int = 0) -> None:
            pipeline.run(produce(settings, [*(line(first + i) for i in range(good)), *[b"{"] * bad], 1))

        def finish() -> None:
            """Until all is at rest, and told to be."""
            pipeline.finish()
            until(lambda: all(at_rest(scraped(port)) for port in ports.values()))

        def write(topic: str, value: bytes) -> None:
            async def send() -> None:
                async with AIOKafkaProducer(**client_options(settings)) as producer:
                    await producer.send_and_wait(topic, value, partition=0)

            pipeline.run(send())

        match = pipeline.worker(("match",), http_port=ports["match"])
        pipeline.worker(tuple(role for role in ROLES if role != "match"), http_port=ports["control"])
        for first in (0, 50):
            feed(first, 50)
            finish()
            scrape(9)
            recorded.expect()
        for first in (200, 225, 250):
            feed(first, 15, bad=10)
            finish()
            scrape(9)
        recorded.expect("StreamLshDeadLetters")

        match.signal(signal.SIGSTOP)
        feed(400, 50)
        write(topics.signatures, b"hello")
        pipeline.run(grow(settings, topics.documents, 2))
        until(lambda: {t.alert for t in pipeline.run(looked(settings)).troubles} >= {"StreamLshNoWorker"})
        until(lambda: firing('excluded_partitions{role="sign"} 1.0'))
        scrape(15)
        recorded.expect(
            "StreamLshDown", "StreamLshNoWorker", "StreamLshJudgeWaits", "StreamLshVerdictsLate",
            "StreamLshPartitionsExcluded", "StreamLshForeignRecords",
        )  # fmt: skip

        match.signal(signal.SIGCONT)
        pipeline.run(create(settings))
        finish()
        until(lambda: not pipeline.run(looked(settings)).troubles)
        until(lambda: firing('excluded_partitions{role="sign"} 0.0'))
        scrape(30)
        recorded.expect()

        write(topics.signatures, frame(KafkaSettings(threshold=0.7), (0, 0, 1, STARTS)))
        until(lambda: firing('stopped{role="sequence"} 1.0'))
        scrape(1)
        recorded.expect("StreamLshRoleStopped")
    recorded.check(promtool, tmp_path)


def at_rest(text: str | None) -> bool:
    waiting = re.findall(r"^stream_lsh_(?:lag_records|frames_in_flight)\{.*\} (.*)$", text or "", re.MULTILINE)
    return bool(waiting) and not any(map(float, waiting))


async def looked(settings: KafkaSettings) -> Report:
    async with observing(settings) as observer:
        return report(await observer.look(), settings.decision_lag)
