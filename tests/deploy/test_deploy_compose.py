"""docker-compose.yml, and that of examples laid over it: their form, and what they say against the code."""

import hashlib
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from support.deploy_files import (
    COMPOSE,
    PORT,
    ROOT,
    check_command,
    image_environment,
    load,
    own_services,
    parse_command,
    services,
)

from stream_lsh.alerts.rules import read_rules
from stream_lsh.demo.on_kafka import SETTINGS
from stream_lsh.kafka.run.process import DRAIN
from stream_lsh.kafka.settings import GROUP, ROLES, KafkaSettings
from stream_lsh.serve.tokens import Tokens
from stream_lsh.settings.model import Settings
from stream_lsh.settings.sources import PREFIX

pytestmark = pytest.mark.long  # the gate has the tools


FILES = {
    "compose-spec": [COMPOSE, ROOT / "examples" / "docker-compose.yml"],
    "github-workflows": sorted((ROOT / ".github" / "workflows").iterdir()),
}


@pytest.mark.parametrize("schema", FILES)
def test_files_have_the_form_of_their_specification(schema: str) -> None:
    command = [
        sys.executable,
        "-m",
        "check_jsonschema",
        "--builtin-schema",
        f"vendor.{schema}",
        *map(str, FILES[schema]),
    ]
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
            assert int(service["stop_grace_period"].removesuffix("s")) > DRAIN
    assert sorted(roles) == sorted((*ROLES, GROUP))


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


OVER = ROOT / "examples" / "docker-compose.yml"
FIXED = ("topics", "sign", "match", "control", "feed", "live-page")  # services that need the settings of the pipeline


def merged() -> dict[str, dict[str, Any]]:
    """The services of both files, as `docker compose -f … -f …` merges them."""
    found: dict[str, dict[str, Any]] = dict(load(COMPOSE)["services"])
    for name, service in load(OVER)["services"].items():
        before = found.get(name, {})
        environment = {**before.get("environment", {}), **service.get("environment", {})}
        volumes = [*before.get("volumes", []), *service.get("volumes", [])]
        found[name] = {**before, **service, "environment": environment, "volumes": volumes}
    return found


def mounted(path: str, name: str) -> Path:
    """The file of the repository that a service sees at a path."""
    source, _, target = merged()[name]["volumes"][-1].removesuffix(":ro").rpartition(":")
    assert path.startswith(f"{target}/"), path
    return ROOT / source / path.removeprefix(f"{target}/")


def test_it_names_only_what_there_is() -> None:
    services = merged()
    images = {service["image"] for service in load(COMPOSE)["services"].values()}
    for name in load(OVER)["services"]:
        service = services[name]
        assert service["image"] in images, name
        assert service.get("depends_on", {}).keys() <= services.keys(), name
        for volume in service["volumes"]:
            source = volume.partition(":")[0]
            assert source in load(COMPOSE)["volumes"] or (ROOT / source).is_dir(), f"{name}: {source}"


def test_its_commands_and_programs_exist() -> None:
    for name, service in load(OVER)["services"].items():
        if "entrypoint" in service:
            program, script = service["entrypoint"]
            assert program == "python" and mounted(script, name).is_file(), name
        elif name == "feed":
            for part in service["command"][0].split("|"):
                check_command(shlex.split(part)[1:])
        elif "command" in service:
            check_command(service["command"])


@pytest.mark.parametrize("name", FIXED)
def test_the_pipeline_has_the_settings_of_the_demo(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    for variable, value in (image_environment() | merged()[name]["environment"]).items():
        if variable.startswith(PREFIX) and "$" not in value:
            monkeypatch.setenv(variable, value)
    settings = KafkaSettings.load(None)
    for field, value in SETTINGS.items():
        assert getattr(settings, field) == (tuple(value) if isinstance(value, list) else value), field
    if name == "control":
        assert settings.alerts is not None
        assert [rule.name for rule in read_rules(mounted(str(settings.alerts), name))] == ["spreads"]


def test_the_page_takes_the_token_that_is_named() -> None:
    service = merged()["live-page"]
    given = parse_command(service["command"])
    assert service["ports"] == [f"127.0.0.1:{given['port']}:{given['port']}"], "its token is public"
    path = mounted(str(given["token_file"]), "live-page")
    Tokens(path)
    assert tomllib.loads(path.read_text())["demo"]["sha256"] == hashlib.sha256(b"demo").hexdigest()
