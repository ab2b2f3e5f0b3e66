"""`stream-lsh schema`: the JSON Schemas of outputs."""

from __future__ import annotations

import json

import click

from stream_lsh.cli.group import Command

EXAMPLES = """
stream-lsh schema verdict > verdict.json
"""
OUTPUTS = ("verdict", "pair", "group", "alert", "dead-letter")


@click.command(
    cls=Command,
    examples=EXAMPLES,
    help="""Print the JSON Schema of an output: the lines of files, and the values of records on Kafka. Later versions
may add fields.""",
)
@click.argument("output", type=click.Choice(OUTPUTS), metavar="|".join(OUTPUTS))
def schema(output: str) -> None:
    from stream_lsh.serve.output_schemas import schema_of

    click.echo(json.dumps(schema_of(output), indent=2))
