"""`stream-lsh mcp`: an index as tools for agents."""

from __future__ import annotations

from pathlib import Path

import click

from stream_lsh.cli.extra import MCP_PACKAGES, require
from stream_lsh.cli.failures import complain
from stream_lsh.cli.group import Command
from stream_lsh.cli.options import (
    SECTIONS,
    SIMILARITY,
    config_of,
    config_option,
    index_option,
    load_settings,
    quiet_option,
    setting,
    within_option,
)
from stream_lsh.cli.query import values_of
from stream_lsh.cli.stored import bound, stored_answers
from stream_lsh.errors import UsageError
from stream_lsh.families.measure import MEASURES as ALL
from stream_lsh.mcp import FOR_NOTES, MEASURES
from stream_lsh.settings.model import Settings
from stream_lsh.settings.sources import gathered
from stream_lsh.wording import count

EXAMPLES = """
stream-lsh mcp --index notes
stream-lsh mcp --index notes --within agent=alice
claude mcp add notes -- stream-lsh mcp --index notes
"""


@click.command(
    cls=Command,
    examples=EXAMPLES,
    help="""Serve an index to an agent as tools of the Model Context Protocol, over standard input and output: check,
add, similar, get, compare, groups, members, delete.

A note is on the disk when add answers. A new index gets settings for short notes (--shingles chars:3, --threshold 0.5,
--on-conflict update), unless others are given. A note whose id is there already is replaced.

With --within the agent sees and changes only the notes with this value; their ids are their own. Values of a new index
are fields of --match-within.

One process writes to an index. `query`, `groups` and `info` can read it at the same time.""",
    params=[
        index_option(required=True),
        within_option("the agent's value"),
        *(
            setting(name, default=FOR_NOTES.get(name))
            for name in (*SECTIONS[SIMILARITY], "match_within", "on_conflict")
        ),
        config_option(),
        quiet_option(),
    ],
)  # fmt: skip
@click.pass_context
def mcp(context: click.Context, /, folder: Path, within: tuple[str, ...], quiet: bool, **_: object) -> None:
    require("mcp", "mcp", MCP_PACKAGES)
    values = values_of(within)
    stored = stored_answers(folder)

    if stored is None:
        _check_measure(context)

    # Here, because it takes numba and RocksDB with it.
    from stream_lsh import Deduplicator, prepare
    from stream_lsh.mcp.notes import Notes
    from stream_lsh.mcp.scope import Scope
    from stream_lsh.mcp.server import serve

    new = {**FOR_NOTES, **({"match_within": list(values)} if values else {})}
    settings = load_settings(context, defaults=new if stored is None else bound(stored, context.params["measure"]))
    prepare(settings)
    with Deduplicator(settings, index=folder, commit="manual") as deduplicator:
        notes = Notes(deduplicator, Scope(deduplicator.settings.match_within, values))
        if not quiet:
            complain(f"serving {folder} with {count(len(deduplicator), 'note')} on standard input and output")
        serve(notes)


def _check_measure(context: click.Context) -> None:
    """Say that a measure compares no notes, before the settings for notes are found not to go with it.

    Raises:
        UsageError: it compares something else.
    """
    measure = context.params["measure"] or gathered(Settings, config_of(context), {}, {})[0].get("measure")
    if measure in ALL and measure not in MEASURES:
        raise UsageError(f"measure = {measure} compares no notes; leave it out, or give {' or '.join(MEASURES)}")
