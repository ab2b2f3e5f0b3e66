"""An alert is raised by what the stages really tell: scraped from them, repeated for as long as it stays so, and given
to Prometheus' own evaluation of the rule."""

from __future__ import annotations

import asyncio
import json
import subprocess
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaProducer
from kafka_helpers import settings_for
from prometheus_client.parser import text_string_to_metric_families
from sequence_play import frame
from stage_helpers import begun, commit, records, running, until

from stream_lsh.kafka.client.connection import client_options
from stream_lsh.kafka.judge.judged import metadata
from stream_lsh.kafka.names import Topics
from stream_lsh.kafka.run.metrics import Registry, Watch
from stream_lsh.kafka.sequence.stage import SequenceStage
from stream_lsh.kafka.topics import create
from stream_lsh.wire.frames import CONTINUES, STARTS

RULES = Path(__file__).parents[3] / "deploy" / "prometheus" / "alerts.yml"
STEP = 15  # seconds between two scrapes


class Recorded:
    """What Prometheus would have stored."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._series: dict[str, list[str]] = {}
        self.scrapes = 0

    def scrape(self, minutes: float) -> None:
        """What is told now, for as many minutes."""
        times = int(minutes * 60 / STEP)
        for family in text_string_to_metric_families(self._registry.exposition()[0].decode()):
            for sample in family.samples:
                labels = ", ".join(f"{name}={json.dumps(value)}" for name, value in sample.labels.items())
                found = self._series.setdefault(f'{sample.name}{{instance="control:8080", {labels}}}', [])
                found += ["_"] * (self.scrapes - len(found)) + [str(sample.value)] * times
        self.scrapes += times

    @property
    def minutes(self) -> float:
        return self.scrapes * STEP / 60

    def check(self, promtool: str, folder: Path, alert: str, raised: dict[float, bool], expected: Any) -> None:
        """Whether an alert is raised, or not, at these minutes."""
        test = {
            "interval": f"{STEP}s",
            "input_series": [{"series": name, "values": " ".join(values)} for name, values in self._series.items()],
            "alert_rule_test": [
                {"alertname": alert, "eval_time": f"{int(at * 60)}s", "exp_alerts": [expected] if yes else []}
                for at, yes in raised.items()
            ],
        }
        path = folder / "recorded.yml"
        path.write_text(json.dumps({"rule_files": [str(RULES)], "evaluation_interval": f"{STEP}s", "tests": [test]}))
        result = subprocess.run([promtool, "test", "rules", str(path)], capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stdout + result.stderr


def test_a_judge_that_waits(broker: Any, prefix: str, tmp_path: Path, promtool: str) -> None:
    """The sequencer stops soon after him, so that nothing moves any more; at rest nothing moves either."""
    settings = settings_for(broker, prefix, tmp_path, partitions=1, decided_after=6, session_timeout_ms=6000)
    topics, registry = Topics.of(settings), Registry()
    judge, recorded = Watch("judge", registry), Recorded(registry)
    log = [frame(settings, (0, i, i + 1, CONTINUES if i else STARTS)) for i in range(20)]

    async def send(part: list[bytes]) -> None:
        async with AIOKafkaProducer(**client_options(settings)) as producer:
            for data in part:
                await producer.send(topics.signatures, data, partition=0)

    async def judged(last: int, documents: int) -> None:
        await commit(settings, "judge", topics.matches, last + 1, metadata(last))
        judge.verdicts("unique", documents)

    async def passed(number: int) -> None:
        async def there() -> bool:
            return len(await records(settings, topics.frames)) == number

        await until(there, f"{number} frames are passed on")
        await asyncio.sleep(2.5)  # what is told is looked at each second

    async def body() -> None:
        await create(settings)
        await begun(settings)
        async with running(SequenceStage, settings, Watch("sequence", registry)):
            await send(log[:3])
            await passed(3)
            await judged(2, 3)
            await asyncio.sleep(2.5)
            recorded.scrape(10)  # nothing to do
            await send(log[3:])
            await passed(9)
            recorded.scrape(1)
            await judged(4, 2)
            await passed(11)
            at = recorded.minutes
            recorded.scrape(15)  # he waits
            raised = {at - 2: False, at + 1: False, at + 6: True, at + 14: True}
            for last in (9, 14, 19):
                await judged(last, 5)
                await passed(min(20, last + 7))
                recorded.scrape(1)
            at = recorded.minutes
            recorded.scrape(10)
            raised |= {at: False, at + 10: False}
        expected = {
            "exp_labels": {"severity": "critical"},
            "exp_annotations": {
                "summary": "Documents go in, and no verdict comes out",
                "description": "The judge waits for a shard that nobody answers for, or it is not running itself.",
            },
        }
        recorded.check(promtool, tmp_path, "StreamLshJudgeWaits", raised, expected)

    asyncio.run(body())
