"""docker-compose.yml: its form by the schema of the specification, and what it says against the code."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys

import pytest
from support.deploy_files import COMPOSE, OURS, PORT, ROOT, SERVICES, check_command, image_environment, load

from stream_lsh.kafka.run.process import DRAIN
from stream_lsh.kafka.settings import GROUP, ROLES, KafkaSettings
from stream_lsh.settings_sources import PREFIX


def test_the_compose_file_has_the_form_of_its_specification() -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(COMPOSE)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


def test_docker_reads_the_compose_file() -> None:
    docker = shutil.which("docker")
    if docker is None or subprocess.run([docker, "compose", "version"], capture_output=True, check=False).returncode:
        pytest.skip("there is no docker compose here")
    command = [docker, "compose", "--file", str(COMPOSE), "--profile", "*", "config", "--quiet"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


def test_compose_names_only_what_it_has() -> None:
    compose = load(COMPOSE)
    for name, service in SERVICES.items():
        for other, condition in service.get("depends_on", {}).items():
            assert other in SERVICES, f"{name} depends on {other}"
            if condition["condition"] == "service_healthy":
                assert "test" in SERVICES[other]["healthcheck"]
            if condition["condition"] == "service_completed_successfully":
                assert not SERVICES[other]["restart"].startswith(("always", "unless-stopped"))
        for volume in service.get("volumes", []):
            source = volume.partition(":")[0]
            assert source in compose["volumes"] or (ROOT / source).is_dir(), f"{name}: {source}"
        assert "restart" in service, name
    used = {volume.partition(":")[0] for service in SERVICES.values() for volume in service.get("volumes", [])}
    assert set(compose["volumes"]) <= used


def test_images_have_versions() -> None:
    for name, service in SERVICES.items():
        assert re.fullmatch(r"[\w./-]+:v?\d+\.\d+\.\d+", service["image"]), name


def test_compose_runs_every_role_and_commands_that_there_are() -> None:
    roles: list[str] = []
    for name, service in OURS.items():
        if "entrypoint" in service:
            (script,) = service["command"]
            for part in script.split("|"):
                program, *words = shlex.split(part)
                assert program == "stream-lsh", name
                check_command(words)
            continue
        check_command(service["command"])
        if service["command"][0] == "worker" and not service.get("profiles"):
            roles += service["command"][service["command"].index("--roles") + 1].split(",")
    assert sorted(roles) == sorted((*ROLES, GROUP))


def test_workers_wait_for_broker_and_topics_and_have_time_to_stop() -> None:
    for name, service in OURS.items():
        if service["command"][0] == "worker":
            assert service["depends_on"]["topics"] == {"condition": "service_completed_successfully"}, name
            assert int(service["stop_grace_period"].removesuffix("s")) > DRAIN
            assert service["cap_drop"] == ["ALL"]


def test_each_match_worker_has_a_volume_of_its_own() -> None:
    found = [service["volumes"] for name, service in OURS.items() if name.startswith("match")]
    assert len({volume for volumes in found for volume in volumes}) == len(found) > 1
    assert all(volume.endswith(f":{image_environment()['STREAM_LSH_DATA_FOLDER']}") for (volume,) in found)


def without_defaults(value: str) -> str:
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", value)


def test_the_settings_of_compose_are_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (image_environment() | OURS["sign"]["environment"]).items():
        if name.startswith(PREFIX):
            assert name.removeprefix(PREFIX).lower() in KafkaSettings.model_fields, name
            monkeypatch.setenv(name, without_defaults(value))
    settings = KafkaSettings.load(None)
    assert settings.bootstrap_servers == "broker:19092"
    assert settings.text_field == ("title", "text")  # where the demo's feed has its text
    assert settings.http_port == PORT
    assert settings.replication_factor == 1


def test_the_broker_can_be_reached_where_the_clients_look() -> None:
    broker = SERVICES["broker"]["environment"]
    advertised = dict(entry.split("://") for entry in broker["KAFKA_ADVERTISED_LISTENERS"].split(","))
    listening = dict(entry.split("://") for entry in broker["KAFKA_LISTENERS"].split(","))
    protocols = dict(entry.split(":") for entry in broker["KAFKA_LISTENER_SECURITY_PROTOCOL_MAP"].split(","))
    assert advertised["INSIDE"] == OURS["sign"]["environment"]["STREAM_LSH_BOOTSTRAP_SERVERS"]
    assert advertised["OUTSIDE"] == KafkaSettings().bootstrap_servers
    assert SERVICES["broker"]["ports"] == [f"{advertised['OUTSIDE']}:{listening['OUTSIDE'].lstrip(':')}"]
    for name, address in advertised.items():
        assert address.rpartition(":")[2] == listening[name].rpartition(":")[2]
    assert protocols.keys() == listening.keys()
    assert SERVICES["broker"]["healthcheck"]["test"][-1] == advertised["INSIDE"]
    assert broker["KAFKA_AUTO_CREATE_TOPICS_ENABLE"] == "false"
    assert SERVICES["broker"]["volumes"] == [f"broker-data:{broker['KAFKA_LOG_DIRS']}"]


def test_ports_are_open_to_this_machine_only() -> None:
    for service in SERVICES.values():
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))
