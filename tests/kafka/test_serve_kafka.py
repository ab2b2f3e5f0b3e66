"""`stream-lsh serve --kafka`: a pipeline over HTTP, by its topics."""

import json
import random
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.commands import run
from support.kafka.harness import Pipeline
from support.kafka.proxy import Proxied
from support.serving import JSON, NDJSON, Serving, entry, events, write
from support.waiting import PATIENCE, until

GIVEN = {
    "compare_with": "kept", "shards": 1, "groups": True, "source_field": "outlet", "text_field": ("text",),
    "time_field": "at", "linger_ms": 5, "partitions": 3, "transaction_timeout_ms": 6000,
}  # fmt: skip
PATIENT = {**GIVEN, "session_timeout_ms": 60_000, "transaction_timeout_ms": 60_000}
"""A worker that was stopped for a moment goes on where it was, however long that moment is on a busy machine."""
NOW = 1_700_000_000_000
OUTLETS = ("wire", "herald", "radio")


def stories(number: int, first: int = 0) -> list[dict[str, Any]]:
    """Documents, most of them copies with a word of their own."""
    chance, found = random.Random(first), []
    for i in range(first, first + number):
        story = random.Random(chance.randrange(12))
        words = [f"w{story.randrange(10**6)}" for _ in range(40)]
        words[-1] = f"own{i}"
        found.append({"id": f"d{i}", "text": " ".join(words), "outlet": OUTLETS[i % 3], "at": NOW + 1000 * i})
    return found


def serving(pipeline: Pipeline, *options: str) -> Serving:
    """A service of a pipeline that is at work, with the settings of its workers."""
    worker = pipeline.workers[0]
    service = Serving(None, "--config", str(worker.config), "--answer-seconds", "50", *options)
    until(lambda: "answering for the shards 0" in worker.said(1 << 20), why=pipeline.report())
    return service


def post(service: Serving, document: dict[str, Any]) -> httpx.Response:
    return service.client.post("/v1/documents", headers=JSON, content=json.dumps(document))


def answered(ask: Callable[[], httpx.Response], status: int) -> httpx.Response:
    """The answer with a status: until then it is asked again (Kafka may be away, 503), which is safe."""
    answers: list[httpx.Response] = []

    def asked() -> bool:
        answers.append(ask())
        return answers[-1].status_code == status

    until(asked, why=f"no answer is {status}")
    return answers[-1]


def said(service: Serving, last: str | None, wanted: int, kinds: str = "") -> list[dict[str, Any]]:
    """So many events from a place on, without mere ids."""
    headers, found = {} if last is None else {"last-event-id": last}, []
    with service.client.stream("GET", "/v1/events", params={"kinds": kinds}, headers=headers) as answer:
        assert answer.status_code == 200, answer.read()
        for event in events(answer.iter_lines()):
            if "event" in event:
                found.append(event)
                if len(found) == wanted:
                    break
    return found


def health(service: Serving) -> int:
    try:
        return service.client.get("/health/ready").status_code
    except httpx.TransportError:
        return 0


@pytest.fixture
def pipeline(broker: Any, prefix: str, tmp_path: Path) -> Iterator[Pipeline]:
    with Pipeline(broker.bootstrap, prefix, tmp_path, **GIVEN) as found:
        found.worker()
        yield found


def bare(line: dict[str, Any], numbers: dict[int, int]) -> dict[str, Any]:
    """An answer with the numbers that the documents have in another index, without what it has only on Kafka."""
    found = {name: value for name, value in line.items() if name not in ("source", "time", "detected_at")}
    for name in ("seq", "group", "redelivered"):
        if found.get(name) is not None:
            found[name] = numbers[found[name]]
    found["matches"] = [{**match, "seq": numbers[match["seq"]]} for match in found["matches"]]
    return found


def test_the_same_answers_as_of_an_index(pipeline: Pipeline, tmp_path: Path) -> None:
    feed = stories(60)
    embedded = [
        f"--{name.replace('_', '-')}={value}" for name, value in
        {"shards": 1, "source_field": "outlet", "time_field": "at", "max_matches": 0}.items()
    ]  # fmt: skip
    copy_of_shards = ("--index", str(tmp_path / "copy"))
    with serving(pipeline, *copy_of_shards) as service, Serving(tmp_path / "index", *embedded) as index:
        early = service.client.post("/v1/check", headers=JSON, content=json.dumps(feed[0]))
        assert early.status_code == 503 and "no document was judged yet" in early.json()["detail"]
        one_by_one = [(service.add(document), index.add(document)) for document in feed[:30]]
        numbers = {on_kafka["seq"]: there["seq"] for on_kafka, there in one_by_one}
        assert [bare(on_kafka, numbers) for on_kafka, _ in one_by_one] == [there for _, there in one_by_one]
        assert one_by_one[0][0]["source"]["offset"] == 0

        again, there = service.add(feed[3]), index.add(feed[3])
        numbers[again["redelivered"]] = there["redelivered"]
        assert bare(again, numbers) == there and again["kind"] == one_by_one[3][0]["kind"]

        found = service.add_all(feed[30:])  # over partitions, so in an order of their own
        assert [line["id"] for line in found] == [document["id"] for document in feed[30:]]
        order = sorted(range(30), key=lambda i: found[i]["seq"])
        reported = index.add_all([feed[30 + i] for i in order])
        numbers |= {found[i]["seq"]: line["seq"] for i, line in zip(order, reported, strict=True)}
        assert [bare(found[i], numbers) for i in order] == reported

        copy = next(line for line in found if line["kind"] == "near_duplicate")
        document = service.client.get(f"/v1/documents/{copy['id']}", params={"text": "true"}).json()
        assert document["text"] == feed[int(copy["id"][1:])]["text"]
        assert (document["seq"], document["group"], document["state"]) == (copy["seq"], copy["group"], "dropped")
        assert service.client.get(f"/v1/documents/{copy['duplicate_of']}").json()["state"] == "kept"
        pair = {"a": copy["duplicate_of"], "b": copy["id"]}
        ours, theirs = (one.client.get("/v1/compare", params=pair).json() for one in (service, index))
        for name in ("similarity", "shared", "match", "why", "threshold", "same_group"):
            assert ours[name] == theirs[name]
        assert ours["a"]["spans"] == theirs["a"]["spans"] and ours["b"]["text"] == theirs["b"]["text"]

        ids = [copy["id"], "nobody", copy["duplicate_of"]]
        ours, theirs = (one.client.post("/v1/headlines", json=ids).json() for one in (service, index))
        assert ours == theirs and ours["documents"][0]["headline"] and ours["documents"][0]["source"]

        def table(one: Serving) -> list[dict[str, Any]]:
            return one.client.get("/v1/groups", params={"order": "largest"}).json()["groups"]

        until(
            lambda: (
                sum(row["total_members"] for row in table(service)) == sum(row["total_members"] for row in table(index))
            )
        )
        rows = [{**row, "group": numbers[row["group"]]} for row in table(service)]
        for row in rows:
            row["representative"]["seq"] = numbers[row["representative"]["seq"]]
        assert rows == table(index)
        largest = table(service)[0]
        members = service.client.get(f"/v1/groups/{largest['group']}").json()["members"]
        assert len(members) == largest["total_members"]
        assert service.client.get("/v1/groups/1").status_code == 404

        def pairs(one: Serving, **given: object) -> set[tuple[Any, ...]]:
            rows = one.client.get("/v1/pairs", params={"limit": 1000, **given}).json()["pairs"]
            return {(row["older"], row["newer"], row["similarity"], row["verified"]) for row in rows}

        until(lambda: len(pairs(service)) == len(pairs(index)))
        for given in ({}, {"best": True}, {"source": ours["documents"][0]["source"]}, {"min_similarity": 0.9}):
            assert pairs(service, **given) == pairs(index, **given) != set()

        problem = service.client.post("/v1/documents", headers=JSON, content=b'{"id": "x"}')
        assert (problem.status_code, problem.json()["verdict"]["reason"]) == (422, "missing_field")
        assert problem.headers["content-type"] == "application/problem+json"
        reused = service.client.post("/v1/documents", headers=JSON, content=json.dumps({**feed[0], "text": "a b c d"}))
        assert reused.status_code == 409
        asked = [*feed[:5], {**feed[7], "id": "new"}, {"id": "own", "text": "words of its own"}, {"id": "bad"}]
        until(lambda: service.add_all(asked[:1], "/v1/check")[0]["as_of"]["next_seq"] > max(numbers))
        checked = service.add_all(asked, "/v1/check")
        assert {line.pop("as_of")["next_seq"] > max(numbers) for line in checked} == {True}
        assert [bare(line, numbers) for line in checked] == index.add_all(asked, "/v1/check")
        until(lambda: "stream_lsh_serve_check_behind_documents 0.0" in service.client.get("/metrics").text)
        config = ["--config", str(pipeline.workers[0].config), "--index", str(tmp_path / "other copy")]
        found = run("kafka", "query", feed[7]["text"], *config)
        assert "as of frame " in found.stderr
        lines = index.add_all([{**feed[7], "id": "new"}], "/v1/check")[0]["matches"]
        assert [json.loads(line)["id"] for line in found.stdout.splitlines()] == [match["id"] for match in lines]
        (tmp_path / "feed.jsonl").write_text("".join(json.dumps(document) + "\n" for document in feed))
        verdicts = tmp_path / "verdicts.jsonl"
        run("kafka", "query", "--input", tmp_path / "feed.jsonl", "--output", verdicts, *config)
        kinds = Counter(json.loads(line)["kind"] for line in verdicts.read_text().splitlines())
        assert kinds == {"redelivered": 60}
        gone = service.client.delete("/v1/documents/d1")
        assert (gone.status_code, gone.json()["field"]) == (409, "on_conflict")
        assert service.client.get("/v1/documents/nobody").status_code == 404
        stats = service.client.get("/v1/stats").json()
        assert stats["totals"]["documents"] == 63 and stats["index"]["checks"]
        assert b"stream_lsh_serve_verdicts_total" in service.client.get("/metrics").content


def test_events_go_on_over_a_restart(pipeline: Pipeline, tmp_path: Path) -> None:
    """A service without a copy of the index, with readers alone, or with other settings does what it can, or ends."""
    with serving(pipeline) as service:
        first = service.add_all(stories(40))
        pairs, joined = sum(len(line["matches"]) for line in first), sum(line["kind"] != "unique" for line in first)
        per_document = said(service, "0.0", 40 + pairs + joined)
        assert Counter(event["event"] for event in per_document) == {"verdict": 40, "pair": pairs, "group": joined}
        assert [event["data"]["seq"] for event in per_document if event["event"] == "verdict"] == sorted(
            line["seq"] for line in first
        )
        places = [tuple(map(int, event["id"].split("."))) for event in per_document]
        assert places == sorted(set(places))
        with serving(pipeline) as other:  # one that was not there then says the same
            assert said(other, "0.0", len(per_document)) == per_document
            assert said(other, per_document[17]["id"], 10) == per_document[18:28]
            more = service.add_all(stories(20, 40))
            last = per_document[-1]["id"]
            wanted = len(more) + sum(len(line["matches"]) + (line["kind"] != "unique") for line in more)
            behind = said(other, last, wanted)
            assert said(service, last, wanted) == behind
        service.stop()
        service.start()
        assert said(service, last, wanted) == behind
        whole = said(service, "0.0", len(per_document) + wanted)
        assert whole == per_document + behind
        assert {line["seq"] for line in more} >= {
            event["data"]["seq"] for event in behind if event["event"] == "verdict"
        }
        gap = said(service, f"{max(line['seq'] for line in more) + 10**9}.0", 1)
        assert gap[0]["event"] == "gap"
        check = service.client.post("/v1/check", headers=JSON, content=json.dumps(stories(1)[0]))
        assert check.status_code == 409 and "--index DIR" in check.json()["detail"]
    tokens = tmp_path / "tokens.toml"
    write(tokens, entry("reader", "a-reader-of-this-test", "read"))
    with serving(pipeline, "--token-file", str(tokens)) as service:
        post = {"headers": {**JSON, "authorization": "Bearer a-reader-of-this-test"}, "content": b"{}"}
        assert service.client.post("/v1/documents", **post).status_code == 403
        assert service.client.get("/v1/stats").status_code == 401
    other = ("--threshold", "0.5", "--groups", "--source-field", "outlet")
    broker, there = pipeline.settings.bootstrap_servers, pipeline.topics.prefix
    for prefix, options, why in ((there, other, "signed with other settings"), ("nowhere", (), "have the topic")):
        with pytest.raises(AssertionError, match=why):
            Serving(None, "--bootstrap-servers", broker, "--topic-prefix", prefix, *options)


def test_a_verdict_that_is_late_is_given_later(broker: Any, prefix: str, tmp_path: Path) -> None:
    """And SIGTERM finishes what was taken."""
    answers: list[httpx.Response] = []
    with Pipeline(broker.bootstrap, prefix, tmp_path, **PATIENT) as pipeline:
        worker = pipeline.worker()
        with serving(pipeline, "--answer-seconds", "1") as service:
            answered(lambda: post(service, stories(1)[0]), 200)
            worker.signal(signal.SIGSTOP)
            answer = answered(lambda: post(service, stories(1, 1)[0]), 202)
            assert answer.json()["taken"]
            where = answer.headers["location"]
            assert "is not there yet" in service.client.get(where).json()["detail"]
            line = json.dumps(stories(1, 2)[0])
            answer = answered(lambda: service.client.post("/v1/documents", headers=NDJSON, content=line), 200)
            assert answer.json()["taken"] and answer.json()["id"] == "d2"
            worker.signal(signal.SIGCONT)
            assert answered(lambda: service.client.get(where), 200).json()["id"] == "d1"
        with serving(pipeline) as service:
            service.add(stories(1, 3)[0])
            worker.signal(signal.SIGSTOP)
            asking = threading.Thread(target=lambda: answers.append(post(service, stories(1, 4)[0])))
            asking.start()
            until(lambda: httpx.get(f"{service.url}/v1/stats").json()["service"]["waiting"] == 1)
            service.process.send_signal(signal.SIGTERM)
            until(lambda: health(service) != 200)
            worker.signal(signal.SIGCONT)
            service.process.wait(timeout=PATIENCE)  # without a second signal, which would end it at once
            assert service.process.returncode == 0
            asking.join()
    assert [(answer.status_code, answer.json()["id"]) for answer in answers] == [(200, "d4")]


def test_deletions_and_writes_to_one_of_several_topics(broker: Any, prefix: str, tmp_path: Path) -> None:
    news, wire = f"{prefix}.a", f"{prefix}.b"
    given = {
        **GIVEN, "on_conflict": "update", "key_is_id": "json",
        "documents": {
            news: {"id_prefix": ""},
            wire: {"id_field": "key", "text_field": "body", "deleted_field": "gone", "id_prefix": "w."},
        },
    }  # fmt: skip
    with Pipeline(broker.bootstrap, prefix, tmp_path, **given) as pipeline:
        config = str(pipeline.worker().config)
        assert "name one with --documents-topic" in run("serve", "--kafka", "--config", config, code=2).output
        with serving(pipeline, "--documents-topic", news) as service:
            text = " ".join(f"w{i}" for i in range(40))
            for i in range(3):
                service.add({"id": i, "text": f"{text} own{i}", "at": NOW + i})
            number = {"id_type": "json"}
            assert service.client.get("/v1/documents/1", params=number).json()["state"] == "dropped"
            assert service.client.delete("/v1/documents/0").json()["deleted"] is False  # that is the text
            gone = service.client.delete("/v1/documents/0", params=number).json()
            assert gone["kind"] == "deleted" and gone["deleted"] and gone["new_representative"]["id"] == 1
            assert service.client.get("/v1/documents/0", params=number).status_code == 404
            assert service.client.get("/v1/documents/1", params=number).json()["state"] == "kept"
            lines = service.client.post("/v1/deletions", headers=NDJSON, content=b'1\n"missing"\n')
            found = [json.loads(line) for line in lines.text.splitlines()]
            assert [(line["kind"], line["deleted"]) for line in found] == [("deleted", True), ("deleted", False)]
            again = service.add({"id": 2, "text": "another text of its own, which is long enough", "at": NOW + 9})
            assert again["kind"] == "unique" and again["replaces"]
        with serving(pipeline, "--documents-topic", wire) as service:  # a later service finds the same documents
            assert service.client.get("/v1/documents/2", params=number).json()["seq"] == again["seq"]
            assert service.client.get("/v1/documents/0", params=number).status_code == 404
            [first] = stories(1)
            feed = tmp_path / "feed.jsonl"
            feed.write_text(json.dumps(first) + "\n")
            run("kafka", "produce", str(feed), "--config", config, "--documents-topic", news)
            found = answered(lambda: service.client.get("/v1/documents/d0", params={"text": True}), 200).json()
            assert (found["text"], found["source"]["topic"]) == (first["text"], news)
            copy = post(service, {"key": "d0", "body": first["text"], "at": NOW + 10}).json()
            assert (copy["id"], copy["kind"], copy["duplicate_of"]) == ("w.d0", "exact_duplicate", "d0")
            assert copy["source"]["topic"] == wire
            assert service.client.delete("/v1/documents/d0").status_code == 422
            assert service.client.delete("/v1/documents/w.d0").json()["id"] == "w.d0"


def test_a_broker_that_is_away_returns(proxied: Proxied, prefix: str, tmp_path: Path) -> None:
    broker = proxied.broker
    with Pipeline(broker.bootstrap, prefix, tmp_path, **GIVEN) as pipeline:
        pipeline.worker()
        with serving(pipeline) as service:
            feed = stories(200)
            before = service.add_all(feed[:100])
            broker.kill()
            until(lambda: health(service) == 503, 60, "the service does not notice that its broker is away")
            refused = post(service, feed[100])
            assert refused.status_code == 503 and refused.headers["retry-after"]
            assert service.client.get("/health/live").status_code == 200
            broker.start()
            until(lambda: health(service) == 200, why="the service does not come back")
            answered(lambda: post(service, feed[100]), 200)  # the workers are back, too; perhaps it was sent twice
            after = service.add_all(feed[101:])
            seqs = [event["data"]["seq"] for event in said(service, "0.0", pipeline.produced(), "verdict")]
            assert seqs == sorted(set(seqs)) and {line["seq"] for line in before + after} < set(seqs)
            code, reported = service.stop()
            assert code == 0 and "Traceback" not in reported, reported
