"""`stream-lsh alerts test`: what rules would have told."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stream_lsh.cli.failures import complain
from stream_lsh.cli.group import Command, Group, Option
from stream_lsh.cli.options import OUTPUTS, quiet_option, state_option, with_options
from stream_lsh.wording import count

if TYPE_CHECKING:
    from stream_lsh.embedded.rehearsal import Told

TEST_EXAMPLES = """
stream-lsh alerts test rules.toml --state index
stream-lsh alerts test rules.toml --state index --json | jq -r .rule | sort | uniq -c
"""
NOT_KNOWN = (
    "by what the index has stored of kept and dropped documents, as if the rules had been there from the beginning: "
    "log time is made of their times again, without those of redelivered and rejected documents and without "
    "--max-ahead, so it may be another by some documents; rows of groups as they were then, and ids of kept documents "
    "without copies, are not known"
)


@click.group(cls=Group, examples=TEST_EXAMPLES, help="Alerts: try rules on an index.")
def alerts() -> None:
    pass


@alerts.command(
    cls=Command,
    examples=TEST_EXAMPLES,
    help="""Show which alerts the rules of a file would have told of the documents of an index, which has to keep groups
(`dedup --groups` or `--alerts`). Nothing is changed, and another process may be writing to it.

It goes by what is stored, so some things it cannot know: how log time was moved by redelivered and rejected documents
and by --max-ahead, what groups were like at that time (`group` is a number here), and the ids of kept documents
without copies (null).

On a terminal these are sentences, elsewhere JSON lines.""",
)
@click.argument("rules", type=click.Path(path_type=Path))
@with_options(
    [
        state_option(required=True),
        Option(["--json", "as_json"], is_flag=True, section=OUTPUTS, help="JSON lines, on a terminal too"),
        quiet_option(),
    ]
)
def test(rules: Path, state: Path, as_json: bool, quiet: bool) -> None:
    from stream_lsh.alerts.rules import read_rules

    found = read_rules(rules)
    from stream_lsh.embedded.rehearsal import rehearse  # here, because it takes RocksDB with it

    rehearsed = rehearse(state, found)
    lines = as_json or not sys.stdout.isatty()
    for told in rehearsed.told:
        click.echo(told.line if lines else sentence(told), nl=not lines)
    if not quiet:
        forgotten = f"; {count(rehearsed.forgotten, 'group or source', 'groups or sources')} had no room for their time"
        documents = count(rehearsed.documents, "document")
        complain(f"{count(len(rehearsed.told), 'alert')} in {documents}{forgotten if rehearsed.forgotten else ''}")
        complain(NOT_KNOWN)


def sentence(told: Told) -> str:
    """An alert as a person reads it."""
    from stream_lsh.documents.times import moment

    alert = told.alert
    what = ", ".join(f"{name} {value}" for name, value in alert.found.items())
    where = f"group {alert.subject}" if isinstance(alert.subject, int) else f"source {alert.subject}"
    return f"{moment(alert.time)}  {alert.rule.name}: {where}, {what}, at document {told.seq} {told.id.decode()}"
