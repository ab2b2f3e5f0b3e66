"""examples/docker-compose.yml, which is laid over docker-compose.yml: its form, and what it says against the code."""

import hashlib
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest
from support.deploy_files import COMPOSE, ROOT, check_command, image_environment, load, parse_command

from stream_lsh.alerts.rules import read_rules
from stream_lsh.demo.on_kafka import SETTINGS
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.serve.tokens import Tokens
from stream_lsh.settings.sources import PREFIX

pytestmark = pytest.mark.long  # the gate has the tools
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
