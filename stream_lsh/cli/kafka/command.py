"""What the commands on a pipeline share: its settings, and the client that a plain installation leaves out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from functools import wraps
from typing import Any, TypeVar

import click

from stream_lsh.cli.extra import require_kafka
from stream_lsh.cli.group import Command, Option
from stream_lsh.cli.options import COMMON, KAFKA, KAFKA_SECTIONS, RUNNING, load_settings, option, settings_options
from stream_lsh.kafka.run.logs import LEVELS
from stream_lsh.kafka.settings import KafkaSettings

Result = TypeVar("Result")
CONNECTION = KAFKA_SECTIONS[KAFKA]
PIPELINE = (*CONNECTION, *COMMON, "groups")
"""Settings that a command has to share with the workers."""


def log_level_option(default: str) -> Option:
    """`--log-level`: which log lines a worker writes."""
    text, levels = "least level of log lines on standard error", click.Choice(LEVELS)
    return option(RUNNING, "--log-level", text, levels, default=default, show_default=True)


def pipeline_command(
    names: Iterable[str],
    params: Iterable[click.Parameter] = (),
    *,
    defaults: Mapping[str, Any] | None = None,
    make: Callable[..., Any] = click.command,
    **attributes: Any,
) -> Callable[[Callable[..., Any]], click.Command]:
    """Decorator: a command on a pipeline. The function gets the settings, and by name its own parameters.

    Args:
        names: settings that are options. params: the command's own parameters. defaults: as for `load_settings`.
            make: the decorator of click. attributes: of the command.
    """

    def decorate(function: Callable[..., Any]) -> click.Command:
        @wraps(function)
        @click.pass_context
        def run(context: click.Context, /, **given: Any) -> Any:
            settings = load_settings(context, KafkaSettings, defaults=defaults)
            require_kafka()
            shared = KafkaSettings.model_fields.keys() | {"properties", "config"}
            return function(settings, **{name: value for name, value in given.items() if name not in shared})

        options = [*params, *settings_options(names, KafkaSettings)]
        command: click.Command = make(cls=Command, params=options, **attributes)(run)
        return command

    return decorate


def of_pipeline(settings: KafkaSettings) -> KafkaSettings:
    """These settings; those that are not given are the pipeline's, which its topic `state` has."""
    # Here, because they take the Kafka client with them.
    from stream_lsh.kafka.client.connection import admin
    from stream_lsh.kafka.consumer.state import with_recorded

    async def read() -> KafkaSettings:
        async with admin(settings):  # says why no broker is usable
            return await with_recorded(settings)

    return result_of(settings, read())


def result_of(settings: KafkaSettings, work: Coroutine[Any, Any, Result]) -> Result:
    """The result of work with Kafka. Its errors are a BrokerError in plain words."""
    from stream_lsh.kafka.client.connection import explained

    with explained(settings):
        return asyncio.run(work)
