"""What is in the files to deploy with, and whether a command that they run exists."""

from __future__ import annotations

import io
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import yaml
from dockerfile_parse import DockerfileParser

from stream_lsh.cli import main
from stream_lsh.kafka.settings import GROUP, ROLES
from stream_lsh.kafka.tools.status import Report, Role

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
KUBERNETES = DEPLOY / "kubernetes"
COMPOSE = ROOT / "docker-compose.yml"
UID = 10001
PORT = 8080
OWN_IMAGE = "stream-lsh"
WORKLOADS = ("Deployment", "StatefulSet", "Job")
SEEN = Report(
    time=0, undecided=0, oldest=0, decided=0, under_way=0, window=1, shards=[], workers=None, unread=None,
    roles=[Role("judge", [], [], waiting=0, unit="document", seconds=0, left=None)],
)  # fmt: skip


def load(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def documents(path: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(path.read_text(encoding="utf-8")))


MANIFESTS = [
    (path.name, document)
    for path in sorted(KUBERNETES.glob("*.yaml"))
    if path.name != "kustomization.yaml"
    for document in documents(path)
]
SERVICES: dict[str, dict[str, Any]] = load(COMPOSE)["services"]
OURS = {name: service for name, service in SERVICES.items() if service["image"].startswith(f"{OWN_IMAGE}:")}


def named(pair: Any) -> str:
    return f"{pair['kind']}-{pair['metadata']['name']}" if isinstance(pair, dict) else str(pair)


def pods() -> Iterator[tuple[str, dict[str, Any]]]:
    """The pod of each workload, with its name."""
    for _, manifest in MANIFESTS:
        if manifest["kind"] in WORKLOADS:
            yield manifest["metadata"]["name"], manifest["spec"]["template"]["spec"]


def parse_command(words: list[str]) -> dict[str, Any]:
    """What `stream-lsh` followed by these words would be given; an unknown command, option or value is an error."""
    command: click.Command = main
    context = click.Context(main, info_name="stream-lsh")
    while isinstance(command, click.Group):
        assert words and words[0] in command.list_commands(context), words
        found = command.get_command(context, words[0])
        assert found is not None, words
        command, words = found, words[1:]
    return command.make_context(command.name, list(words)).params


def check_command(words: list[str]) -> None:
    roles = parse_command(words).get("roles")
    if roles is not None:
        chosen = roles.split(",") if isinstance(roles, str) else roles
        assert set(chosen) <= {*ROLES, GROUP}


def dockerfile() -> list[dict[str, Any]]:
    text = (DEPLOY / "Dockerfile").read_bytes()
    parser = DockerfileParser(fileobj=io.BytesIO(text))
    return [step for step in parser.structure if step["instruction"] != "COMMENT"]


def last_stage() -> list[dict[str, Any]]:
    steps = dockerfile()
    return steps[max(number for number, step in enumerate(steps) if step["instruction"] == "FROM") :]


def only(instruction: str) -> str:
    (step,) = [step for step in last_stage() if step["instruction"] == instruction]
    return str(step["value"])


def image_environment() -> dict[str, str]:
    return dict(entry.split("=", 1) for entry in shlex.split(only("ENV")))
