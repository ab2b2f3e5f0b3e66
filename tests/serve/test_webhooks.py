"""Webhooks of a service: in order, at least once, for hours, over restarts, with the trace context of the request."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from support.collector import collecting
from support.commands import run
from support.receivers import receiving
from support.serving import JSON, Serving
from support.waiting import until

from stream_lsh.alerts.receivers import Receiver
from stream_lsh.embedded.alert_journal import AlertJournal
from stream_lsh.embedded.webhook import Answer
from stream_lsh.serve.sender import Sender

TAKEN, REFUSED, FAILED = Answer(True, "status 200"), Answer(False, "status 400"), Answer(False, "status 500", True)


class NoStore:
    """The store of a journal that is never opened again."""

    def named(self, _: str) -> None:
        return None

    def scan(self, _: bytes) -> Iterator[tuple[bytes, bytes]]:
        return iter(())


def raised(journal: AlertJournal, *rules: str, at: int = 1000) -> None:
    """Alerts that were committed at a time, in seconds since 1970."""
    for rule in rules:
        journal.add(json.dumps({"key": f"key-{journal.next}", "rule": rule}).encode())
        journal.take(1000 * at)
        journal.committed()


class Stub:
    """A receiver that gives these answers, and the last one from then on."""

    name = "https://hooks.example.org"

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.keys: list[str] = []

    def post(self, _: bytes, key: str, __: object) -> Answer:
        self.keys.append(key)
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@asynccontextmanager
async def sending(
    journal: AlertJournal, stub: Stub, path: Path, clock: Callable[[], float] = lambda: 1000.0, **given: Any
) -> AsyncIterator[Sender]:
    with ThreadPoolExecutor(1) as pool:
        receiver = Receiver(name="desk", url="https://hooks.example.org", **given)
        sender = Sender(receiver, stub, lambda: journal, path / "desk.json", pool, clock)  # type: ignore[arg-type]
        task = asyncio.create_task(sender.run())
        try:
            yield sender
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def eventually(what: Callable[[], object]) -> None:
    while not what():
        await asyncio.sleep(0.01)


async def test_new_receiver_gets_later_alerts_of_its_rules_in_order(tmp_path: Path) -> None:
    journal, stub = AlertJournal(NoStore()), Stub(TAKEN)  # type: ignore[arg-type]
    raised(journal, "a", "b")
    async with sending(journal, stub, tmp_path, rules=["a"]) as sender:
        raised(journal, "b", "a", "a", "b")
        sender.wake()
        await eventually(lambda: len(stub.keys) == 2 and not sender.described["waiting"])
    raised(journal, "a")
    async with sending(journal, stub, tmp_path, rules=["a"]):
        await eventually(lambda: len(stub.keys) == 3)
    assert stub.keys == ["key-3", "key-4", "key-6"]


async def test_attempts_go_on_after_a_restart(tmp_path: Path) -> None:
    journal, now = AlertJournal(NoStore()), [1000.0]  # type: ignore[arg-type]
    stub = Stub(FAILED, Answer(False, "status 429", True, 120.0), FAILED, TAKEN)
    async with sending(journal, stub, tmp_path, lambda: now[0]) as sender:
        raised(journal, "a")
        sender.wake()
        await eventually(lambda: sender.described["next_attempt"] == 1_001_000)
        now[0] = 1001.0
        sender.wake()
        await eventually(lambda: sender.described["next_attempt"] == 1_121_000)  # Retry-After
    async with sending(journal, stub, tmp_path, lambda: now[0]) as sender:
        assert (sender.described["attempts"], sender.described["next_attempt"]) == (2, 1_121_000)
        for _ in range(3):
            sender.wake()
            await asyncio.sleep(0)
        assert len(stub.keys) == 2
        now[0] = 1121.0
        sender.wake()
        await eventually(lambda: sender.described["next_attempt"] == 1_125_000)
        now[0] = 1125.0
        sender.wake()
        await eventually(lambda: not sender.described["waiting"])
    assert stub.keys == ["key-0"] * 4 and not sender.described["dead_letters"]


@pytest.mark.parametrize(("answer", "age"), [(REFUSED, 0), (FAILED, 12 * 3600)])
async def test_dead_letter_does_not_stop_the_next_alert_and_is_sent_again(
    tmp_path: Path, answer: Answer, age: int
) -> None:
    journal, stub, now = AlertJournal(NoStore()), Stub(answer, TAKEN), [1000.0 + age]  # type: ignore[arg-type]
    async with sending(journal, stub, tmp_path, lambda: now[0]) as sender:
        raised(journal, "a", "b")
        sender.wake()
        await eventually(lambda: not sender.described["waiting"])
        (letter,) = sender.described["dead_letters"]
        assert (letter["said"], letter["attempts"], letter["alert"]["rule"]) == (answer.said, 1, "a")
    async with sending(journal, stub, tmp_path, lambda: now[0]) as sender:
        assert await sender.resend() == 1
        await eventually(lambda: len(stub.keys) == 3 and not sender.described["waiting"])
        assert not sender.described["dead_letters"]
    assert stub.keys == ["key-0", "key-1", "key-0"]


async def test_alerts_that_left_the_journal_are_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    journal, stub = AlertJournal(NoStore(), most=2), Stub(TAKEN)  # type: ignore[arg-type]
    async with sending(journal, stub, tmp_path) as sender:
        raised(journal, "a", "a", "a", "a", "a")
        sender.wake()
        await eventually(lambda: len(stub.keys) == 2)
    assert stub.keys == ["key-3", "key-4"] and "3 alerts left the journal" in caplog.text


RULES = '[[rule]]\nname = "copied"\nkind = "copied"\nby = "herald"\nsimilarity = 0.9\n'


@pytest.mark.long
def test_alerts_of_a_killed_service_are_sent_after_its_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with receiving(lambda n: [400, 503, 503][n] if n < 3 else 204, {"Retry-After": "1"}) as receiver:
        (tmp_path / "rules.toml").write_text(RULES)
        (tmp_path / "hooks.toml").write_text(
            '[[webhook]]\nname = "desk"\nurl_env = "HOOK_URL"\nsecret_env = "HOOK_SECRET"\n'
        )
        monkeypatch.setenv("HOOK_URL", f"{receiver.url}/secret-path")
        monkeypatch.setenv("HOOK_SECRET", "secret of the desk")
        options = ("--source-field", "from", "--time-field", "ts", "--rules", str(tmp_path / "rules.toml"))
        with Serving(tmp_path / "index", *options, "--webhooks", str(tmp_path / "hooks.toml")) as serving:
            for number in range(2):
                for source in ("wire", "herald"):
                    text = " ".join(f"word{number}-{place}" for place in range(10))
                    serving.add({"id": f"{source}-{number}", "text": text, "ts": 1, "from": source})
            until(lambda: len(receiver.got) >= 2)
            serving.stop(signal.SIGKILL)
            serving.start()
            found = serving.client.get("/v1/alerts", params={"limit": 1}).json()
            (newest,) = found["alerts"]
            assert (newest["alert"]["rule"], newest["alert"]["id"]) == ("copied", "herald-1")
            found = serving.client.get("/v1/alerts", params={"cursor": found["next_cursor"], "rule": "copied"}).json()
            assert [alert["alert"]["id"] for alert in found["alerts"]] == ["herald-0"] and found["next_cursor"] is None
            assert serving.client.get("/v1/alerts?rule=another").json()["alerts"] == []
            assert serving.client.get("/v1/alerts?cursor=x").status_code == 400
            until(lambda: not serving.client.get("/v1/webhooks").json()["webhooks"][0]["waiting"])
            (desk,) = serving.client.get("/v1/webhooks").json()["webhooks"]
            assert desk["url"] == receiver.url
            assert [letter["alert"]["id"] for letter in desk["dead_letters"]] == ["herald-0"]
            metrics = serving.client.get("/metrics").text
            assert 'stream_lsh_serve_webhook_dead_letters{webhook="desk"} 1.0' in metrics
            assert 'stream_lsh_serve_webhook_waiting_alerts{webhook="desk"} 0.0' in metrics
            resent = run("alerts", "resend", "desk", "--index", serving.state)
            assert "1 dead letter of desk sent again" in resent.stderr
            until(lambda: receiver.keys[-1] == receiver.keys[0])
            tested = serving.client.post("/v1/alerts/test").json()
            assert tested == {"webhooks": [{"name": "desk", "taken": True, "said": "status 204"}]}
            assert serving.client.post("/v1/alerts/test?webhook=nobody").status_code == 404
            assert "secret" not in serving.stop()[1]
    assert json.loads(receiver.got[-1][1])["rule"] == "test"
    assert all("X-Stream-Lsh-Signature" in headers for headers, _ in receiver.got)
    assert "no service has the index" in run("alerts", "resend", "desk", "--index", tmp_path / "index", code=3).stderr


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('[[webhook]]\nname = "desk"', "give one of url and url_env"),
        ('[[webhook]]\nname = "a b"\nurl = "http://x"', "letters, digits, dots"),
        ('[[webhook]]\nname = "desk"\nurl = "ftp://x"', "does not begin with http"),
        ('[[webhook]]\nname = "desk"\nurl = "http://x"\nrules = ["other"]', "there is no rule 'other'"),
        ('[[webhook]]\nname = "desk"\nurl_env = "NOTHING"', "no such environment variable"),
        ('[[hook]]\nname = "desk"', "there is no 'hook'"),
    ],
)
def test_wrong_receiver_is_said_at_once(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "rules.toml").write_text(RULES)
    (tmp_path / "hooks.toml").write_text(text)
    options = ("--source-field", "from", "--time-field", "ts", "--port", "0", "--rules", tmp_path / "rules.toml")
    found = run("serve", "--index", tmp_path / "index", *options, "--webhooks", tmp_path / "hooks.toml", code=2)
    assert says in found.stderr


COPIED = '[[rule]]\nname = "copied"\nkind = "copied"\nsource = "wire"\nby = "herald"\nsimilarity = 0.5\n'
TRACE, PARENT = 32 * "a", 16 * "b"


def posted(serving: Serving, source: str) -> None:
    headers = {**JSON, "traceparent": f"00-{TRACE}-{PARENT}-01", "tracestate": "desk=1"} if source == "herald" else JSON
    document = {"id": source, "text": " ".join(f"word{n}" for n in range(20)), "ts": 1, "from": source}
    assert serving.client.post("/v1/documents", headers=headers, content=json.dumps(document)).status_code == 200


@pytest.mark.parametrize("on", [pytest.param(False, marks=pytest.mark.long), True])
def test_trace_of_a_request_reaches_the_webhook(on: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rules.toml").write_text(COPIED)
    given: list[Any] = ["--source-field", "from", "--time-field", "ts", "--rules", str(tmp_path / "rules.toml")]
    with collecting() as collector, receiving(lambda n: 503 if n == 0 else 204) as receiver:
        for name, value in collector.environment.items() if on else ():
            monkeypatch.setenv(name, value)
        hooks = tmp_path / "hooks.toml"
        hooks.write_text(f'[[webhook]]\nname = "desk"\nurl = "{receiver.url}"\n')
        with Serving(tmp_path / "index", *given, "--webhooks", str(hooks)) as serving:
            for source in ("wire", "herald"):
                posted(serving, source)
            until(lambda: receiver.got)
            serving.stop()
            serving.start()
            until(lambda: len(receiver.got) >= 2)
            serving.stop()
    sent = [headers["traceparent"].split("-") for headers, _ in receiver.got]
    assert {headers["tracestate"] for headers, _ in receiver.got} == {"desk=1"}
    assert {trace for _, trace, _, _ in sent} == {TRACE}
    if not on:
        assert {parent for _, _, parent, _ in sent} == {PARENT} and not collector.spans
        return
    assert {parent for _, _, parent, _ in sent} == {span.id for span in collector.named("webhook")}
    assert {span.parent for span in collector.named("webhook")} == {PARENT}
    requests = collector.named("POST /v1/documents")
    assert [(span.trace == TRACE, span.parent) for span in requests] == [(False, ""), (True, PARENT)]
    assert [span.links for span in collector.named("write")] == [(), (f"{TRACE}-{PARENT}",)]
