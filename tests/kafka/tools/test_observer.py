"""`stream-lsh kafka status` of a pipeline: before its start, with workers at work, with killed ones."""

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from support.kafka.brokers import settings_for
from support.kafka.stages import line, produce
from support.listening import Quiet, listening
from support.simulation.cluster import Cluster
from support.simulation.pipeline import Pipeline
from support.simulation.runner import simulated
from support.simulation.world import World

from stream_lsh.cli import main
from stream_lsh.kafka.names import Topics
from stream_lsh.kafka.settings import ROLES, KafkaSettings
from stream_lsh.kafka.tools import status
from stream_lsh.kafka.tools.observer import LOOKED_AT
from stream_lsh.kafka.tools.workers import ask

DAY = 86_400.0


def run(settings: KafkaSettings, *more: str) -> Result:
    names = ("bootstrap_servers", "topic_prefix", "shards", "compare_with", "text_field")
    values = {name: getattr(settings, name) for name in names}
    given = [
        word
        for name, value in values.items()
        for part in (value if isinstance(value, tuple) else (value,))
        for word in (f"--{name.replace('_', '-')}", str(part))
    ]
    return CliRunner().invoke(main, ["kafka", "status", *given, *more])


def report(settings: KafkaSettings, *more: str) -> dict[str, Any]:
    found = run(settings, "--json", *more)
    assert found.exit_code == 0, found.output
    got: dict[str, Any] = json.loads(found.stdout)
    return got


def alerts(found: dict[str, Any]) -> list[str]:
    return [trouble["alert"] for trouble in found["troubles"]]


def role(found: dict[str, Any], name: str) -> dict[str, Any]:
    (got,) = [role for role in found["roles"] if role["name"] == name]
    return dict(got)


def documents(numbers: range) -> list[bytes]:
    return [line(number).replace(b'"text"', b'"title":"","text"') for number in numbers]


@simulated()
def test_a_pipeline_from_before_its_start_to_after_its_end(
    world: World, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = Pipeline(world, cluster, shards=2, compare_with="all", partitions=2, text_field=("title", "text"))
    settings = pipeline.settings

    def reached(what: Callable[[], object]) -> None:
        end = world.seconds + 200
        while not what():
            assert world.seconds < end
            asyncio.run(asyncio.sleep(1))

    # No worker has run, but documents have come.
    asyncio.run(pipeline.create_topics())
    asyncio.run(produce(settings, documents(range(31)), 2))
    found = report(settings)
    assert alerts(found) == ["StreamLshNoWorker"] * len(ROLES)
    assert found["provisional"] == 31 and found["under_way"] == found["decided"] == 0 and found["workers"] is None
    assert role(found, "sign")["waiting"] == 31 and role(found, "sign")["seconds"] < 300
    assert [shard["owner"] for shard in found["shards"]] == [None, None]

    # Signed and sequenced, not matched.
    first = pipeline.start("sign", "sequence")
    reached(lambda: role(report(settings), "match")["waiting"] == 31)
    found = report(settings)
    assert len(role(found, "sign")["working"]) == 1
    assert role(found, "match") == {
        "name": "match", "working": [], "standing_by": [], "waiting": 31, "unit": "document",
        "seconds": role(found, "match")["seconds"], "left": role(found, "match")["left"],
    }  # fmt: skip
    assert 6.9 * DAY < role(found, "match")["left"][0] < 7 * DAY
    assert [role(found, name)["waiting"] for name in ("sign", "sequence", "judge", "forward")] == [0, 0, 0, 0]
    assert (found["provisional"], found["under_way"]) == (31, 31)
    with monkeypatch.context() as patched:
        patched.setattr(status, "WAITED", 0.0)
        waits = report(settings)["waits"]
        assert waits["shards"] == [0, 1]
        assert f"; waiting for shards 0, 1: frame {waits['frame']}\n" in run(settings).stdout

    # With other settings than the workers': what can be told is.
    other = report(settings.model_copy(update={"text_field": ("text",)}))
    assert role(other, "match")["unit"] == "frame" and "with other settings" in other["unread"]

    # All of it done.
    second = pipeline.start("match", "judge", "forward")
    asyncio.run(pipeline.finish([first, second], 300))
    reached(lambda: not alerts(report(settings)))
    found = report(settings)
    assert (found["provisional"], found["under_way"], found["decided"], found["waits"]) == (0, 0, 31, None)
    assert [role(found, name)["waiting"] for name in ROLES] == [0] * 5
    assert all(shard["owner"] for shard in found["shards"])
    text = run(settings).stdout
    assert "\nNothing is wrong.\n" in text and "with a verdict     31" in text

    # Killed.
    first.process.kill()
    second.process.kill()
    asyncio.run(produce(settings, documents(range(40, 71)), 2))
    reached(lambda: alerts(report(settings)).count("StreamLshNoWorker") == len(ROLES))
    found = report(settings)
    assert found["provisional"] == 31 and role(found, "sign")["waiting"] == 31
    said = run(settings).stdout
    assert said.index("CRITICAL") < said.index("without a verdict")


@simulated()
def test_topics_that_are_missing(broker: Any, prefix: str, tmp_path: Path) -> None:
    settings = settings_for(broker, prefix, tmp_path)
    found = run(settings)
    assert found.exit_code == 6
    names = sorted(getattr(Topics.of(settings), name) for name in LOOKED_AT)
    assert f"does not have the topics {', '.join(names)}. `stream-lsh kafka topics create`" in found.output


def test_processes_behind_one_that_is_silent() -> None:
    """A process that compiles does not listen yet; those that do name each other."""
    metrics = ('stream_lsh_build_info{version="9.9"} 1', 'stream_lsh_index_bytes{role="match",shard="3"} 7', "")
    body = {"/health": b'{"live": true, "roles": {}, "ports": []}', "/metrics": "\n".join(metrics).encode()}

    class Answers(Quiet):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            with suppress(BrokenPipeError):
                self.wfile.write(body[self.path])

    with listening(Answers) as url:
        silent, behind = ask([("127.0.0.1", int(url.rpartition(":")[2]) - 1)])
    assert silent.error is not None and "no answer" in silent.error
    assert (behind.version, behind.shards, behind.error) == ("9.9", {3: {"bytes": 7}}, None)
