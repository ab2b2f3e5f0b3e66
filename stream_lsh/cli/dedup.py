"""`stream-lsh dedup`: the unique documents of a feed."""

from __future__ import annotations

from typing import Any

import click
from click.core import ParameterSource

from stream_lsh.cli.group import Command
from stream_lsh.cli.running import INPUT_HELP, job_options, run_job
from stream_lsh.errors import UsageError

EXAMPLES = """
stream-lsh dedup feed.jsonl > unique.jsonl
stream-lsh dedup week.parquet --id-field url --unique kept.parquet
stream-lsh dedup feed.jsonl.gz --index index --verdicts verdicts.jsonl
stream-lsh dedup feed.jsonl --index index --on-conflict update
stream-lsh dedup feed.jsonl --index index --groups groups.jsonl
stream-lsh dedup feed.jsonl --index index --alerts - --rules rules.toml --source-field outlet --time-field published
stream-lsh dedup --feed https://news.example/rss --feed-log entries.jsonl --every 5m --index index
producer | stream-lsh dedup --index index --threshold 0.7 - | consumer
"""


@click.command(
    cls=Command,
    examples=EXAMPLES,
    help="Write the documents of a feed that are not near-duplicates of an earlier one, unchanged and in order.\n"
    + INPUT_HELP
    + """
The unique documents are written to standard output, unless --unique names a file, or another output is `-`.

An index in --index keeps groups, unless it is made with --no-groups. A group is a kept document and the documents
dropped for it. `stream-lsh groups` shows the groups, --groups writes their events, and --alerts writes what the rules
of --rules find.""",
    params=job_options("unique"),
)
@click.pass_context
def dedup(context: click.Context, /, **_: Any) -> None:
    params, alerts, rules = context.params, context.params["alerts"], context.params["rules"]
    needing = {"--groups": params["groups"], "--alerts": alerts}
    if context.get_parameter_source("source_field") is ParameterSource.COMMANDLINE:
        needing["--source-field"] = params["source_field"]
    given = [option for option, value in needing.items() if value is not None]
    if params["no_groups"] and given:
        raise UsageError(f"{given[0]} is for groups; leave out --no-groups")
    if given == ["--source-field"] and params["folder"] is None and params["keep_per"] is None:
        raise UsageError("--source-field is for groups, which an index keeps: add --index DIR or --groups FILE")
    if params["final"] and params["only_new"]:
        raise UsageError("--final writes all that is kept at the end; leave out --only-new")
    if (alerts is None) != (rules is None):
        missing = "--rules FILE, which says what for" if rules is None else "--alerts FILE, which they go to"
        raise UsageError(f"--{'rules' if alerts is None else 'alerts'}: add {missing}")
    run_job(context, "unique", "stream-lsh dedup feed.jsonl > unique.jsonl", groups=not params["no_groups"])
