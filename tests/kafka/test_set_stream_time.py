"""Stream time that is set back in a running pipeline: verdicts and alerts from there on are those without a jump."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
from support import commands, jobs
from support.kafka.feeding import Record
from support.kafka.harness import Pipeline
from support.kafka.oracle import json_of
from support.long_form import rotating

from stream_lsh import Settings
from stream_lsh.documents.times import moment

pytestmark = pytest.mark.long

NOW, MINUTE, DAY = 1_700_000_000_000, 60_000, 86_400_000
RULES = '[[rule]]\nname = "grows"\nkind = "growth"\nmembers = 2\nwithin = "4h"\n'


@pytest.mark.parametrize(
    "given",
    rotating([{"window": "2h", "shards": 2, "compare_with": "kept"}, {"shards": 1}], 1),
    ids=["window", "alerts"],
)
def test_after_it_the_outputs_are_those_without_a_jump(
    broker: Any, prefix: str, tmp_path: Path, given: dict[str, Any]
) -> None:
    def document(id: str, text: object, at: int) -> dict[str, Any]:
        return {"id": id, "text": f"the words of text {text} and {text}, {text} again", "ts": at}

    # Copies follow 48 minutes after each other, or 200, when the first one has left the window.
    later = [document(f"{i}", i % 12 if i % 2 else f"even {i % 50}", NOW + i * 4 * MINUTE) for i in range(200)]
    right, wrong = ([document(f"f{i}", f"filler {i}", at) for i in range(70)] for at in (NOW, NOW + 10 * DAY))
    (tmp_path / "rules.toml").write_text(RULES)
    plain = tmp_path / "plain"
    settings = Settings(time_field="ts", text_field="text", window=given.get("window"))
    feed = jobs.write(tmp_path / "feed.jsonl", *right, *later)
    jobs.run(plain, [feed], settings, ["verdicts", "alerts"], tmp_path / "rules.toml")
    kinds = [verdict["kind"] for verdict in jobs.read(plain / "verdicts")][70:]
    alerts = [(alert["id"], alert["time"], alert["members"]) for alert in jobs.read(plain / "alerts")]
    assert {"unique", "exact_duplicate"} <= set(kinds) and len(alerts) > 3

    def records(documents: list[dict[str, Any]]) -> list[Record]:
        stamp = int(1000 * time.time())  # Kafka deletes what is older than its retention
        return [Record(0, None, json.dumps(value).encode(), (), stamp) for value in documents]

    with Pipeline(
        broker.bootstrap, prefix, tmp_path, partitions=1, text_field=("text",), time_field="ts", groups=True,
        alerts=tmp_path / "rules.toml", decision_lag=64, frame_documents=16, **given,
    ) as pipeline:  # fmt: skip
        worker = pipeline.worker()
        pipeline.produce(records(wrong))
        pipeline.finish()
        config = str(tmp_path / "worker-0.toml")
        commands.run("kafka", "set-stream-time", moment(NOW), "--config", config, "--yes")
        pipeline.produce(records(later[:90]))
        pipeline.finish()
        worker.kill()
        worker.start()
        pipeline.produce(records(later[90:]))
        pipeline.finish()
        found = pipeline.read("verdicts", "alerts")
    verdicts = [json_of(record.value) for record in found["verdicts"]][70:]
    assert [verdict["kind"] for verdict in verdicts] == kinds
    told = [json_of(record.value) for record in found["alerts"]]
    assert [(alert["id"], alert["time"], alert["members"]) for alert in told] == alerts
