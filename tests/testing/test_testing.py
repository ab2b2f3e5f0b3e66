"""`stream_lsh.testing`: what it publishes without a broker. tests/kafka compares it with workers on a broker."""

import json
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from stream_lsh import Settings, UsageError
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.testing import Pipeline

EXAMPLES = Path(__file__).parents[2] / "examples"
TEXT = "The council has voted on Tuesday for a new bridge over the river, and against a tunnel below it"
LIKE = f"{TEXT}."
NOW = 1_800_000_000_000


def clock() -> int:
    return NOW


def test_document_causes_verdict_pair_and_copy() -> None:
    with Pipeline(topic_prefix="shop", clock=clock) as pipeline:
        pipeline.send({"id": "a", "text": TEXT}, key="a", headers=[("traceparent", b"00-1"), ("own", b"1")])
        pipeline.send({"id": "b", "text": LIKE}, key="b", partition=1)
    assert [record.json()["kind"] for record in pipeline.verdicts] == ["unique", "near_duplicate"]
    first, second = pipeline.verdicts
    assert (first.topic, first.key, first.headers) == (
        "shop.verdicts", b"a", (("traceparent", b"00-1"), ("kind", b"unique"), ("schema-version", b"1")),
    )  # fmt: skip
    assert second.json()["source"] == {"topic": "shop.documents", "partition": 1, "offset": 0}
    (pair,) = pipeline.pairs
    assert (pair.key, pair.partition, pair.timestamp) == (b'["a","b"]', 1, NOW)
    (unique,) = pipeline.unique
    assert unique.json() == {"id": "a", "text": TEXT}
    assert unique.headers == (("traceparent", b"00-1"), ("own", b"1"))


def test_equal_documents_give_equal_records() -> None:
    def run() -> list[object]:
        with Pipeline(clock=clock) as pipeline:
            return [*pipeline.send({"id": 1, "text": TEXT}), *pipeline.send({"id": 2, "text": LIKE})]

    assert run() == run()


def test_consumer_gives_what_is_new() -> None:
    with Pipeline() as pipeline:
        consumer = pipeline.consumer("unique", "stream-lsh.pairs")
        pipeline.send({"id": 1, "text": TEXT})
        assert [record.topic for record in consumer] == ["stream-lsh.unique"]
        assert not [*consumer]
        pipeline.send({"id": 2, "text": TEXT})
        assert [record.topic for record in consumer] == ["stream-lsh.pairs"]
        with pytest.raises(UsageError, match="'pair' is no topic of the pipeline; there are documents, verdicts"):
            pipeline.consumer("pair")


def test_settings_of_another_pipeline_are_taken() -> None:
    given = KafkaSettings(topic_prefix="shop", threshold=0.5)
    with Pipeline(given, threshold=0.6) as pipeline:
        assert (pipeline.topics.prefix, pipeline.settings.threshold) == ("shop", 0.6)
    with Pipeline(Settings(threshold=0.7)) as pipeline:
        assert pipeline.settings.threshold == 0.7


def test_errors_say_what_to_do() -> None:
    registry: dict[str, Any] = {"document_format": "registry", "registry_url": "http://127.0.0.1:1"}
    with pytest.raises(UsageError, match="a pipeline in memory has none: leave it out"):
        Pipeline(**registry)
    with pytest.raises(UsageError, match="did you mean threshold"):
        Pipeline(treshold=0.5)
    with Pipeline(partitions=2) as pipeline:
        with pytest.raises(UsageError, match="has the partitions 0 to 1; set partitions"):
            pipeline.send({}, partition=2)
        with pytest.raises(UsageError, match="the document is no JSON"):
            pipeline.send({"id": object()})
    with pytest.raises(UsageError, match="the pipeline is closed"):
        pipeline.send({})


def test_import_needs_no_tool_of_tests() -> None:
    code = "import sys, stream_lsh.testing; print({'pytest', 'hypothesis', 'faust'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_example_alerts_on_similar_pairs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    monkeypatch.setenv("SIMILARITY", "0.95")
    example = runpy.run_path(str(EXAMPLES / "alert_on_pairs.py"))
    with Pipeline(threshold=0.7) as pipeline:
        for id, text in (("a", TEXT), ("b", f"{TEXT} as well as a lake"), ("c", TEXT)):
            pipeline.send({"id": id, "text": text})
    for record in pipeline.pairs:
        example["take"](record)
    assert len(pipeline.pairs) == 2
    (alert,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert alert["alert"] == "c is like a"


def test_documents_topics_have_their_own_fields_and_ids() -> None:
    tables: dict[str, Any] = {
        "news": {},
        "wire": {"id_field": "key", "text_field": "body", "deleted_field": "gone"},
        "raw": {"document_format": "text", "id_prefix": "r/", "key_is_id": "string"},
    }
    with Pipeline(clock=clock, documents=tables, on_conflict="update") as pipeline:
        pipeline.send({"id": 7, "text": TEXT}, key="7", topic="news")
        pipeline.send({"key": "7", "body": LIKE}, key="7", topic="wire", partition=1)
        pipeline.send("Something else happens elsewhere, which the council has never heard of", key="7", topic="raw")
        pipeline.send({"id": 8, "body": TEXT}, key="8", topic="wire")
        pipeline.send({"key": "7", "gone": True}, key="7", topic="wire", partition=1)
        pipeline.send(None, key="7", topic="raw")
        with pytest.raises(UsageError, match="topic = None: the documents topics are news, wire, raw"):
            pipeline.send({"id": 7})
    verdicts = [record.json() for record in pipeline.verdicts]
    assert [(v["id"], v["kind"], v["source"]["topic"]) for v in verdicts] == [
        ("news:7", "unique", "news"), ("wire:7", "near_duplicate", "wire"), ("r/7", "unique", "raw"),
        (None, "rejected", "wire"), ("wire:7", "deleted", "wire"), ("r/7", "deleted", "raw"),
    ]  # fmt: skip
    assert [(pair.json()["older"], pair.json()["newer"]) for pair in pipeline.pairs] == [("news:7", "wire:7")]
    copies = [(record.key, record.value and dict(record.headers)["topic"]) for record in pipeline.unique]
    assert copies == [(b"7", b"news"), (b"7", b"raw"), (b"7", None)]
    assert dict(pipeline.unique[-1].headers)["id"] == b'"r/7"'
    assert dict(pipeline.dead_letters[0].headers)["topic"] == b"wire"
    assert [record.topic for record in pipeline.documents][:3] == ["news", "wire", "raw"]
