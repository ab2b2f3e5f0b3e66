"""A worker with stages that do nothing: its processes are real, and are killed, stopped and failed."""

import asyncio
import errno
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from aiokafka import errors
from support.kafka.brokers import is_running
from support.long_form import pairwise, rotating
from support.waiting import PATIENCE, until

from stream_lsh.cli.health import ask
from stream_lsh.errors import BrokerError, UsageError
from stream_lsh.kafka.run.process import Job, command, dump, explained, load, run_roles
from stream_lsh.kafka.run.supervisor import plan, wait_for_kafka
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.kafka.tools.broker import free_port

Start = Callable[..., "Worker"]
SIGNALS = signal.SIGTERM, signal.SIGINT


class Worker:
    """A worker as a process; what its stages did is in the folder."""

    def __init__(
        self, folder: Path, processes: str, roles: tuple[str, ...], port: int | None, together: bool
    ) -> None:  # fmt: skip
        self.folder = folder
        environment = dict(os.environ)
        if port is not None:
            environment["PLAY_PORT"] = str(port)
        if together:
            environment["PLAY_TOGETHER"] = "1"
        self.errors = (folder / "stderr").open("w+")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "support.kafka.worker_play", str(folder), processes, *roles],
            stderr=self.errors, env=environment,
        )  # fmt: skip

    def notes(self, what: str) -> list[tuple[str, int]]:
        """Role and process of each note of this kind."""
        path = self.folder / "log"
        lines = [line.split(maxsplit=3) for line in path.read_text().splitlines()] if path.exists() else []
        assert all(line[3] == "swordfish" for line in lines)  # the secret has come along
        return [(line[0], int(line[1])) for line in lines if line[2] == what]

    def started(self, number: int) -> dict[str, int]:
        """The latest process of each role, when so many runs have begun."""
        until(lambda: len(self.notes("started")) >= number)
        return dict(self.notes("started"))

    def order(self, role: str, what: str) -> None:
        (self.folder / f"{role}.new").write_text(what)
        (self.folder / f"{role}.new").rename(self.folder / role)

    def end(self) -> int:
        return self.process.wait(PATIENCE)

    def said(self) -> str:
        return (self.folder / "stderr").read_text()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Worker]]:
    workers: list[Worker] = []

    def begin(
        processes: str = "roles", *roles: str, port: int | None = None, together: bool = False
    ) -> Worker:  # fmt: skip
        workers.append(Worker(tmp_path, processes, roles or ("sequence", "judge", "forward"), port, together))
        return workers[-1]

    yield begin
    for worker in workers:
        for pid in [worker.process.pid, *(pid for _, pid in worker.notes("started"))]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        worker.process.wait()
        worker.errors.close()


@pytest.mark.parametrize(
    ("processes", "number"), [("one", signal.SIGINT), *pairwise(("one", "groups", "roles"), SIGNALS)]
)
def test_a_signal_drains(start: Start, processes: str, number: int) -> None:
    worker = start(processes)
    found = worker.started(3)
    assert len(set(found.values())) == (3 if processes == "roles" else 1)
    assert (worker.process.pid in found.values()) == (processes != "roles")
    worker.process.send_signal(number)
    assert worker.end() == 0
    assert sorted(role for role, _ in worker.notes("drained")) == ["forward", "judge", "sequence"]
    assert not any(is_running(pid) for pid in found.values())
    assert "swordfish" not in worker.said()


@pytest.mark.long
def test_ctrl_c_on_the_whole_group_is_one_signal(start: Start) -> None:
    worker = start()
    found = worker.started(3)
    for pid in (*found.values(), worker.process.pid):
        os.kill(pid, signal.SIGINT)
    assert worker.end() == 0
    assert len(worker.notes("drained")) == 3


@pytest.mark.long
def test_a_role_restarts_in_another_process_and_after_a_failure_in_the_same(start: Start) -> None:
    worker = start()
    before = worker.started(3)
    os.kill(before["judge"], signal.SIGKILL)
    after = worker.started(4)
    assert after["judge"] != before["judge"] and after["forward"] == before["forward"]
    assert "the process of judge was killed by SIGKILL" in worker.said()
    os.kill(after["judge"], signal.SIGTERM)
    again = worker.started(5)
    assert again["judge"] != after["judge"]
    assert [role for role, _ in worker.notes("drained")] == ["judge"]
    worker.order("judge", "fail")
    assert worker.started(6) == again
    assert "WARNING judge: ConnectionResetError: the line is cut; beginning again" in worker.said()
    worker.process.kill()  # and the death of the supervisor ends all
    until(lambda: not any(is_running(pid) for pid in again.values()))


@pytest.mark.parametrize("processes", ["one", *rotating(["roles", "groups"], 1)])
def test_only_the_role_stops_that_cannot_go_on(start: Start, processes: str) -> None:
    worker = start(processes)
    before = worker.started(3)
    worker.order("forward", "give up")
    until(lambda: "forward has stopped: the shelf is empty; fill it" in worker.said())
    worker.order("judge", "fail")
    assert worker.started(4)["judge"] == before["judge"]  # a new run in the same process: it works on
    assert worker.process.poll() is None and not worker.notes("drained")
    worker.process.terminate()
    assert worker.end() == 3
    assert worker.said().rstrip().endswith("stream-lsh: the shelf is empty; fill it")
    assert sorted(role for role, _ in worker.notes("drained")) == ["judge", "sequence"]


@pytest.mark.long
@pytest.mark.parametrize("processes", ["one", "roles"])
def test_a_worker_ends_when_its_last_role_has_stopped(start: Start, processes: str) -> None:
    worker = start(processes)
    found = worker.started(3)
    for role in ("judge", "forward"):
        worker.order(role, "give up")
        until(lambda role=role: f"{role} has stopped" in worker.said())
    worker.order("sequence", "give up")
    assert worker.end() == 3
    assert not worker.notes("drained") and len(worker.notes("started")) == 3
    assert not any(is_running(pid) for pid in found.values())


@pytest.mark.long
@pytest.mark.parametrize(
    ("processes", "what"), [("one", "no broker"), *pairwise(("one", "roles"), ("together", "no broker"))]
)
def test_what_ends_all(start: Start, processes: str, what: str) -> None:
    """A Kafka that is away, which is away for all; and any failure, where what is done needs all roles."""
    worker = start(processes, together=what == "together")
    found = worker.started(3)
    worker.order("judge", "give up" if what == "together" else what)
    assert worker.end() == (3 if what == "together" else 6)
    assert sorted(role for role, _ in worker.notes("drained")) == ["forward", "sequence"]
    assert not any(is_running(pid) for pid in found.values())


@pytest.mark.long
def test_a_crash_is_logged_and_retried_a_few_times(start: Start) -> None:
    worker = start("roles", "judge", "forward")
    for number in range(5):
        worker.started(2 + number)
        worker.order("judge", "crash")
    assert worker.end() == 1
    assert worker.said().count("KeyError: 'a bug'") == 5
    assert "the process of judge failed 5 times in a row" in worker.said()
    assert [role for role, _ in worker.notes("drained")] == ["forward"]


def test_a_crash_of_a_single_process_ends_it(start: Start) -> None:
    worker = start("one")
    worker.started(3)
    worker.order("judge", "crash")
    assert worker.end() == 1
    assert "KeyError: 'a bug'" in worker.said()
    assert len(worker.notes("drained")) == 2


@pytest.mark.parametrize(
    ("processes", "number"),
    [("one", signal.SIGINT), *(pytest.param(*case, marks=pytest.mark.long)
                               for case in (("one", signal.SIGTERM), *(("roles", number) for number in SIGNALS)))],
)  # fmt: skip
def test_a_second_signal_does_not_wait(start: Start, processes: str, number: int) -> None:
    """Also a single process ends, which cannot look at its events any more."""
    worker = start(processes)
    found = worker.started(3)
    worker.order("judge", "hang")
    until(lambda: bool(worker.notes("hangs")))
    worker.process.terminate()
    if processes == "roles":
        until(lambda: len(worker.notes("drained")) == 2)
    with pytest.raises(subprocess.TimeoutExpired):
        worker.process.wait(0.5)
    worker.process.send_signal(number)
    assert worker.end() == 128 + number
    assert not is_running(found["judge"])


def free(port: int) -> bool:
    with socket.socket() as probe, suppress(OSError):
        probe.bind(("127.0.0.1", port))
        return True
    return False


@pytest.mark.long
def test_each_process_has_a_port(start: Start) -> None:
    # Not any that the system would give: a client may get the one beside it as its own meanwhile.
    port = next(port for port in iter(free_port, None) if free(port + 1))
    worker = start("roles", "judge", "forward", port=port)
    worker.started(2)
    for offset, role in enumerate(("judge", "forward")):
        with urllib.request.urlopen(f"http://127.0.0.1:{port + offset}/health", timeout=60) as answer:
            report = json.load(answer)
        assert report["live"] and list(report["roles"]) == [role] and report["ports"] == [port, port + 1]
        with urllib.request.urlopen(f"http://127.0.0.1:{port + offset}/metrics", timeout=60) as answer:
            assert f'stream_lsh_documents_total{{role="{role}"}}'.encode() in answer.read()


def test_a_stopped_role_is_reported(start: Start) -> None:
    port = free_port()
    worker = start("groups", port=port)
    worker.started(3)
    worker.order("forward", "give up")
    until(lambda: "forward has stopped" in worker.said())
    live, lines = ask("127.0.0.1", [port])
    said = [line for line in lines if "not live" in line]
    assert not live and len(lines) == 3 and len(said) == 1
    assert said[0].startswith("forward (port") and said[0].endswith("stopped: the shelf is empty; fill it")
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        text = answer.read().decode()
    assert 'stream_lsh_stopped{role="forward"} 1.0' in text and 'stream_lsh_stopped{role="judge"} 0.0' in text


@pytest.mark.long
def test_a_taken_port_is_an_error(start: Start) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        worker = start("roles", "judge", "forward", port=taken.getsockname()[1])
        assert worker.end() == 2
    assert "http_port" in worker.said() and "in use" in worker.said()


async def test_an_unknown_http_host_is_an_error() -> None:
    settings = KafkaSettings(http_host="no-such-host.invalid")
    with pytest.raises(UsageError, match=r"on http_host no-such-host\.invalid cannot be used: [A-Z].* Each process"):
        await run_roles(Job(("judge",), 9100), settings, {}, asyncio.Event())


def test_too_many_open_files_are_an_error() -> None:
    for number in (errno.EMFILE, errno.ENFILE):
        known = explained(OSError(number, os.strerror(number)))
        assert known is not None and "ulimit -n" in str(known) and "more workers for forward" in str(known)
    assert "ulimit -n" in str(explained(Exception("IO error: While open a file: Too many open files")))
    assert explained(OSError(errno.EACCES, "no")) is None


@pytest.mark.long
@pytest.mark.parametrize("processes", ["one", "roles"])
def test_as_many_files_as_allowed(start: Start, processes: str) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(256, hard), hard))
    try:
        worker = start(processes, "judge", "forward")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    for pid in worker.started(2).values():
        assert resource.prlimit(pid, resource.RLIMIT_NOFILE) == (min(hard, 1 << 16), hard)
    worker.process.terminate()
    assert worker.end() == 0


def test_plans() -> None:
    everything = ("sign", "sequence", "match", "judge", "forward")
    assert [job.roles for job in plan(everything, "one", None)] == [everything]
    assert [job.roles for job in plan(everything, "roles", None)] == [(role,) for role in everything]
    groups = plan(everything, "groups", 9100)
    assert [job.roles for job in groups] == [("sign",), ("match",), ("sequence", "judge", "forward")]
    assert [job.port for job in groups] == [9100, 9101, 9102] and groups[2].ports == (9100, 9101, 9102)
    assert [job.roles for job in plan(("forward", "match"), "groups", None)] == [("match",), ("forward",)]
    assert plan(("sign",), "groups", None)[0].port is None


def test_a_job_is_sent_through_the_pipe_and_secrets_only_there() -> None:
    settings = KafkaSettings(
        text_field=("title", "text"), security_protocol="SASL_SSL", sasl_mechanism="PLAIN", sasl_username="ann",
        sasl_password="swordfish", data_folder=Path("some/where"), target_recall=0.123456789012345,
    )  # fmt: skip
    job = Job(("sign", "judge"), 9100, (9100, 9101), "debug", {"sign": "a:B", "judge": "c:D"})
    line = dump(job, settings)
    assert line.count(b"\n") == 1 and b"swordfish" in line
    again, found = load(line)
    assert again == job and found == settings and found.fingerprint == settings.fingerprint
    assert found.model_fields_set == settings.model_fields_set
    assert "swordfish" not in " ".join(command(job))


async def waits(*script: BaseException | None, settings: KafkaSettings | None = None) -> int:
    """Wait for a Kafka that answers by script; the number of times it was asked."""
    asked = 0

    async def check(*_: object) -> None:
        nonlocal asked
        asked += 1
        error = script[min(asked, len(script)) - 1]
        if error is not None:
            raise error

    await wait_for_kafka(settings or KafkaSettings(), ("sign",), asyncio.Event(), check)
    return asked


async def test_waits_for_kafka(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr("stream_lsh.kafka.run.supervisor.ASK", 0.01)
    refused = ConnectionRefusedError(111, "Connection refused")
    with caplog.at_level("INFO"):
        assert await waits(refused, errors.KafkaTimeoutError(), refused, None) == 4
    assert caplog.text.count("waiting for Kafka at 127.0.0.1:9092") == 1 and "answers after" in caplog.text


async def test_gives_up_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stream_lsh.kafka.run.supervisor.ASK", 0.01)
    with pytest.raises(BrokerError, match="Given up"):
        await waits(ConnectionRefusedError(111, "refused"), settings=KafkaSettings(give_up_seconds=0.1))
    with pytest.raises(BrokerError, match="refuses the login"):
        await waits(errors.SaslAuthenticationFailed("no"))
    with pytest.raises(BrokerError, match="is missing"):
        await waits(BrokerError("a topic is missing"))


async def test_waiting_can_be_stopped() -> None:
    stop = asyncio.Event()

    async def never(*_: object) -> None:
        stop.set()
        await asyncio.sleep(3600)

    await wait_for_kafka(KafkaSettings(), ("sign",), stop, never)
