"""The trace context of a request goes to the webhook of its alert, also over a restart, and spans to a collector."""

import json
from pathlib import Path
from typing import Any

import pytest
from support.collector import collecting
from support.receivers import receiving
from support.serving import JSON, Serving
from support.waiting import until

RULES = '[[rule]]\nname = "copied"\nkind = "copied"\nsource = "wire"\nby = "herald"\nsimilarity = 0.5\n'
TRACE, PARENT = 32 * "a", 16 * "b"


def post(serving: Serving, source: str) -> None:
    headers = {**JSON, "traceparent": f"00-{TRACE}-{PARENT}-01", "tracestate": "desk=1"} if source == "herald" else JSON
    document = {"id": source, "text": " ".join(f"word{n}" for n in range(20)), "ts": 1, "from": source}
    assert serving.client.post("/v1/documents", headers=headers, content=json.dumps(document)).status_code == 200


@pytest.mark.parametrize("on", [pytest.param(False, marks=pytest.mark.long), True])
def test_trace_of_a_request_reaches_the_webhook(on: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rules.toml").write_text(RULES)
    given: list[Any] = ["--source-field", "from", "--time-field", "ts", "--rules", str(tmp_path / "rules.toml")]
    with collecting() as collector, receiving(lambda n: 503 if n == 0 else 204) as receiver:
        for name, value in collector.environment.items() if on else ():
            monkeypatch.setenv(name, value)
        hooks = tmp_path / "hooks.toml"
        hooks.write_text(f'[[webhook]]\nname = "desk"\nurl = "{receiver.url}"\n')
        with Serving(tmp_path / "index", *given, "--webhooks", str(hooks)) as serving:
            for source in ("wire", "herald"):
                post(serving, source)
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
