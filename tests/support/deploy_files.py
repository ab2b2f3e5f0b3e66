"""What is in the files to deploy with, and whether a command that they run exists."""

import io
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import click
import yaml

from stream_lsh.cli import main

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
KUBERNETES = DEPLOY / "kubernetes"
COMPOSE = ROOT / "docker-compose.yml"
UID = 10001
PORT = 8080
OWN_IMAGE = "stream-lsh"
WORKLOADS = ("Deployment", "StatefulSet", "Job")


def load(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


@cache
def manifests(folder: Path) -> list[dict[str, Any]]:
    """The manifests in the files of a folder."""
    return [
        manifest
        for path in sorted(folder.glob("*.yaml"))
        if path.name != "kustomization.yaml"
        for manifest in yaml.safe_load_all(path.read_text(encoding="utf-8"))
    ]


def of_kind(folder: Path, *kinds: str) -> list[dict[str, Any]]:
    return [manifest for manifest in manifests(folder) if manifest["kind"] in kinds]


def name_of(manifest: dict[str, Any]) -> str:
    return str(manifest["metadata"]["name"])


def pods(folder: Path = KUBERNETES) -> Iterator[tuple[str, dict[str, Any]]]:
    """The pod of each workload, with its name."""
    for manifest in of_kind(folder, *WORKLOADS):
        yield name_of(manifest), manifest["spec"]["template"]["spec"]


@cache
def services() -> dict[str, dict[str, Any]]:
    """The services of docker-compose.yml by name."""
    return dict(load(COMPOSE)["services"])


def own_services() -> dict[str, dict[str, Any]]:
    """Those of this project's image."""
    return {name: service for name, service in services().items() if service["image"].startswith(f"{OWN_IMAGE}:")}


def parse_command(words: list[str]) -> dict[str, Any]:
    """What `stream-lsh` followed by these words would be given; an unknown command, option or value is an error."""
    command: click.Command = main
    context = click.Context(main, info_name="stream-lsh")
    while isinstance(command, click.Group):
        if command.invoke_without_command and not (words and words[0] in command.list_commands(context)):
            break
        assert words and words[0] in command.list_commands(context), words
        found = command.get_command(context, words[0])
        assert found is not None, words
        command, words = found, words[1:]
    return command.make_context(command.name, list(words)).params


def check_command(words: list[str]) -> None:
    from stream_lsh.kafka.settings import GROUP, ROLES

    roles = parse_command(words).get("roles")
    if roles is not None:
        chosen = roles.split(",") if isinstance(roles, str) else roles
        assert set(chosen) <= {*ROLES, GROUP}


@cache
def dockerfile() -> list[dict[str, Any]]:
    """Its instructions in order."""
    from dockerfile_parse import DockerfileParser

    parser = DockerfileParser(fileobj=io.BytesIO((DEPLOY / "Dockerfile").read_bytes()))
    return [step for step in parser.structure if step["instruction"] != "COMMENT"]


def last_stage() -> list[dict[str, Any]]:
    steps = dockerfile()
    return steps[max(number for number, step in enumerate(steps) if step["instruction"] == "FROM") :]


def only(instruction: str) -> str:
    (step,) = [step for step in last_stage() if step["instruction"] == instruction]
    return str(step["value"])


def image_environment() -> dict[str, str]:
    return dict(entry.split("=", 1) for entry in shlex.split(only("ENV")))
