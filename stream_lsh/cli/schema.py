"""`stream-lsh schema`: the JSON Schemas of outputs."""

from __future__ import annotations

import json

import click

from stream_lsh.cli.group import Command
from stream_lsh.errors import UsageError

EXAMPLES = """
stream-lsh schema verdict > verdict.json
stream-lsh schema verdict --avro > verdict.avsc
"""
OUTPUTS = ("verdict", "pair", "group", "alert", "dead-letter")


@click.command(
    cls=Command,
    examples=EXAMPLES,
    help="""Print the JSON Schema of an output: the lines of files, and the values of records on Kafka. Later versions
may add fields. Dead letters are copies of documents, and have no schema of Avro.""",
)
@click.argument("output", type=click.Choice(OUTPUTS), metavar="|".join(OUTPUTS))
@click.option("--avro", is_flag=True, help="Print the Avro schema of the values with output_format = avro.")
def schema(output: str, avro: bool) -> None:
    if avro:
        from stream_lsh.kafka.registry.encoding import OUTPUTS as IN_AVRO
        from stream_lsh.kafka.registry.encoding import avro_schema

        if output not in IN_AVRO:
            raise UsageError(f"{output} is not in Avro: name one of {', '.join(IN_AVRO)}, or leave --avro out")
        click.echo(json.dumps(avro_schema(output), indent=2))
        return
    from stream_lsh.serve.output_schemas import schema_of

    click.echo(json.dumps(schema_of(output), indent=2))
