"""docker-compose.yml: its form by the schema of the specification, and what it says against the code."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from support.deploy_files import (
    COMPOSE,
    PORT,
    ROOT,
    check_command,
    image_environment,
    own_services,
    parse_command,
    services,
)

from stream_lsh.kafka.run.process import DRAIN
from stream_lsh.kafka.settings import GROUP, ROLES, KafkaSettings
from stream_lsh.settings.model import Settings
from stream_lsh.settings.sources import PREFIX

pytestmark = pytest.mark.long  # the gate has the tools


@pytest.mark.parametrize("file", [COMPOSE, ROOT / "examples" / "docker-compose.yml"], ids=lambda file: file.parent.name)
def test_compose_files_have_the_form_of_their_specification(file: Path) -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(file)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


def test_compose_runs_every_role_and_commands_that_there_are() -> None:
    roles: list[str] = []
    for name, service in own_services().items():
        if "entrypoint" in service:
            (script,) = service["command"]
            for part in script.split("|"):
                program, *words = shlex.split(part)
                assert program == "stream-lsh", name
                check_command(words)
            continue
        check_command(service["command"])
        if service["command"][:2] == ["kafka", "worker"] and not service.get("profiles"):
            roles += service["command"][service["command"].index("--roles") + 1].split(",")
    assert sorted(roles) == sorted((*ROLES, GROUP))


def test_workers_wait_for_the_topics_and_have_time_to_stop() -> None:
    for name, service in own_services().items():
        if service["command"][:2] == ["kafka", "worker"]:
            assert service["depends_on"]["topics"] == {"condition": "service_completed_successfully"}, name
            assert int(service["stop_grace_period"].removesuffix("s")) > DRAIN
            assert service["cap_drop"] == ["ALL"]


def test_the_settings_of_compose_are_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (image_environment() | own_services()["sign"]["environment"]).items():
        if name.startswith(PREFIX):
            assert name.removeprefix(PREFIX).lower() in KafkaSettings.model_fields, name
            monkeypatch.setenv(name, re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", value))
    settings = KafkaSettings.load(None)
    assert settings.text_field == ("title", "text")  # where the demo's feed has its text
    assert settings.http_port == PORT
    advertised = services()["broker"]["environment"]["KAFKA_ADVERTISED_LISTENERS"]
    assert dict(entry.split("://") for entry in advertised.split(",")) == {
        "INSIDE": settings.bootstrap_servers, "OUTSIDE": KafkaSettings.model_fields["bootstrap_servers"].default
    }  # fmt: skip


@pytest.mark.parametrize("name", ["serve", "page"])
def test_compose_serves_with_tokens(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    service = services()[name]
    given = parse_command(service["command"])
    assert given["token_file"]
    if name == "page":
        assert given["kafka"] and service["environment"] == services()["sign"]["environment"]
        return
    for variable, value in service["environment"].items():
        monkeypatch.setenv(variable, value)
        assert variable.removeprefix(PREFIX).lower() in Settings.model_fields
    assert Settings.load(None).text_field == ("title", "text")
