"""`stream-lsh groups`: which documents spread."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stream_lsh.cli.group import Command, Option
from stream_lsh.cli.growth import draw_growth
from stream_lsh.cli.image import check_plot
from stream_lsh.cli.options import FILE, GROUPS, OUTPUTS, index_option, json_option, option
from stream_lsh.cli.rows import print_rows
from stream_lsh.documents.times import UNITS
from stream_lsh.embedded.output_paths import check_outputs
from stream_lsh.errors import UsageError
from stream_lsh.wording import count, printable

if TYPE_CHECKING:
    from stream_lsh.embedded.group_query import Order, Row
    from stream_lsh.embedded.group_store import Member
    from stream_lsh.judging.groups import Group

EXAMPLES = """
stream-lsh groups --index index
stream-lsh groups --index index --order growing --since 6h --limit 5
stream-lsh groups --index index --json | head -1
stream-lsh groups --index index 4711
stream-lsh groups --index index 4711 --plot growth.svg
"""
SHOWN = 20  # groups of a table for people


class Duration(click.ParamType):
    """A number and a unit, as milliseconds."""

    name = "time"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        found = re.fullmatch(r"(\d{1,9})([smhdw])", str(value))
        if found is None:
            self.fail(f"{value!r} is not a number with a unit of s, m, h, d or w, such as 90m, 24h or 7d", param, ctx)
        return 1000 * int(found[1]) * UNITS[found[2]]


def choice_options() -> list[Option]:
    """Which groups are shown, and how."""
    return [
        option(
            GROUPS, "--order",
            "by members; by first member, the latest first; or by members that joined within --since",
            click.Choice(["largest", "newest", "growing"]), default="largest",
        ),
        option(
            GROUPS, "--since TIME",
            "only groups that a member joined within 90m, 24h, 7d ... before the latest event time of the index, or "
            "before stream time after it was set back  [24h with --order growing]", Duration(),
        ),
        option(GROUPS, "--limit N", f"show the first N  [{SHOWN} on a terminal]", click.IntRange(min=1)),
        json_option(),
        option(
            OUTPUTS, "--plot FILE.png|.svg", "with GROUP, write an image of its members and sources over time", FILE
        ),
    ]  # fmt: skip


@click.command(
    cls=Command,
    examples=EXAMPLES,
    help="""Show the groups of an index, the largest first. A group is a kept document and the documents dropped for it.
An index has groups unless it was made by `dedup --no-groups` or `pairs`.

GROUP is the number of a group: the command shows its members in the order of arrival.

Another process may be writing to the index: the last commit is read. `stream-lsh kafka groups` shows the groups of a
pipeline. The output is a table on a terminal, and JSON lines elsewhere.""",
    params=[index_option(required=True), *choice_options()],
)
@click.argument("group", type=click.IntRange(min=0), metavar="[GROUP]", required=False)
def groups(folder: Path, **chosen: Any) -> None:
    show_groups(folder, **chosen)


def show_groups(
    folder: Path, *, group: int | None, order: Order, since: int | None, limit: int | None, as_json: bool,
    plot: Path | None,
) -> None:  # fmt: skip
    """Show one group, or a table of them, of what an index or a role group has stored in a folder.

    Raises:
        UsageError: a plot of no single group.
    """
    if plot is not None:
        if group is None:
            raise UsageError("--plot draws one group: name it by its number")
        check_outputs({"--plot": str(plot)}, folder=folder)
        check_plot(plot)
    lines = as_json or not sys.stdout.isatty()
    if group is not None:
        _show_one(folder, group, limit, plot, lines=lines)
    else:
        _show_table(folder, order, since, limit, lines=lines)


def _show_one(folder: Path, group: int, limit: int | None, plot: Path | None, *, lines: bool) -> None:
    from stream_lsh.embedded.group_table import member_json, whole  # here, because it takes RocksDB with it

    with whole(folder, group) as (row, members):
        if lines:
            for member in members:
                click.echo(member_json(row, member))
        else:
            show_members(row, members, limit or SHOWN)
    if plot is not None:
        with whole(folder, group) as (row, members):
            draw_growth(plot, row, members)


def _show_table(folder: Path, order: Order, since: int | None, limit: int | None, *, lines: bool) -> None:
    from stream_lsh.embedded.group_table import table

    found = table(folder, order, since, limit or (None if lines else SHOWN))
    if lines:
        for each in found:
            click.echo(each.json)
    else:
        show(found)


def show(found: Iterable[Row]) -> None:
    """The table for people, in the terms of its JSON."""
    rows = [json.loads(row.json) for row in found]
    since = ["joined_since"] if any("joined_since" in row for row in rows) else []
    numbers = ["group", "live_members", "total_members", *since, "sources"]
    print_rows(
        [*numbers, "representative"],
        [([f"{row[name]:,}" for name in numbers] + [said(row["representative"]["id"])], _times(row)) for row in rows],
        len(numbers),
    )  # fmt: skip


def _times(row: Mapping[str, Any]) -> str:
    """The note on a group: its times, and the first of its sources."""
    times = [f"{name} {moment(row[name])}" for name in ("first", "last") if row[name] is not None]
    more = row["sources"] - len(row["first_sources"])
    sources = ", ".join(map(said, row["first_sources"])) + (f" and {more:,} more" if more else "")
    return "; ".join(filter(None, (", ".join(times), sources and f"sources {sources}")))


def show_members(group: Group, members: Iterator[Member], limit: int) -> None:
    """The members of a group for people, the first of them, in the terms of their JSON."""
    from stream_lsh.embedded.group_table import member_json

    rows = [json.loads(member_json(group, member)) for _, member in zip(range(limit), members, strict=False)]
    print_rows(
        ["seq", "similarity", "kind", "time", "id"],
        [
            (
                [
                    f"{row['seq']:,}", "" if row["similarity"] is None else f"{row['similarity']:.3f}", row["kind"],
                    moment(row["time"]), said(row["id"]),
                ],
                _became(row),
            )
            for row in rows
        ],
        2,
    )  # fmt: skip
    if more := sum(1 for _ in members):
        click.echo(f"{count(more, 'more member')}; --limit N shows the first N, --json all")


def _became(row: Mapping[str, Any]) -> str:
    """The note on a member: its source, and what became of it."""
    parts = ["" if row["source"] is None else f"source {said(row['source'])}"]
    if "removed_by" in row:
        at = f", removed_at {moment(row['removed_at'])}" if row["removed_at"] is not None else ""
        parts.append(f"removed_by {row['removed_by']:,}{at}")
    return "; ".join(filter(None, (*parts, "representative" if row.get("representative") else "")))


def moment(time: int | None) -> str:
    """An event time as a person reads it, in UTC."""
    return "" if time is None else datetime.fromtimestamp(time / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def said(id: str | int | None) -> str:
    """An id or a source as a person reads it, control characters escaped; nothing of one that is not there."""
    return "" if id is None else printable(str(id))
