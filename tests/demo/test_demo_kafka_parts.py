"""The demo on Kafka, without Kafka: its feed, its counts, its settings, and options that do not go together."""

import json
import socket
from itertools import pairwise
from pathlib import Path

import pytest
from click.testing import CliRunner
from support import commands

from stream_lsh.alerts.rules import read_rules
from stream_lsh.cli import main
from stream_lsh.demo.feed import feed_lines
from stream_lsh.demo.findings import Findings
from stream_lsh.demo.on_kafka import connection, news, settings_in
from stream_lsh.errors import UsageError
from stream_lsh.kafka.settings import KafkaSettings


def test_the_feed_has_the_news_and_one_spreading_story_after_the_other() -> None:
    items = list(news(1500, 3))
    assert len(items) == 1500 and items == list(news(1500, 3))
    assert all(one.ts <= other.ts for one, other in pairwise(items))
    plain = [line.rstrip(b"\n") for line in feed_lines(1500, 3)]
    lines = [item.line for item in items]
    of_the_feed = [line for line in lines if line in set(plain)]
    assert of_the_feed == plain[: len(of_the_feed)]
    spreading = [json.loads(line) for line in lines if line not in set(plain)]
    assert {record["id"].rpartition("-")[2] for record in spreading} >= {"0", "1"}
    assert any(record.get("deleted") for record in spreading)
    written = [record["id"] for record in spreading if "text" in record]
    assert len(set(written)) < len(written), "some are corrected"


def pair(newer: str) -> bytes:
    return json.dumps({"newer": newer, "older": "a", "similarity": 0.875}).encode()


def test_some_pairs_are_shown_and_all_are_counted() -> None:
    findings = Findings(pairs=1)
    assert findings.counts() is None
    findings.send("b", "A title")
    assert findings.take("pairs", pair("b"), 7.25) == "pair   0.88  b is like a: A title"
    assert findings.take("pairs", pair("c"), 8) is None
    assert findings.counts() == "0 verdicts, 2 pairs, 0 groups, 0 alerts"
    assert findings.counts() is None, "nothing is new"
    assert findings.take("pairs", pair("c"), 9) == "pair   0.88  c is like a"
    row = {"group": 5, "representative": {"id": "b", "seq": 1}, "total_members": 10, "sources": 7}
    for kind in ("unique", "near_duplicate", "near_duplicate"):
        assert findings.take("verdicts", json.dumps({"kind": kind}).encode(), 9) is None
    assert findings.take("groups", json.dumps(row).encode(), 9) is None
    alert = json.dumps({"rule": "spreads", "members": 10, "group": row}).encode()
    assert findings.take("alerts", alert, 9) == "alert  spreads: 10 documents from 7 sources in group 5: A title"
    findings.sent = 3
    assert findings.summary(60).splitlines() == [
        "documents  3 sent in 1 min 00 s",
        "verdicts   3: 2 near duplicate, 1 unique",
        "pairs      3; the first 7.2 s after the start",
        "groups     1, the largest with 10 documents from 7 sources",
        "alerts     1",
    ]


def test_only_the_connection_is_read_from_variables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("STREAM_LSH_BOOTSTRAP_SERVERS", "kafka-1:9092")
    monkeypatch.setenv("STREAM_LSH_THRESHOLD", "0.5")
    monkeypatch.setenv("STREAM_LSH_SECURITY_PROTOCOL", "SASL_SSL")
    monkeypatch.setenv("STREAM_LSH_SASL_MECHANISM", "PLAIN")
    monkeypatch.setenv("STREAM_LSH_SASL_USERNAME", "u")
    with pytest.raises(UsageError, match="needs sasl_password"):
        settings_in(tmp_path, connection())
    monkeypatch.setenv("STREAM_LSH_SASL_PASSWORD", "secret")
    settings = settings_in(tmp_path, {**connection(), "topic_prefix": "p"})
    assert (settings.threshold, settings.bootstrap_servers) == (KafkaSettings().threshold, "kafka-1:9092")
    assert settings.sasl_password is not None
    file = tmp_path / "settings.toml"
    assert "secret" not in file.read_text()
    for name in ("STREAM_LSH_BOOTSTRAP_SERVERS", "STREAM_LSH_THRESHOLD"):
        monkeypatch.delenv(name)
    assert KafkaSettings.load(file) == settings, "with the password from its variable"
    assert settings.alerts is not None and [rule.name for rule in read_rules(settings.alerts)] == ["spreads"]


@pytest.mark.parametrize("more", [["--kafka", "--serve"], ["--kafka", "--feed"], ["--bootstrap-servers", "a:1"]])
def test_options_that_do_not_go_together(more: list[str]) -> None:
    assert "--kafka" in commands.run("demo", *more, code=2).stderr


def test_a_port_that_is_taken_ends_it_before_anything_starts() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        result = CliRunner().invoke(main, ["demo", "--kafka", "--port", str(port)])
    assert result.exit_code == 5 and f"port {port}" in result.stderr
    assert "Kafka 4" not in result.stderr
