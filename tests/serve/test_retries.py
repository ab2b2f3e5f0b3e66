"""Retries under updates: idempotency keys, and conditions on the version of a document."""

import asyncio
import json
import signal
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from support.serving import JSON, NDJSON, Serving

from stream_lsh.embedded import erasure
from stream_lsh.embedded.information import reading
from stream_lsh.embedded.stored_answers import RETRIES
from stream_lsh.index.store.rocksdb import Store
from stream_lsh.serve.pipeline import recent_answers
from stream_lsh.serve.pipeline.recent_answers import RecentAnswers
from stream_lsh.serve.problems import Problem
from stream_lsh.serve.retries import Retries, Retry
from stream_lsh.serve.work import Answers

TEXTS = {
    "A": "The council has voted for the new bridge over the river; work begins in spring and takes two years.",
    "B": "The harbour museum opens its doors again on Saturday after a winter of repairs to the roof.",
}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with Serving(tmp_path_factory.mktemp("retries") / "index", "--on-conflict", "update") as it:
        yield it


def put(served: Serving, id: str, version: str, **headers: str) -> httpx.Response:
    """Send a version of a document. Header names have _ in place of -."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    body = json.dumps({"id": id, "text": f"{id} {TEXTS[version]}"})
    return served.client.post("/v1/documents", headers={**JSON, **named}, content=body)


def stored(served: Serving, id: str) -> str:
    text: str = served.client.get(f"/v1/documents/{id}", params={"text": "true"}).json()["text"]
    return next(version for version, said in TEXTS.items() if text.endswith(said))


def code(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


def test_retry_with_its_key_does_not_bring_an_old_version_back(served: Serving) -> None:
    for id, key in (("with", {"Idempotency_Key": "k1"}), ("without", {})):
        first = put(served, id, "A", **key)
        put(served, id, "B")
        again = put(served, id, "A", **key)
        assert stored(served, id) == ("B" if key else "A")
        assert (again.content == first.content) == ("Idempotent-Replayed" in again.headers) == bool(key)
    assert code(put(served, "with", "B", Idempotency_Key="k1")) == (422, "idempotency_key_reused")


def test_retry_after_an_update_of_the_match(served: Serving) -> None:
    """The first answer named a version that is not there any more."""
    text = "A storm has closed the northern ferry line, and passengers wait in the terminal for news."
    first = [served.add({"id": id, "text": text}) for id in ("u1", "u2", "u3")]
    served.add({"id": "u1", "text": f"u {TEXTS['B']}"})
    again = served.add({"id": "u3", "text": text})
    assert (again["seq"], again["kind"], again["duplicate_of"]) == (first[2]["seq"], "exact_duplicate", None)


def test_rejected_document_and_deletion_are_repeated_too(served: Serving) -> None:
    key = {"Idempotency-Key": "k2"}
    first, again = (served.client.post("/v1/documents", headers=JSON | key, content=b'{"id": "r"}') for _ in "12")
    assert code(first) == code(again) == (422, "document_rejected") and first.content == again.content
    put(served, "d", "A")
    first = served.client.delete("/v1/documents/d", headers={"Idempotency-Key": "k3"})
    put(served, "d", "B")
    assert served.client.delete("/v1/documents/d", headers={"Idempotency-Key": "k3"}).content == first.content
    assert stored(served, "d") == "B"


@pytest.mark.long
def test_key_of_many_lines_survives_a_kill(tmp_path: Path) -> None:
    lines = "".join(json.dumps({"id": i, "text": f"{i} {TEXTS['A']}"}) + "\n" for i in range(2500))  # two parts
    request = {"headers": {**NDJSON, "Idempotency-Key": "k"}, "content": lines.encode()}
    serving = Serving(tmp_path / "index", "--on-conflict", "update")
    with serving:
        first = serving.client.post("/v1/documents", **request).text
        serving.add({"id": 7, "text": TEXTS["B"]})
        serving.stop(signal.SIGKILL)
        serving.start()
        assert serving.client.post("/v1/documents", **request).text == first
        assert serving.client.get("/v1/documents/7?id_type=json&text=true").json()["text"] == TEXTS["B"]
        serving.stop()
        erasure.erase(tmp_path / "index", everything=True)
        with reading(tmp_path / "index") as store:
            assert not list(store.names(RETRIES))


def test_condition_on_the_version(served: Serving) -> None:
    assert code(put(served, "v", "A", If_Match="*")) == (412, "version_changed")
    first = put(served, "v", "A", If_None_Match="*")
    tag = first.headers["ETag"]
    assert served.client.get("/v1/documents/v").headers["ETag"] == tag == f'"{first.json()["seq"]}"'
    assert code(put(served, "v", "B", If_None_Match="*")) == (412, "version_changed")
    second = put(served, "v", "B", If_Match=f'"99999", {tag}')
    assert second.status_code == 200
    assert code(put(served, "v", "A", If_Match=tag)) == (412, "version_changed")
    assert code(served.client.delete("/v1/documents/v", headers={"If-Match": tag})) == (412, "version_changed")
    assert stored(served, "v") == "B"
    assert served.client.delete("/v1/documents/v", headers={"If-Match": second.headers["ETag"]}).json()["deleted"]
    assert code(put(served, "v", "A", If_Match="17")) == (422, "invalid")
    lines = served.client.post("/v1/documents", headers={**NDJSON, "If-Match": tag}, content=b"")
    assert code(lines) == (422, "invalid")


def test_answers_are_dropped_with_what_is_erased(tmp_path: Path) -> None:
    now = 1e9
    store = Store(tmp_path / "db")
    retries = Retries(store, 2, lambda: now)
    retry = Retry.of("key", "client", b"request")
    retries.add(retry, [b'{"id":"\xc3\xa4"}'])
    facts, _ = retries.take()
    store.write({b"m/" + name.encode(): json.dumps(value).encode() for name, value in facts.items()})
    now += 7199
    retries = Retries(store, 2, lambda: now)
    assert retries.answer(retry) == [b'{"id":"\xc3\xa4"}']
    with pytest.raises(Problem):
        retries.answer(Retry.of("key", "client", b"another request"))
    assert retries.answer(Retry.of("key", "another client", b"request")) is None
    now += 1
    _, dropped = retries.take()
    assert list(dropped.values()) == [None] and retries.answer(retry) is None
    store.close()


async def test_key_on_kafka_sends_once() -> None:
    recent, sent = RecentAnswers(), 0

    async def send() -> Answers:
        nonlocal sent
        await asyncio.sleep(0)
        sent += 1
        if sent == 1:
            raise Problem(503, "Kafka has not acknowledged in time")
        return Answers([b"{}"], {})

    retry = Retry.of("key", "", b"request")
    with pytest.raises(Problem):
        await recent.answer(retry, send)
    first, again = await asyncio.gather(*(recent.answer(retry, send) for _ in "12"))
    assert (sent, first.repeated, again.repeated) == (2, False, True)
    with pytest.raises(Problem):
        await recent.answer(Retry.of("key", "", b"another"), send)


async def test_key_on_kafka_that_is_dropped_under_way_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its size would stay, until there was no room for any answer."""
    monkeypatch.setattr(recent_answers, "MOST_BYTES", 100)
    recent, acknowledged = RecentAnswers(), asyncio.Event()

    async def send() -> Answers:
        return Answers([b"x" * 60], {})

    async def send_late() -> Answers:
        await acknowledged.wait()
        return await send()

    late = [asyncio.create_task(recent.answer(Retry.of(f"late {n}", "", b"a"), send_late)) for n in range(3)]
    await asyncio.sleep(0)
    for key in ("first", "second"):  # the older ones are dropped
        await recent.answer(Retry.of(key, "", b"a"), send)
    acknowledged.set()
    await asyncio.gather(*late)
    retry = Retry.of("last", "", b"a")
    assert [(await recent.answer(retry, send)).repeated for _ in "12"] == [False, True]
