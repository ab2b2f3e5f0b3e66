"""The broker from Java and Maven: both versions, killed and started again, and what is said when it cannot start."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import NewTopic
from support.kafka.brokers import is_running, local_broker, settings_for
from support.long_form import rotating
from support.waiting import until

from stream_lsh.errors import BrokerError, UsageError
from stream_lsh.kafka.client.connection import admin
from stream_lsh.kafka.tools import libraries as jars
from stream_lsh.kafka.tools.broker import KafkaBroker, free_port
from stream_lsh.kafka.tools.libraries import VERSIONS, check_version, java, libraries


async def write(broker: KafkaBroker, *values: bytes) -> None:
    async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap, enable_idempotence=True) as producer:
        for value in values:
            await producer.send_and_wait("news", value)


async def read(broker: KafkaBroker, count: int) -> list[bytes]:
    options = {"bootstrap_servers": broker.bootstrap, "auto_offset_reset": "earliest", "group_id": "readers"}
    async with AIOKafkaConsumer("news", **options, enable_auto_commit=False) as consumer:
        return [(await asyncio.wait_for(consumer.getone(), 120)).value for _ in range(count)]


@pytest.mark.parametrize("version", rotating(VERSIONS, 1))
def test_it_starts_and_keeps_its_data_through_kill_and_restart(version: str, tmp_path: Path) -> None:
    with local_broker(tmp_path / "kafka", version) as broker:
        first, address = broker.pid, broker.bootstrap
        assert first is not None

        async def begin() -> None:
            async with admin(settings_for(broker, "x", tmp_path)) as client:
                await client.create_topics([NewTopic("news", 1, 1)])
            await write(broker, b"one", b"two")

        asyncio.run(begin())
        broker.kill()
        assert broker.pid is None
        assert not is_running(first)
        broker.start()
        assert (broker.bootstrap, broker.pid != first) == (address, True)
        asyncio.run(write(broker, b"three"))
        assert asyncio.run(read(broker, 3)) == [b"one", b"two", b"three"]
        broker.stop()
        broker.start()
        assert asyncio.run(read(broker, 3)) == [b"one", b"two", b"three"]
        broker.start()  # nothing to do
        last = broker.pid
        assert broker.wait(0.01) is None
    assert broker.pid is None
    assert last is not None and not is_running(last)
    again = KafkaBroker(tmp_path / "kafka", version)
    with again:
        assert asyncio.run(read(again, 3)) == [b"one", b"two", b"three"]


@pytest.mark.long
def test_it_does_not_outlive_its_parent(tmp_path: Path) -> None:
    local_broker(tmp_path)  # or skip
    if sys.platform != "linux":
        pytest.skip("only Linux ends the children of a killed process")
    code = (
        "import sys, time; from pathlib import Path; from stream_lsh.kafka.tools.broker import KafkaBroker\n"
        "broker = KafkaBroker(Path(sys.argv[1])); broker.start(); print(broker.pid, flush=True); time.sleep(600)"
    )
    parent = subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "kafka")], stdout=subprocess.PIPE)
    try:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert is_running(child)
    finally:
        parent.kill()
        parent.wait()
    until(lambda: not is_running(child))


@pytest.mark.long
def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", free_port()))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(BrokerError, match=f"port {port} of 127.0.0.1 cannot be used"):
            local_broker(tmp_path, port=port).start()


@pytest.mark.long
def test_its_folder_is_its_own_until_it_has_ended(tmp_path: Path) -> None:
    first = local_broker(tmp_path)
    thread = threading.Thread(target=first.start)  # one that ends, though what it starts goes on
    thread.start()
    thread.join()
    try:
        with pytest.raises(BrokerError, match=f"another Kafka uses the folder {tmp_path}"):
            KafkaBroker(tmp_path).start()
        assert first.pid is not None
        os.kill(first.pid, signal.SIGKILL)  # not by the object: it must notice by itself
        assert first.wait(30) == -signal.SIGKILL
        assert first.pid is None
        assert first._lock is not None
        inherited = os.dup(first._lock)  # as a child has it that is just being started
        first.start()
        os.close(inherited)
        assert first.pid is not None
    finally:
        first.stop()


@pytest.mark.parametrize("version", ["4", "3.6.0", "latest", "../4.1.1", "4.1.1-rc0"])
def test_versions_that_cannot_be(version: str) -> None:
    with pytest.raises(UsageError, match="not a version of Kafka"):
        check_version(version)


def program(folder: Path, name: str, script: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without Java, Maven and cache; the folder where its programs would be."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/nowhere")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    return tmp_path / "bin"


def test_java_is_missing_or_too_old(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BrokerError, match=r"Kafka 4.1.1 needs Java 17 or newer, but there is no program java"):
        java("4.1.1")
    program(bare, "java", """echo 'openjdk version "11.0.2" 2019-01-15' >&2""")
    with pytest.raises(BrokerError, match=r"needs Java 17 or newer, but .* is Java 11"):
        java("4.1.1")
    assert java("3.9.1") == str(bare / "java")
    program(bare, "java", """echo 'java version "1.8.0_202"' >&2""")
    with pytest.raises(BrokerError, match="is Java 8"):
        java("3.9.1")
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    with pytest.raises(BrokerError, match=r"JAVA_HOME .*nowhere"):
        java("3.9.1")


def test_maven_is_missing_or_fails(bare: Path) -> None:
    with pytest.raises(BrokerError, match=r"no program mvn to fetch them. Install Maven"):
        libraries("4.1.1")
    program(bare, "mvn", "echo '[ERROR] Could not transfer artifact: no route to host'; exit 1")
    with pytest.raises(BrokerError, match=r"(?s)Maven could not fetch Kafka 4.1.1:.*no route to host"):
        libraries("4.1.1")
    cache = jars.cache_folder()
    assert [path.name for path in cache.iterdir()] == ["kafka-4.1.1.lock"]


def test_jars_are_fetched_once_by_any_process(bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{bare}:/usr/bin:/bin")
    program(
        bare,
        "mvn",
        f"""echo called >> '{tmp_path}/calls'
for argument; do case $argument in -DoutputDirectory=*) folder=${{argument#*=}};; esac; done
mkdir "$folder"; sleep 0.3; touch "$folder/kafka_2.13-4.1.1.jar" """,
    )
    (jars.cache_folder() / "kafka-4.1.1").mkdir(parents=True)  # left behind without its jars
    found: list[Path] = []
    threads = [threading.Thread(target=lambda: found.append(libraries("4.1.1"))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [jars.cache_folder() / "kafka-4.1.1"] * 4
    assert (tmp_path / "calls").read_text().splitlines() == ["called"]
    assert (found[0] / "kafka_2.13-4.1.1.jar").exists()


@pytest.mark.parametrize(("signal_", "code"), rotating([(signal.SIGTERM, 143), (signal.SIGINT, 130)], 1))
def test_the_command_runs_until_a_signal_and_leaves_nothing_behind(
    tmp_path: Path, signal_: signal.Signals, code: int
) -> None:
    local_broker(tmp_path)
    port = free_port()
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    command = [sys.executable, "-m", "stream_lsh.cli", "kafka", "broker", "--port", str(port)]
    running = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, bufsize=1
    )
    try:
        assert running.stdout is not None
        lines = [running.stdout.readline() for _ in range(7)]
        assert f"answers at 127.0.0.1:{port}" in lines[0]
        assert f"stream-lsh kafka topics create --bootstrap-servers 127.0.0.1:{port}\n" in "".join(lines)
        with socket.create_connection(("127.0.0.1", port)):
            pass
        running.send_signal(signal_)
        assert running.wait(60) == code
    finally:
        with suppress(ProcessLookupError):
            running.kill()
        running.communicate()
    assert [path for path in tmp_path.iterdir() if path.name.startswith("stream-lsh")] == []
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", port), timeout=2)
