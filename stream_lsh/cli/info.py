"""`stream-lsh info`: what an index holds."""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path

import click

from stream_lsh.cli.group import Command
from stream_lsh.cli.options import FOLDER, INDEX, index_option, json_option, option
from stream_lsh.errors import StoreError, UsageError
from stream_lsh.wording import duration, plain_table, size

SIZES = ("bytes", "outputs")  # sections of numbers of bytes
COLUMNS, NAMES = 80, 22  # of a line, of the longest name that is no path
EXAMPLES = """
stream-lsh info index
stream-lsh info index --check
stream-lsh info index --json
"""


@click.command(
    cls=Command,
    examples=EXAMPLES,
    help="""Show what the index in the folder DIR holds: documents, settings, sizes, age, inputs and outputs, and
whether it is sound.

--check reads all of it and compares it with its checksums. The exit code is 3 if something is wrong.""",
    params=[
        index_option(made=False),
        option(INDEX, "--check", "read all of it, and compare it with its checksums"),
        json_option("Output", "one JSON object"),
    ],
)
@click.argument("argument", type=FOLDER, metavar="[DIR]", required=False)
def info(argument: Path | None, folder: Path | None, check: bool, as_json: bool) -> None:
    if argument is not None and folder is not None:
        raise UsageError(f"the index is named twice, {argument} and --index {folder}; name it once")
    folder = argument or folder
    if folder is None:
        raise UsageError("no index: name its folder, for example: stream-lsh info index")

    from stream_lsh.embedded.information import information

    facts = information(folder, check)
    if as_json:
        click.echo(json.dumps(facts, ensure_ascii=False, indent=2))
    else:
        show(facts)
    health = facts["health"]
    problems = health["problems"] if isinstance(health, Mapping) else []
    if problems:
        raise StoreError(f"the index in {folder} is damaged: {'; '.join(map(str, problems))}")


def show(facts: Mapping[str, object]) -> None:
    """The facts by section on standard output, folded; with styles on a terminal."""
    sections = {
        title: list(rows(title, section if isinstance(section, Mapping) else {title: section}))
        for title, section in facts.items()
    }
    if not sys.stdout.isatty():
        fold = textwrap.TextWrapper(
            COLUMNS, subsequent_indent=" " * (NAMES + 4), break_long_words=False, break_on_hyphens=False
        )
        for title, section in sections.items():
            lines = (fold.wrap(f"  {name:{NAMES}}  {value}") for name, value in section)
            click.echo("\n".join([title, *chain.from_iterable(lines)]))
        return
    from rich.console import Console
    from rich.text import Text

    table = plain_table(None, "", "", header=False)
    for title, section in sections.items():
        table.add_row(Text(title, "bold"))
        for name, value in section:
            table.add_row(Text(f"  {name}", "dim"), Text(value))
    Console(highlight=False).print(table)


def rows(title: str, section: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Names and values of a section, a mapping in a list on a line of its own."""
    sizes = title in SIZES
    for key, value in section.items():
        if isinstance(value, list) and value and isinstance(value[0], Mapping):
            for item in value:
                first, *rest = item.items()
                title = f"{first[0]} {first[1]}" if isinstance(first[1], int) else str(first[1])
                yield title, ", ".join(f"{name.replace('_', ' ')} {worded(name, part, sizes)}" for name, part in rest)
        else:
            name = key if title == "outputs" else key.replace("_", " ")  # these are files
            yield name, worded(key, value, sizes)


def worded(name: str, value: object, sizes: bool = False) -> str:
    """A value as a person reads it."""
    if value is None or value == []:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        if name.startswith("seconds"):
            return duration(value)
        if sizes or name == "bytes":
            return size(round(value))
        return f"{value:,}" if isinstance(value, int) else f"{value:g}"
    if name == "shards" and isinstance(value, list):  # the documents of each
        spread = f", of {', '.join(worded('', held) for held in value)} documents" if len(value) > 1 else ""
        return f"{len(value)}{spread}"
    if isinstance(value, list | tuple):
        return ", ".join(worded(name, item, sizes) for item in value)
    return str(value)
