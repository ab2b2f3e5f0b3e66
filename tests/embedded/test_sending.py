"""Alerts sent to receivers that hang, fail or redirect, by senders that are killed: at least once, in order."""

import hashlib
import hmac
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from support import commands
from support.receivers import receiving

from stream_lsh.cli import main
from stream_lsh.embedded.sending import Courier, Journal, Sent, pause, send
from stream_lsh.embedded.webhook import Webhook, retry_after
from stream_lsh.errors import InputError, OutputError, StoreError, UsageError

SECRET = "a secret that nobody may see"


def line(number: int) -> bytes:
    return json.dumps({"key": f"{number:032x}", "rule": "spreads", "id": "\ud800 é"}).encode() + b"\n"


def keys(*numbers: int) -> list[str]:
    return [f"{number:032x}" for number in numbers]


@pytest.fixture
def alerts(tmp_path: Path) -> Path:
    (tmp_path / "alerts.jsonl").write_bytes(b"".join(map(line, range(4))))
    return tmp_path / "alerts.jsonl"


SHORT = 0.3  # seconds for an answer, where none comes


def sent(alerts: Path, url: str, attempts: int = 3, timeout: float = 60.0, slept: list[float] | None = None) -> Sent:
    """Everything that is there; nobody waits between attempts."""
    sleep: Callable[[float], None] = slept.append if slept is not None else lambda _: None
    with Journal(alerts.parent / "position") as journal:
        webhook = Webhook(url + "/hook?token=t", SECRET.encode(), timeout)
        courier = Courier(webhook, alerts.parent / "dead", attempts, sleep=sleep)
        send(alerts, courier, journal, until_end=True)
        return courier.sent


def dead(alerts: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (alerts.parent / "dead").read_bytes().splitlines()]


def test_each_once_signed_and_in_order(alerts: Path) -> None:
    begun = int(time.time())
    with receiving() as receiver:
        assert sent(alerts, receiver.url) == Sent(4, 0)
        assert sent(alerts, receiver.url) == Sent(0, 0)
        with alerts.open("ab") as file:
            file.write(line(4) + line(5)[:10])
        assert sent(alerts, receiver.url) == Sent(1, 0)  # half a line is none yet
    assert receiver.keys == keys(0, 1, 2, 3, 4)
    for number, (headers, body) in enumerate(receiver.got):
        assert body + b"\n" == line(number)
        sent_at, signature = re.fullmatch(r"t=(\d+),v1=(\w+)", headers["X-Stream-Lsh-Signature"]).groups()  # type: ignore[union-attr]
        assert signature == hmac.new(SECRET.encode(), f"{sent_at}.".encode() + body, hashlib.sha256).hexdigest()
        assert begun <= int(sent_at) < begun + 300
        assert headers["Content-Type"] == "application/json"
    assert not (alerts.parent / "dead").exists()


@pytest.mark.parametrize("does", [500, 503, 408, 425, 429, "close", "nonsense", "hang", "drip"])
def test_what_fails_is_tried_again_on_a_fixed_schedule(alerts: Path, does: int | str) -> None:
    slept: list[float] = []
    silent = does in ("hang", "drip")
    with receiving(lambda n: does if n < 2 else 200) as receiver:
        assert sent(alerts, receiver.url, 20, SHORT if silent else 60.0, slept) == Sent(4, 0)
    assert receiver.keys[:3] == keys(0, 0, 0) and slept[:2] == [1.0, 2.0]
    assert list(dict.fromkeys(receiver.keys)) == keys(0, 1, 2, 3)
    if not silent:  # on a machine that is busy, an answer may be too late
        assert receiver.keys == keys(0, 0, 0, 1, 2, 3) and len(slept) == 2


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("120", 120), ("Thu, 01 Jan 2026 00:10:00 GMT", 600), ("Wed, 31 Dec 2025 00:00:00 GMT", 0), ("soon", 0),
        ("9" * 30, 86_400), ("-5", 0), (None, 0),
    ],
)  # fmt: skip
def test_retry_after_has_seconds_or_a_date(value: str | None, seconds: float) -> None:
    assert retry_after(value, datetime(2026, 1, 1, tzinfo=UTC).timestamp()) == seconds


def test_retry_after_is_followed(alerts: Path) -> None:
    slept: list[float] = []
    with receiving(lambda n: 429 if n == 0 else 200, {"Retry-After": "120"}) as receiver:
        assert sent(alerts, receiver.url, slept=slept) == Sent(4, 0)
    assert slept == [120.0]


def test_the_schedule_ends_at_five_minutes() -> None:
    assert [pause(attempt) for attempt in range(1, 12)] == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]


@pytest.mark.parametrize("does", [500, "hang"])
def test_a_final_failure_is_a_dead_letter_and_the_next_alert_is_sent(alerts: Path, does: int | str) -> None:
    silent = does == "hang"
    with receiving(lambda n: does if n < 3 else 200) as receiver:
        sent(alerts, receiver.url, timeout=SHORT if silent else 60.0)
    assert receiver.keys[:4] == keys(0, 0, 0, 1) and receiver.keys[-1:] == keys(3)
    letter = dead(alerts)[0]
    assert (letter["key"], letter["attempts"], letter["alert"]) == (keys(0)[0], 3, json.loads(line(0)))
    assert letter["reason"] == ("no answer within 0.3 s" if silent else "status 500")


@pytest.mark.parametrize("does", [301, 302, 307, 308, 400, 401, 404, 410])
def test_what_is_refused_or_redirected_is_not_tried_again(alerts: Path, does: int) -> None:
    with receiving(lambda n: does if n == 1 else 200) as receiver:
        assert sent(alerts, receiver.url) == Sent(3, 1)
    assert receiver.keys == keys(0, 1, 2, 3)  # and nobody went elsewhere
    (letter,) = dead(alerts)
    assert letter["key"] == keys(1)[0] and letter["reason"].startswith(f"status {does}")


def test_a_receiver_that_is_not_there(alerts: Path) -> None:
    with receiving() as receiver:
        pass
    assert sent(alerts, receiver.url) == Sent(0, 4)
    assert {letter["reason"] for letter in dead(alerts)} == {"Connection refused"}


def test_a_host_that_is_no_name_is_a_failure_as_others() -> None:
    answer = Webhook("http://a..b", None, 60.0).post(b"{}", "key")
    assert (answer.taken, answer.again) == (False, True) and "idna" in answer.said


def test_half_a_line_of_the_position_or_of_the_dead_letters_is_written_again(alerts: Path) -> None:
    with receiving(lambda _: 400) as receiver:
        sent(alerts, receiver.url)
        for name in ("position", "dead"):
            path = alerts.parent / name
            path.write_bytes(path.read_bytes()[:-7])
        sent(alerts, receiver.url)
    assert receiver.keys == keys(0, 1, 2, 3, 3)
    assert [letter["key"] for letter in dead(alerts)] == keys(0, 1, 2, 3)


def test_another_file_is_not_sent_from_the_old_position(alerts: Path) -> None:
    with receiving() as receiver:
        sent(alerts, receiver.url)
        whole = alerts.read_bytes()
        alerts.write_bytes(whole.replace(b"0003", b"0009") + line(4))
        with pytest.raises(InputError, match=r"is not the file that was sent before .* remove \S*position"):
            sent(alerts, receiver.url)
        alerts.write_bytes(line(0))
        with pytest.raises(InputError, match="is shorter than what was sent of it"):
            sent(alerts, receiver.url)
        alerts.write_bytes(whole + b"no alert\n")
        with pytest.raises(InputError, match=f"at byte {len(whole)} there is no alert"):
            sent(alerts, receiver.url)
        alerts.unlink()
        with pytest.raises(InputError, match="is not there: name the file that dedup --alerts writes"):
            sent(alerts, receiver.url)
    assert receiver.keys == keys(0, 1, 2, 3)


def test_a_file_that_is_cut_and_written_again_is_waited_for(alerts: Path) -> None:
    """A run that was killed goes on: its outputs are cut back to its last commit."""
    whole, reported, steps = alerts.read_bytes(), list[str](), 0

    def step(_: float) -> None:
        nonlocal steps
        steps += 1
        if steps == 1:
            alerts.write_bytes(whole[: len(line(0))])
        elif steps == 3:
            alerts.write_bytes(whole + line(4))
        elif steps == 4:
            raise KeyboardInterrupt

    with receiving() as receiver, Journal(alerts.parent / "position") as journal:
        webhook = Webhook(receiver.url, None, 60.0)
        with pytest.raises(KeyboardInterrupt):
            send(alerts, Courier(webhook, alerts.parent / "dead", 3, reported.append, step), journal)
    assert receiver.keys == keys(0, 1, 2, 3, 4)
    assert "X-Stream-Lsh-Signature" not in receiver.got[0][0]
    assert len(reported) == 1 and "waiting until the run that writes it has come so far again" in reported[0]


def test_one_sender_a_position(alerts: Path) -> None:
    with (
        Journal(alerts.parent / "position"),
        pytest.raises(StoreError, match=r"another process sends by .* --position"),
    ):
        Journal(alerts.parent / "position")
    for said in (alerts.read_bytes(), b"half a line", b"x" * 100_000, b'{"offset":0}\n'):
        other = alerts.parent / "other"
        other.write_bytes(said)
        with pytest.raises(StoreError, match="is no position of a sender of alerts"):
            Journal(other)
        assert other.read_bytes() == said
    (alerts.parent / "dead").write_bytes(b"somebody else's")
    with receiving(lambda _: 400) as receiver, pytest.raises(OutputError, match="has no dead letters in it"):
        sent(alerts, receiver.url)
    assert (alerts.parent / "dead").read_bytes() == b"somebody else's"
    with pytest.raises(OutputError, match="cannot write"):
        Journal(alerts.parent / "none" / "position")


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("ftp://host/x", "does not begin with http://HOST or https://HOST"),
        ("https:///x", "does not begin with"),
        ("http://host:port/x", "is none"),
        ("http://user:password@host/x", "has a user or a password in it"),
        ("http://host/a b", "has characters"),
        ("http://host/\r\nX: y", "has characters|is none"),
    ],
)
def test_urls_that_cannot_be_used(url: str, said: str) -> None:
    with pytest.raises(UsageError, match=said) as error:
        Webhook(url, None, 1)
    assert "password@" not in str(error.value)


def test_the_command_shows_no_secret(alerts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK_SECRET", SECRET)
    with receiving(lambda n: 400 if n else 200) as receiver:
        monkeypatch.setenv("HOOK_URL", f"{receiver.url}/hidden?token=hidden")
        options = "--url-env HOOK_URL --secret-env HOOK_SECRET --until-end"
        done = CliRunner().invoke(main, ["alerts", "send", str(alerts), *options.split()])
    assert done.exit_code == 0, done.output
    assert f"1 alert sent to {receiver.url}, 3 dead letters" in done.stderr
    files = b"".join(path.read_bytes() for path in alerts.parent.iterdir() if path != alerts)
    assert "hidden" not in done.output and SECRET not in done.output
    assert b"hidden" not in files and SECRET.encode() not in files
    assert {path.name for path in alerts.parent.iterdir()} == {
        "alerts.jsonl", "alerts.jsonl.sent", "alerts.jsonl.dead-letters"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "name the receiver with --url, or with --url-env"),
        (["--url", "http://a", "--url-env", "A"], "name the receiver with --url, or with --url-env"),
        (["--url", "http://a", "--position", "ALERTS"], "--position and the input .* are the same file"),
        (["--url", "http://a", "--dead-letters", "p", "--position", "p"], "are the same file, p: give each a file"),
        (["--url-env", "NOT_THERE"], "--url-env NOT_THERE: there is no such environment variable"),
        (["--url", "http://a", "--secret-env", "NOT_THERE"], "--secret-env NOT_THERE: there is no such"),
    ],
)
def test_what_the_command_needs(alerts: Path, arguments: list[str], said: str) -> None:
    given = [word.replace("ALERTS", str(alerts)) for word in arguments]
    assert re.search(said, commands.run("alerts", "send", str(alerts), *given, code=2).stderr)


def test_a_sender_that_is_killed_continues(alerts: Path) -> None:
    """Killed while a receiver that hangs has the third alert: that one comes again, and no other."""
    command = [sys.executable, "-m", "stream_lsh.cli", "alerts", "send", str(alerts), "--url"]
    with receiving(lambda n: "hang" if n == 2 else 200) as receiver:
        with subprocess.Popen([*command, receiver.url], env=os.environ) as process:
            while len(receiver.got) < 3:
                assert process.poll() is None
                time.sleep(0.01)
            process.kill()
        assert subprocess.run([*command, receiver.url, "--until-end"], check=False).returncode == 0
    assert receiver.keys == keys(0, 1, 2, 2, 3)
