"""Groups and alerts of the whole pipeline are the embedded engine's, whoever is killed; and how they are shown."""

import json
import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

import orjson
import pytest
from click.testing import CliRunner
from support import commands
from support.kafka.feeding import Record
from support.kafka.group_play import RULES
from support.kafka.harness import Pipeline, until
from support.long_form import rotating

from stream_lsh.cli import main
from stream_lsh.kafka.tools.observer import observing
from stream_lsh.kafka.tools.status import report

NUMBER, PARTITIONS = 900, 3
BEGIN = int(time.time() * 1000) - 3_600_000  # what is old is deleted soon
OUTLETS = ["wire", "herald", "radio", 7, None]


def feed(number: int, begin: int, *, changes: bool) -> list[Record]:
    """Some stories, told by outlets with a word of their own; changes: ids may have other versions or tombstones."""
    chance, found = random.Random(begin), []
    for i in range(begin, begin + number):
        if changes and i > 100 and chance.random() < 0.25:
            k = chance.randrange(i)
            found.append(Record(k % PARTITIONS, b"d%d" % k, None, (), BEGIN + 1000 * i))
            continue
        id = chance.randrange(i // 2, i) if changes and i > 100 and chance.random() < 0.2 else i
        number = chance.randrange(60)
        if changes:  # of many stories, of which an id mostly tells the same again
            number = random.Random(f"story of {id}").randrange(200) if chance.random() < 0.8 else 200 + number
        story = random.Random(number)
        words = [f"w{story.randrange(10**6)}" for _ in range(60)]
        words[chance.randrange(60)] = f"own{i}"
        document = {"id": f"d{id}", "text": " ".join(words)}
        outlet = chance.choice(OUTLETS)
        document |= {"outlet": outlet} if outlet is not None else {}
        found.append(Record(id % PARTITIONS, b"d%d" % id, orjson.dumps(document), (), BEGIN + 1000 * i))
    return found


def shown(pipeline: Pipeline, *arguments: str) -> list[dict[str, Any]]:
    """What a command prints."""
    of = ["--bootstrap-servers", pipeline.settings.bootstrap_servers, "--topic-prefix", pipeline.settings.topic_prefix]
    found = CliRunner().invoke(main, [*arguments, *of], catch_exceptions=False)
    assert found.exit_code == 0, found.output
    return [json.loads(line) for line in found.stdout.splitlines()]


UPDATED = {"on_conflict": "update", "key_is_id": "string"}


@pytest.mark.parametrize(
    ("shards", "more"),
    rotating([(1, {}), (1, {**UPDATED, "window": "5m"}), (3, UPDATED), (3, {"window": "2m"}), (1, UPDATED)], 1),
)
def test_groups_and_alerts_are_as_embedded(
    broker: Any, prefix: str, tmp_path: Path, shards: int, more: dict[str, Any]
) -> None:
    rules = tmp_path / "rules.toml"
    rules.write_text(RULES)
    given = {
        "compare_with": "kept", "decision_lag": 400, "frame_documents": 100, "groups": True, "source_field": "outlet",
        "text_field": ("text",), "alerts": rules, "transaction_timeout_ms": 6000, **more,
    }  # fmt: skip
    with Pipeline(broker.bootstrap, prefix, tmp_path, partitions=PARTITIONS, shards=shards, **given) as pipeline:
        pipeline.worker(("sign", "sequence", "match", "judge", "forward"), "groups")
        first, second = pipeline.worker(("group",)), pipeline.worker(("group",))
        for number in range(4):
            pipeline.produce(feed(NUMBER // 4, number * NUMBER // 4, changes="on_conflict" in more))
            pipeline.wait_for((number + 1) * NUMBER // 4)
            victim = (first, second)[number % 2]
            victim.kill()
            victim.start()
        commands.run("kafka", "drain", "--config", str(pipeline.workers[0].config))
        pipeline.finish()
        found = pipeline.check()
        assert len(found.groups) > 300 and len(found.alerts) > (0 if more else 5)

        events = [json.loads(record.value or b"") for record in found.groups if record.value is not None]
        assert shown(pipeline, "kafka", "tail", "groups", "--from-beginning", "--until-end") == events
        alerts = [json.loads(record.value or b"") for record in found.alerts]
        assert shown(pipeline, "kafka", "tail", "alerts", "--from-beginning", "--until-end") == alerts
        reported = {event["event"] for event in events}
        assert reported == {"created", "joined"} | ({"ended"} if "window" in more else set()) | set(
            ["updated", "left", "representative_changed", "ended"] if "on_conflict" in more else []
        )
        last = {event["group"]: event for event in events}
        rows = {group: event for group, event in last.items() if event["event"] != "ended"}
        table = shown(pipeline, "kafka", "groups", "--json")
        assert {row["group"]: row for row in table} == {
            group: {name: row[name] for name in row if name not in ("event", "seq", "id")}
            for group, row in rows.items()
        }
        largest = table[0]
        members = shown(pipeline, "kafka", "groups", str(largest["group"]))
        live = sum("removed_by" not in member for member in members)
        assert live == largest["live_members"] == max(row["live_members"] for row in table)
        if more:
            return
        assert Counter(member["kind"] for member in members)["unique"] == 1
        grown = shown(pipeline, "kafka", "groups", "--order", "growing", "--since", "5m", "--limit", "1")
        assert grown[0]["joined_since"] == max(
            sum(e["group"] == group and e["seq"] in late(pipeline, found.verdicts) for e in events) for group in rows
        )

        async def look() -> Any:
            async with observing(pipeline.settings, None) as observer:
                return report(await observer.look(), pipeline.settings.decision_lag)

        def told_of() -> tuple[int, int, int]:
            (role,) = [role for role in pipeline.run(look()).roles if role.name == "group"]
            return len(role.working), len(role.standing_by), role.waiting

        until(lambda: told_of() == (1, 1, 0), why="a worker that was killed counts for as long as its session lasts")
        for worker in pipeline.workers:
            worker.terminate()
        assert [worker.wait() for worker in pipeline.workers] == [0] * 3, pipeline.report()


def late(pipeline: Pipeline, verdicts: list[Record]) -> set[int]:
    """The numbers of the documents of the last five minutes."""
    found = [json.loads(record.value or b"") for record in verdicts]
    latest = max(verdict["time"] for verdict in found)
    return {verdict["seq"] for verdict in found if verdict["time"] >= latest - 300_000}
