"""`stream-lsh kafka query`: what the shards of a pipeline hold that is similar to a text."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import click

from stream_lsh.cli.failures import complain
from stream_lsh.cli.kafka.command import CONNECTION, pipeline_command
from stream_lsh.cli.options import config_of, index_option
from stream_lsh.cli.progress import progress_display
from stream_lsh.cli.query import (
    NOTHING,
    any_match,
    asked,
    check_least,
    check_options,
    check_values,
    print_matches,
    query_options,
    read_text,
    values_of,
)
from stream_lsh.cli.running import STANDARD, chosen_inputs
from stream_lsh.cli.summary import summary_lines
from stream_lsh.errors import UsageError
from stream_lsh.kafka.settings import KafkaSettings

EXAMPLES = """
stream-lsh kafka query "the text to look for" --config settings.toml --index copy
stream-lsh kafka query --input feed.jsonl.gz --config settings.toml --index copy --output verdicts.jsonl
"""


@pipeline_command(
    CONNECTION,
    examples=EXAMPLES,
    help="""Show the documents of a pipeline that are similar to a text, the most similar first. Nothing is sent to the
pipeline, and its workers need not run.

The command reads the changelogs of the shards into the folder of --index, and answers when it has every document that
has a verdict. It says as of which frame. The folder is kept: the next command reads only what is new. It needs the
settings of the workers (--config).

Everything else is as in `stream-lsh query`.""",
    params=[index_option(required=True), *query_options()],
)
@click.argument("text", metavar="[TEXT|FILE|-]", required=False)
@click.pass_context
def query(
    context: click.Context, /, settings: KafkaSettings, text: str | None, folder: Path, least: float | None,
    top: int | None, within: tuple[str, ...], inputs: tuple[str, ...], output: str | None, overwrite: bool,
    as_json: bool, quiet: bool,
) -> None:  # fmt: skip
    check_options(text, inputs, output, within, least)
    settings = settings if top is None else settings.model_copy(update={"max_matches": top})
    values = values_of(within)
    if text is not None:
        check_values(values, settings.match_within, folder)
        check_least(least, settings, folder)

    # Here, because they take the Kafka client with them, numba and RocksDB.
    from stream_lsh.api.questions import asked as documents_of
    from stream_lsh.api.questions import similar
    from stream_lsh.embedded.preparation import prepare
    from stream_lsh.embedded.querying import check_output, query_with
    from stream_lsh.index.reader import IndexReader
    from stream_lsh.kafka.lookup.lookup import ask_once

    chosen, target = chosen_inputs(inputs, "") if text is None else [], output or STANDARD
    check_output(target, chosen, folder, overwrite=overwrite, config=config_of(context))
    prepare(settings)
    if text is None:
        with progress_display(quiet=quiet, writes_standard_output=target == STANDARD) as progress:
            summary, as_of = asyncio.run(
                ask_once(settings, folder, lambda reader: query_with(reader, chosen, target, progress))
            )
        lines = list(summary_lines(summary, max_matches=settings.max_matches, dead_letters=None, queried=True))
    else:
        wanted, lines = read_text(text, bare=settings.measure in ("jaccard", "containment")), list[str]()
        if not wanted.strip():
            raise UsageError("the text is empty; give some text, a file, or - for standard input")
        try:
            columns = documents_of(settings, settings.document_fields, [asked(wanted, settings)], values)
        except TypeError as error:  # a list instead of bits, say
            raise UsageError(str(error)) from None

        def ask(reader: IndexReader) -> tuple[Any, int]:
            return similar(reader, columns, -1)[0], reader.count

        (found, documents), as_of = asyncio.run(ask_once(settings, folder, ask))
        bound = settings.least if least is None else least
        matches = [match for match in found if match.similarity >= bound]
        some = print_matches(matches, wanted, documents, bound, as_json=as_json, quiet=quiet)
    if not quiet:
        behind = as_of.behind
        lines.append(f"as of frame {as_of.frame}, {behind.documents:,} documents behind the last verdict")
        complain("\n  ".join(lines))
    if not (any_match(summary) if text is None else some):
        context.exit(NOTHING)
