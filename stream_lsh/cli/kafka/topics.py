"""`stream-lsh kafka topics create|show`: the topics that the pipeline needs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import click

from stream_lsh.cli.group import Group
from stream_lsh.cli.kafka.command import CONNECTION, pipeline_command, result_of
from stream_lsh.cli.options import KAFKA_SECTIONS, TOPICS, json_option, option
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.wording import aligned, duration, plain_table, size

if TYPE_CHECKING:
    from stream_lsh.kafka.topics import TopicState
    from stream_lsh.kafka.weaknesses import Weakness

CREATE_EXAMPLES = """
stream-lsh kafka topics create
stream-lsh kafka topics create --bootstrap-servers kafka-1:9092,kafka-2:9092 --shards 4 --partitions 16
stream-lsh kafka topics create --topic-prefix news --documents-topic crawl --replication-factor 3
stream-lsh kafka topics create --format strimzi --strimzi-cluster kafka | kubectl apply --namespace kafka --filename -
"""
SHOW_EXAMPLES = """
stream-lsh kafka topics show
stream-lsh kafka topics show --topic-prefix news --json
"""
COLUMNS = ("topic", "partitions", "replicas", "kept", "cleanup", "largest record", "state")


@click.group(cls=Group, examples=CREATE_EXAMPLES + SHOW_EXAMPLES, help="Make the topics of the pipeline, or show them.")
def topics() -> None:
    pass


_NAMES = (*CONNECTION, *KAFKA_SECTIONS[TOPICS], "compare_with", "shards", "max_document_bytes", "groups")
_JSON = json_option("Output", "one JSON object for each topic")
_STRIMZI = (
    option(
        "Output", "--format", "print KafkaTopic and KafkaUser for Strimzi (API v1) instead of making topics",
        click.Choice(["strimzi"]), name="form",
    ),
    option("Output", "--strimzi-cluster NAME", "name of Strimzi's Kafka resource", default="my-cluster"),
)  # fmt: skip


@pipeline_command(
    _NAMES,
    [_JSON, *_STRIMZI],
    make=topics.command,
    examples=CREATE_EXAMPLES,
    help="""Make the topics that are missing, as the settings say.

Existing topics stay as they are, and the command shows what differs. Only the outputs get more partitions, if the
documents topic has more. You can repeat the command at any time.

With --format strimzi it asks no broker. It prints manifests of the topics, and of a user who may do all that the roles
and commands of the pipeline do.""",
)
def create(settings: KafkaSettings, as_json: bool, form: str | None, strimzi_cluster: str) -> None:
    if form is None:
        _run(settings, "create", as_json)
        return
    import yaml

    from stream_lsh.kafka.strimzi import resources

    click.echo(yaml.safe_dump_all(resources(settings, strimzi_cluster), sort_keys=False, width=120), nl=False)


@pipeline_command(
    _NAMES,
    [_JSON],
    make=topics.command,
    examples=SHOW_EXAMPLES,
    help="Show the topics: partitions, replicas, retention, what differs from the settings, and what is weak.",
)
def show(settings: KafkaSettings, as_json: bool) -> None:
    _run(settings, "show", as_json)


def _run(settings: KafkaSettings, action: str, as_json: bool) -> None:
    from stream_lsh.kafka.tools import topics as kafka_topics

    states = result_of(settings, getattr(kafka_topics, action)(settings))
    if as_json:
        for state in states:
            click.echo(json.dumps(record(state, settings)))
        return
    print_table(states, settings)
    for state in states:
        for difference in state.differences:
            click.echo(f"{state.wanted.name} differs from the settings: {difference}")
    for weakness in (weakness for state in states for weakness in weak(state, settings)):
        click.echo(f"weak: {weakness}")


def weak(state: TopicState, settings: KafkaSettings) -> list[Weakness]:
    """The weaknesses that are not allowed: a worker refuses the topic."""
    return [found for found in state.weaknesses if found.setting not in settings.allow_weak_topics]


def record(state: TopicState, settings: KafkaSettings) -> dict[str, object]:
    """A topic as JSON."""
    return {
        "topic": state.wanted.name,
        "partitions": state.partitions,
        "replication_factor": state.replicas,
        "configs": {key: state.configs[key] for key in state.wanted.configs if key in state.configs},
        "state": _state(state, settings),
        "differences": list(state.differences),
        "weaknesses": [str(weakness) for weakness in weak(state, settings)],
    }


def _state(state: TopicState, settings: KafkaSettings) -> str:
    if not state.partitions:
        return "missing"
    if weak(state, settings):
        return "weak"
    return state.done or ("differs" if state.differences else "there")


def rows(states: Iterable[TopicState], settings: KafkaSettings) -> list[Sequence[str]]:
    """A line of the table for each topic."""
    found: list[Sequence[str]] = []
    for state in states:
        name = state.wanted.name
        if not state.partitions:
            found.append((name, "", "", "", "", "", _state(state, settings)))
            continue
        kept, largest = state.configs.get("retention.ms"), state.configs.get("max.message.bytes")
        found.append(
            (
                name, str(state.partitions), str(state.replicas),
                "" if kept is None else "for ever" if int(kept) < 0 else duration(int(kept) / 1000),
                state.configs.get("cleanup.policy", ""), size(int(largest)) if largest else "", _state(state, settings),
            )
        )  # fmt: skip
    return found


def print_table(states: Iterable[TopicState], settings: KafkaSettings) -> None:
    """The table, with lines in bold and folded only on a terminal."""
    lines = rows(states, settings)
    if not sys.stdout.isatty():
        click.echo("\n".join(aligned([COLUMNS, *lines])))
        return
    from rich.console import Console
    from rich.text import Text

    table = plain_table(None, COLUMNS[0], *(f">{name}" for name in COLUMNS[1:3]), *COLUMNS[3:])
    for line in lines:
        table.add_row(*(Text(part) for part in line))
    Console(highlight=False).print(table)
