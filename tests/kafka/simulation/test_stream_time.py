"""Stream time that is set back in a running pipeline: verdicts and alerts from there on are those without a jump."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
from support import jobs
from support.kafka.feeding import Record
from support.kafka.oracle import json_of
from support.long_form import rotating
from support.simulation.cluster import Cluster
from support.simulation.pipeline import Pipeline
from support.simulation.runner import simulated
from support.simulation.world import World

from stream_lsh import Settings
from stream_lsh.kafka.tools.stream_time import set_back

NOW, MINUTE, DAY = 1_700_000_000_000, 60_000, 86_400_000
RULES = '[[rule]]\nname = "grows"\nkind = "growth"\nmembers = 2\nwithin = "4h"\n'


@simulated()
@pytest.mark.parametrize(
    "given", rotating([{"window": "2h", "shards": 2, "compare_with": "kept"}, {"shards": 1}], 1), ids=str
)
async def test_after_it_the_outputs_are_those_without_a_jump(
    world: World, cluster: Cluster, tmp_path: Path, given: dict[str, Any]
) -> None:
    def document(id: str, text: object, at: int) -> dict[str, Any]:
        return {"id": id, "text": f"the words of text {text} and {text}, {text} again", "ts": at}

    # Copies follow 48 minutes after each other, or 200, when the first one has left the window.
    later = [document(f"{i}", i % 12 if i % 2 else f"even {i % 50}", NOW + i * 4 * MINUTE) for i in range(200)]
    right, wrong = ([document(f"f{i}", f"filler {i}", at) for i in range(70)] for at in (NOW, NOW + 10 * DAY))
    (tmp_path / "rules.toml").write_text(RULES)
    plain = tmp_path / "plain"
    settings = Settings(time_field="ts", text_field="text", window=given.get("window"))
    lines = jobs.write(tmp_path / "feed.jsonl", *right, *later)
    jobs.run(plain, [lines], settings, ["verdicts", "alerts"], tmp_path / "rules.toml")
    kinds = [verdict["kind"] for verdict in jobs.read(plain / "verdicts")][70:]
    alerts = [(alert["id"], alert["time"], alert["members"]) for alert in jobs.read(plain / "alerts")]
    assert {"unique", "exact_duplicate"} <= set(kinds) and len(alerts) > 3

    pipeline = Pipeline(
        world, cluster, partitions=1, text_field=("text",), time_field="ts", groups=True,
        alerts=tmp_path / "rules.toml", decision_lag=64, frame_documents=16, **given,
    )  # fmt: skip

    async def judged(documents: list[dict[str, Any]]) -> None:
        stamp = int(1000 * time.time())  # Kafka deletes what is older than its retention
        records = [Record(0, None, json.dumps(value).encode(), (), stamp) for value in documents]
        await pipeline.feed(records, 50)
        await pipeline.finish([worker], 300)

    await pipeline.create_topics()
    worker = pipeline.start()
    await judged(wrong)
    assert (await set_back(pipeline.settings, NOW, 60))[1]
    await judged(later[:90])
    worker.process.kill()
    worker = pipeline.start(folder=worker.folder)
    await judged(later[90:])
    await pipeline.drain()
    verdicts = [json_of(record.value or b"") for record in pipeline.records("verdicts")][70:]
    assert [verdict["kind"] for verdict in verdicts] == kinds
    told = [json_of(record.value or b"") for record in pipeline.records("alerts")]
    assert [(alert["id"], alert["time"], alert["members"]) for alert in told] == alerts
