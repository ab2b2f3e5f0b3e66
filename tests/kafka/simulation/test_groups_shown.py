"""Groups and alerts are the embedded engine's, whichever process is killed; and how commands show them."""

import asyncio
import json
import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

import orjson
import pytest
from support import commands
from support.kafka.feeding import Record
from support.kafka.group_play import RULES
from support.long_form import rotating
from support.simulation.cluster import Cluster
from support.simulation.pipeline import ROLES, Pipeline
from support.simulation.runner import simulated
from support.simulation.world import World

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
