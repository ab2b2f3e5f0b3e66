"""The command line: `stream-lsh`. One file a command, imported when it is called, so that `--help` is there at once."""

from __future__ import annotations

from importlib import metadata

import click

from stream_lsh.cli.group import LazyGroup

# Name -> what it does, in the order of the help. The command is the attribute of this name in the module of this name.
COMMANDS = {
    "dedup": "Write the unique documents of a feed, byte for byte.",
    "pairs": "Write the pairs of near-duplicates in a feed.",
    "query": "Show the documents of an index that are similar to a text.",
    "delete": "Delete documents from an index.",
    "erase": "Erase deleted and replaced versions from the disk.",
    "backup": "Copy an index, also while a service writes to it.",
    "restore": "Make an index of a backup.",
    "set-stream-time": "Set the stream time of an index back after wrong event times.",
    "serve": "Serve an index over HTTP, with a page that shows what happens.",
    "mcp": "Serve an index to agents, as tools of the Model Context Protocol.",
    "groups": "Show the groups of an index: which documents spread.",
    "audit": "Show what an index has dropped, and whether that was right.",
    "alerts": "Try the rules of alerts, or send alerts to a receiver.",
    "tune": "Choose bands and rows for a threshold and a recall.",
    "evaluate": "Compare the pairs found with all true pairs, or with given pairs.",
    "info": "Show what an index holds.",
    "schema": "Print the JSON Schema of an output.",
    "health": "Check the worker or service on this machine, as containers do.",
    "kafka": "Run and watch the pipeline on Kafka; `stream-lsh kafka` lists its commands.",
    "demo": "Make a small news feed, and show the near-duplicates in it.",
}
EXAMPLES = """\
stream-lsh demo
stream-lsh dedup feed.jsonl > unique.jsonl
producer | stream-lsh pairs --index index - | consumer
stream-lsh query "some text" --index index
"""


def _print_version(context: click.Context, _: click.Parameter, value: bool) -> None:
    if value and not context.resilient_parsing:
        try:
            number = metadata.version("stream-lsh")
        except metadata.PackageNotFoundError:
            number = "(not installed)"
        click.echo(f"stream-lsh {number}")
        context.exit()


main = LazyGroup(
    name="stream-lsh",
    commands_help=COMMANDS,
    package="stream_lsh.cli",
    examples=EXAMPLES,
    help="Find near-duplicates in a stream of documents: JSON lines in, verdicts and pairs out, an index on disk.",
    params=[
        click.Option(
            ["--version"], is_flag=True, expose_value=False, is_eager=True, callback=_print_version,
            help="Show the version and exit.",
        )
    ],
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)  # fmt: skip
