"""The command lines of worker, health and reindex, as far as they go without a broker."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from support.listening import Quiet, listening

from stream_lsh.cli import main
from stream_lsh.cli.kafka.reindex import _options, reindex, switching
from stream_lsh.cli.kafka.worker import roles_of
from stream_lsh.errors import UsageError
from stream_lsh.kafka import names
from stream_lsh.kafka.run import logs
from stream_lsh.kafka.settings import ROLES, KafkaSettings
from stream_lsh.kafka.tools.reindex import target


@pytest.fixture(autouse=True)
def as_we_were(monkeypatch: pytest.MonkeyPatch, no_variables: None) -> None:
    """No settings from outside, and the log of the tests stays as it is."""
    monkeypatch.setattr(logs, "set_up", lambda level, process: None)


def run(*words: str, **variables: str) -> Any:
    return CliRunner(env={f"STREAM_LSH_{name.upper()}": value for name, value in variables.items()}).invoke(main, words)


@contextmanager
def answering(status: int, report: object) -> Iterator[int]:
    """A process that says how it is; `report` may be a function of the port."""

    class Answer(Quiet):
        def do_GET(self) -> None:
            found = report(self.server.server_port) if callable(report) else report  # type: ignore[attr-defined]
            body = json.dumps(found).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    with listening(Answer) as url:
        yield int(url.rpartition(":")[2])


def health_report(live: bool = True, *ports: int, role: str = "match") -> dict[str, object]:
    seconds = {"started": 75.2, "committed": 3.4, "idle": None}
    return {"live": live, "roles": {role: {"live": live, "seconds_since": seconds}}, "ports": ports}


def test_roles() -> None:
    plain, grouped = KafkaSettings(), KafkaSettings(groups=True)
    assert roles_of("forward, sign,", plain) == ("sign", "forward")
    assert roles_of(",".join(ROLES), plain) == roles_of(None, plain) == ROLES
    assert roles_of(None, grouped) == (*ROLES, "group") == tuple(names.NEEDS)
    for text in ("", ",", "sign,sing"):
        with pytest.raises(UsageError, match="there are sign, sequence, match, judge, forward"):
            roles_of(text, plain)
    with pytest.raises(UsageError, match="group is one with groups = true"):
        roles_of("group", plain)


def test_wrong_command_lines_of_a_worker() -> None:
    result = run("kafka", "worker", "--roles", "sing")
    assert result.exit_code == 2 and "there is no role 'sing'" in result.output
    result = run("kafka", "worker", "--http-port", "65535")
    assert result.exit_code == 2 and "need a port each" in result.output
    result = run("kafka", "worker", "--groups", "--alerts", "missing.toml")
    assert result.exit_code == 2 and "rules file missing.toml: No such file" in result.output
    result = run("kafka", "worker", "--shards", "0")
    assert result.exit_code == 2 and "shards" in result.output
    result = run("kafka", "worker", "--shards", "2", "--decision-lag", "1000")
    assert result.exit_code == 2 and "lower frame_documents from 1000 to 500" in result.output


def test_health_of_a_live_worker() -> None:
    with answering(200, health_report()) as port:
        result = run("health", "--port", str(port))
        assert result.exit_code == 0
        assert result.output == f"match (port {port}): live, last commit 3.4 s ago, started 1 min 15 s ago\n"
        assert run("health", "--quiet", http_port=str(port)).output == ""


def test_health_asks_all_processes() -> None:
    with answering(200, health_report(role="sign")) as other:
        with answering(200, lambda port: health_report(True, port, other)) as port:
            result = run("health", "--port", str(port))
            assert result.exit_code == 0 and f"sign (port {other}): live" in result.output
        with answering(503, health_report(False)) as dead:
            with answering(200, lambda port: health_report(True, port, other, dead)) as port:
                result = run("health", "--port", str(port))
            assert result.exit_code == 1
            assert f"match (port {dead}): not live" in result.output and "sign" in result.output


def test_health_of_what_is_not_there() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # ours, but nobody listens
        result = run("health", "--port", str(held.getsockname()[1]))
    assert result.exit_code == 1 and "no answer" in result.output and "refused" in result.output
    with answering(200, ["something else"]) as port:
        result = run("health", "--port", str(port))
    assert result.exit_code == 1 and "is not a worker" in result.output


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{}", "IncompleteRead(2 bytes read, 98 more expected)"),
        (b"HTTP/1.1 503 Oh\r\nContent-Length: 100\r\n\r\n{}", "IncompleteRead(2 bytes read, 98 more expected)"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "BadStatusLine('SSH-2.0-OpenSSH_9.2"),
        (b"", "Remote end closed connection"),
    ],
)
def test_health_of_what_does_not_speak_http(answer: bytes, reason: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        result = run("health", "--port", str(server.getsockname()[1]))
        thread.join(60)
    assert result.exit_code == 1
    assert "no answer from http://127.0.0.1:" in result.output and reason in result.output


def test_reindex_without_a_broker() -> None:
    result = run("kafka", "reindex", "--to-prefix", "two", "--bootstrap-servers", "127.0.0.1:1")
    assert result.exit_code == 6 and "no answer from Kafka" in result.output
    result = run("kafka", "reindex", "--to-prefix", "stream-lsh")
    assert result.exit_code == 2 and "give a new one" in result.output


def test_reindex_says_how_to_switch() -> None:
    words = "--to-prefix two --shards 4 --compare-with all --text-field title --text-field text --no-bag"
    words += " --topic-prefix one --replication-factor 3 --retention-hours 5 --quiet"
    with reindex.make_context("reindex", words.split()) as context:
        assert isinstance(context, click.Context)
        options = _options(context)
    assert sorted(options.split(" --")) == [
        "", "compare-with all", "no-bag", "retention-hours 5", "shards 4", "text-field text", "text-field title"
    ]  # fmt: skip
    old = KafkaSettings(topic_prefix="one", data_folder=Path("data"))
    lines = switching(old, target(old, "two"), options)
    command = lines[1].split()
    assert command[:3] == ["stream-lsh", "kafka", "worker"]
    assert run(*command[1:], "--bootstrap-servers", "127.0.0.1:1", "-X", "give_up_seconds=0.1").exit_code == 6
    assert "two.verdicts" in lines[2] and "two.groups" not in lines[2] and "not one.documents" in lines[3]
    grouping = old.model_copy(update={"groups": True})
    assert "two.groups, two.alerts" in switching(grouping, target(grouping, "two"), options)[2]
