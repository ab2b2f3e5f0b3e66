"""Groups and alerts are the embedded engine's, whichever process is killed, and with stream time set back."""

import asyncio
import json
import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

import orjson
import pytest
from support import commands, jobs
from support.kafka.feeding import Record
from support.kafka.group_play import RULES
from support.kafka.oracle import json_of
from support.long_form import rotating
from support.simulation.cluster import Cluster
from support.simulation.pipeline import ROLES, Pipeline
from support.simulation.runner import simulated
from support.simulation.world import World

from stream_lsh import Settings
from stream_lsh.kafka.tools.stream_time import set_back

N, PARTITIONS, PARTS = 360, 3, 3
OUTLETS = ["wire", "herald", "radio", 7, None]


def stories() -> list[Record]:
    """Some stories, told by outlets with a word of their own."""
    chance, found = random.Random(1), []
    begin = int(time.time() * 1000) - 1000 * N
    for i in range(N):
        story = random.Random(chance.randrange(60))
        words = [f"w{story.randrange(10**6)}" for _ in range(60)]
        words[chance.randrange(60)] = f"own{i}"
        document = {"id": f"d{i}", "text": " ".join(words)}
        outlet = chance.choice(OUTLETS)
        document |= {"outlet": outlet} if outlet is not None else {}
        found.append(Record(i % PARTITIONS, b"d%d" % i, orjson.dumps(document), (), begin + 1000 * i))
    return found


@simulated()
@pytest.mark.parametrize("shards", rotating([1, 3], 1))
def test_groups_and_alerts_are_as_embedded(world: World, cluster: Cluster, tmp_path: Path, shards: int) -> None:
    rules = tmp_path / "rules.toml"
    rules.write_text(RULES)
    pipeline = Pipeline(
        world, cluster, partitions=PARTITIONS, shards=shards, compare_with="kept", decision_lag=100,
        frame_documents=25, groups=True, source_field="outlet", text_field=("text",), alerts=rules,
    )  # fmt: skip

    def shown(*words: str) -> list[dict[str, Any]]:
        of = ["--bootstrap-servers", cluster.bootstrap, "--topic-prefix", pipeline.settings.topic_prefix]
        return [json.loads(line) for line in commands.run("kafka", *words, *of).stdout.splitlines()]

    async def judged() -> None:
        await pipeline.create_topics()
        others, worker, documents = pipeline.start(*ROLES), pipeline.start("group"), stories()
        for part in range(PARTS):
            given = documents[part * N // PARTS : (part + 1) * N // PARTS]
            await pipeline.feed(given, 50)
            worker.process.kill()
            worker = pipeline.start("group", folder=worker.folder if part % 2 else None)
        await pipeline.finish([others, worker], 300)
        await pipeline.drain()

    asyncio.run(judged())
    pipeline.check()
    groups, alerts = pipeline.records("groups"), pipeline.records("alerts")
    assert len(groups) > 150 and len(alerts) > 3
    events = [json.loads(record.value or b"") for record in groups]
    assert shown("tail", "groups", "--from-beginning", "--until-end") == events
    told = [json.loads(record.value or b"") for record in alerts]
    assert shown("tail", "alerts", "--from-beginning", "--until-end") == told
    rows = {event["group"]: event for event in events}
    table = shown("groups", "--json")
    assert {row["group"]: row for row in table} == {
        group: {name: row[name] for name in row if name not in ("event", "seq", "id")} for group, row in rows.items()
    }
    members = shown("groups", str(table[0]["group"]))
    assert len(members) == table[0]["live_members"] == max(row["live_members"] for row in table)
    assert Counter(member["kind"] for member in members)["unique"] == 1
    (grown,) = shown("groups", "--order", "growing", "--since", "3m", "--limit", "1")
    verdicts = [json.loads(record.value or b"") for record in pipeline.records("verdicts")]
    latest = max(verdict["time"] for verdict in verdicts)
    late = {verdict["seq"] for verdict in verdicts if verdict["time"] >= latest - 180_000}
    assert grown["joined_since"] == max(
        sum(event["group"] == group and event["seq"] in late for event in events) for group in rows
    )


NOW, MINUTE, DAY = 1_700_000_000_000, 60_000, 86_400_000
GROWS = '[[rule]]\nname = "grows"\nkind = "growth"\nmembers = 2\nwithin = "4h"\n'


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
    (tmp_path / "rules.toml").write_text(GROWS)
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
