"""Commands of `stream-lsh` in the process of the tests."""

import json
from collections.abc import Iterator
from typing import Any

import click
from click.testing import CliRunner, Result

from stream_lsh.cli import main


def run(*words: object, code: int = 0, input: str | bytes | None = None, **variables: str) -> Result:
    """Run a command that ends with this code; `variables` are settings from the environment. What a job writes to
    standard output goes past Python, so it is not in the result: the fixture `run` of tests/cli has that, too."""
    env = {f"STREAM_LSH_{name.upper()}": value for name, value in variables.items()}
    result = CliRunner(env=env).invoke(main, [str(word) for word in words], input=input)
    assert result.exit_code == code, result.output
    return result


def every(group: click.Group = main, *above: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """All commands below a group, by their words."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield (*above, name), command
        if isinstance(command, click.Group):
            yield from every(command, *above, name)


def figures(*words: object) -> dict[str, Any]:
    """What a command says with --json."""
    found: dict[str, Any] = json.loads(run(*words, "--json").stdout)
    return found
