"""A document's trace context goes with its verdict, pairs and alerts; each role has a span for each frame."""

import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

from support import commands
from support.collector import collecting
from support.kafka.feeding import Record
from support.kafka.harness import Pipeline
from support.receivers import receiving
from support.serving import JSON, Serving

RULES = '[[rule]]\nname = "copied"\nkind = "copied"\nsource = "wire"\nby = "herald"\nsimilarity = 0.5\n'
NUMBER, SHARDS = 200, 2
ROLES = ("sign", "sequence", "match", "judge", "forward", "group")


def parent(number: int) -> bytes:
    return b"00-%032x-%016x-01" % (number + 1, number + 1)


def documents() -> list[Record]:
    """Different documents of one source, then a copy of the first by another. All have a trace of their own."""
    texts = [" ".join(f"w{i}x{k}" for k in range(30)) for i in range(NUMBER)]
    now, found = int(time.time() * 1000), []
    for i, text in enumerate([*texts, texts[0]]):
        value = {"id": f"d{i}", "text": text, "outlet": "herald" if i == NUMBER else "wire"}
        headers = (("traceparent", parent(i)), ("tracestate", b"feed=1"))
        found.append(Record(0, b"d%d" % i, json.dumps(value).encode(), headers, now + i))
    return found


def test_traces_of_a_pipeline(broker: Any, prefix: str, tmp_path: Path) -> None:
    (tmp_path / "rules.toml").write_text(RULES)
    given = {
        "compare_with": "kept", "shards": SHARDS, "groups": True, "source_field": "outlet", "text_field": ("text",),
        "alerts": tmp_path / "rules.toml", "partitions": 1, "linger_ms": 200,
    }  # fmt: skip
    with collecting() as collector, Pipeline(broker.bootstrap, prefix, tmp_path, **given) as pipeline:
        worker = pipeline.worker(start=False)
        worker.start(**collector.environment)
        pipeline.produce(documents())
        pipeline.finish()
        found = pipeline.check()  # what is said does not depend on traces
        traces = {json.loads(each.value or b"")["id"]: dict(each.headers)["traceparent"] for each in found.verdicts}
        assert traces == {f"d{i}": parent(i) for i in range(NUMBER + 1)}
        last = (("traceparent", parent(NUMBER)), ("tracestate", b"feed=1"))
        assert [each.headers for each in found.pairs + found.alerts] == [last, last]

        with receiving() as receiver:
            options = ["--url", receiver.url, "--receiver", "desk", "--until-end", "--dead-letters", tmp_path / "dead"]
            commands.run("alerts", "send", "--config", worker.config, *options)
        assert [headers["traceparent"].encode() for headers, _ in receiver.got] == [parent(NUMBER)]

        with Serving(None, "--config", str(worker.config), "--answer-seconds", "50") as service:
            headers = {**JSON, "traceparent": parent(NUMBER + 1).decode()}
            document = json.dumps({"id": "late", "text": "one more", "outlet": "wire"})
            assert service.client.post("/v1/documents", headers=headers, content=document).status_code == 200
        verdict = pipeline.read("verdicts")["verdicts"][-1]
        assert ("traceparent", parent(NUMBER + 1)) in verdict.headers
        pipeline.stop(worker)

    counts: Counter[str] = Counter()
    for span in collector.spans:
        counts[span.name] += span.facts["messaging.batch.message_count"]
        assert len(span.links) == min(span.facts["messaging.batch.message_count"], 128)
    assert counts == {role: (NUMBER + 2) * (SHARDS if role == "match" else 1) for role in ROLES}
    frames = {span.facts["stream_lsh.frame"] for span in collector.named("sequence")}
    for role in ("judge", "group"):
        assert [span.facts["stream_lsh.frame"] for span in collector.named(role)] == sorted(frames)
    matched = {(span.facts["stream_lsh.frame"], span.facts["stream_lsh.shard"]) for span in collector.named("match")}
    assert matched == {(frame, shard) for frame in frames for shard in range(SHARDS)}
    known = {parent(i).decode()[3:-3] for i in range(NUMBER + 2)}
    assert {link for span in collector.spans for link in span.links} <= known
