"""What tests with a broker share: the kinds of broker there can be, and settings for one test."""

import os
from collections.abc import Awaitable, Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from stream_lsh.errors import BrokerError
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.kafka.tools.broker import PROPERTIES, KafkaBroker, free_port
from stream_lsh.kafka.tools.libraries import VERSIONS, java, libraries
from stream_lsh.kafka.tools.topics import create
from support.missing import missing

Make = Callable[..., Awaitable[KafkaSettings]]  # of the fixture `make`
VERSION = os.environ.get("STREAM_LSH_TEST_KAFKA_VERSION") or VERSIONS[0]


def is_running(pid: int) -> bool:
    """Whether a process runs. A zombie is dead: who started it may not have looked yet."""
    try:
        os.kill(pid, 0)
        if not Path("/proc/self/stat").exists():
            return True
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # it may end while we look
        return False


class DockerBroker:
    """Apache's own image, with the same properties as the one from Maven, on a port that stays the same."""

    def __init__(self, version: str) -> None:
        from testcontainers.core.container import DockerContainer

        self.port = free_port()
        self.bootstrap = f"127.0.0.1:{self.port}"
        given = {
            **PROPERTIES,
            "controller.quorum.voters": "1@localhost:9093",
            "listeners": f"PLAINTEXT://0.0.0.0:{self.port},CONTROLLER://localhost:9093",
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        }
        container = DockerContainer(f"apache/kafka:{version}").with_bind_ports(self.port, self.port)
        for key, value in given.items():
            container = container.with_env("KAFKA_" + key.upper().replace(".", "_"), value)
        self._container = container

    def start(self) -> None:
        from testcontainers.core.waiting_utils import wait_for_logs

        self._container.start()
        wait_for_logs(self._container, "Kafka Server started", timeout=120)

    def stop(self) -> None:
        self._container.stop()


def local_broker(folder: Path, version: str = VERSION, **options: Any) -> KafkaBroker:
    """A broker from Java and Maven, not started yet; the test is skipped where these are missing."""
    try:
        java(version)
        libraries(version)
    except BrokerError as error:
        if os.environ.get("STREAM_LSH_TEST_BROKER") or docker_answers():
            pytest.skip(str(error))  # the other tests have their broker
        missing(str(error))
    return KafkaBroker(folder, version, **options)


@cache
def docker_answers() -> bool:
    try:
        import docker

        client = docker.from_env(timeout=5)
        client.ping()
        client.close()
    except Exception:  # not installed, no daemon, no permission: whatever it is, there is no Docker
        return False
    return True


def settings_for(broker: Any, prefix: str, tmp_path: Path, **given: Any) -> KafkaSettings:
    """Settings of a test: this broker, this prefix, a data folder of its own; a small number of partitions."""
    values: dict[str, Any] = {
        "bootstrap_servers": broker.bootstrap,
        "topic_prefix": prefix,
        "data_folder": tmp_path / "data",
        "give_up_seconds": 60,
        "unique_timestamps": "CreateTime",
    }
    return KafkaSettings(**{**values, **several_shards(given), **given})


def making(broker: Any, prefix: str, tmp_path: Path, **before: Any) -> Make:
    """The fixture `make`; before: settings that every call gives."""

    async def made(**given: Any) -> KafkaSettings:
        settings = settings_for(broker, prefix, tmp_path, **{**before, **given})
        await create(settings)
        return settings

    return made


def several_shards(given: dict[str, Any]) -> dict[str, Any]:
    """What settings with several shards need."""
    return {"compare_with": "all"} if given.get("shards", 1) > 1 else {}
