"""`stream-lsh query`: what an index holds that is similar to a text."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stream_lsh.cli.failures import complain
from stream_lsh.cli.group import Command, Option
from stream_lsh.cli.options import (
    DOCUMENTS,
    OUTPUTS,
    SIMILARITY,
    Number,
    index_option,
    json_option,
    option,
    quiet_option,
    within_option,
)
from stream_lsh.cli.progress import progress_display
from stream_lsh.cli.running import STANDARD, chosen_inputs
from stream_lsh.cli.stored import stored_answers, stored_settings
from stream_lsh.cli.summary import summary_lines
from stream_lsh.errors import InputError, StreamLshError, UsageError
from stream_lsh.wording import count, plain_table, printable

if TYPE_CHECKING:
    from rich.text import Text

    from stream_lsh import Match
    from stream_lsh.embedded.report import Summary
    from stream_lsh.settings.model import Settings

EXAMPLES = """
stream-lsh query "the text to look for" --index index
stream-lsh query article.txt --index index --top 5 --threshold 0.9
stream-lsh query article.txt --index index --within lang=en
stream-lsh query --input feed.jsonl.gz --index index --output verdicts.jsonl
stream-lsh query "[0.12, -0.5, 0.33]" --index vectors
stream-lsh query c3a15f0e9b7d2468 --index hashes
cat article.txt | stream-lsh query - --index index --json | head -1
"""
NOTHING = 1
"""The exit code if nothing matches, as of grep."""
TEXT_FILES = (".txt", ".json", ".jsonl", ".md", ".html", ".htm", ".csv")


def query_options() -> list[Option]:
    """What is looked for, and how it is shown."""
    return [
        option(
            SIMILARITY, "--threshold S",
            "with TEXT, the least similarity of a match, at least that of the index  [that of the index]",
            Number(0, 1), name="least",
        ),
        option(
            SIMILARITY, "--top N", "the N best matches of each document; 0 = all found  [max_matches, 10]",
            click.IntRange(min=0),
        ),
        within_option("with TEXT, the value"),
        option(
            DOCUMENTS, "--input FILE",
            "JSON lines (also .gz, .xz, .zst), a folder of text files, or - for standard input; repeatable",
            name="inputs", multiple=True,
        ),
        option(
            OUTPUTS, "--output FILE",
            "with --input, file for the verdicts; default: standard output",
        ),
        option(OUTPUTS, "--overwrite", "replace the file of --output if it is there"),
        json_option(),
        quiet_option(),
    ]  # fmt: skip


@click.command(
    cls=Command,
    examples=EXAMPLES,
    help="""Show the documents of an index that are similar to a text, the most similar first. The index does not
change. Another process may be writing to it: the last commit is read.

TEXT is the text itself, a file with it, or - for standard input. It is compared with the settings of the index. For an
index of sets TEXT is a list of elements, one a line or separated by commas. For an index of vectors it is a JSON list
of numbers, or float32 in base64. For an index of bit vectors it is hexadecimal or base64.

The matches are a table on a terminal, and JSON lines elsewhere. The exit code is 1 if nothing matches.

With --input instead of TEXT, each document of a feed gets the verdict that it would get as the next document. The
documents are not compared with each other. A document that cannot be processed is `rejected`, with the reason.""",
    params=[index_option(required=True), *query_options()],
)
@click.argument("text", metavar="[TEXT|FILE|-]", required=False)
@click.pass_context
def query(
    context: click.Context,
    /,
    text: str | None,
    folder: Path,
    least: float | None,
    top: int | None,
    within: tuple[str, ...],
    inputs: tuple[str, ...],
    output: str | None,
    overwrite: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    check_options(text, inputs, output, within, least)
    given = {} if top is None else {"max_matches": top}
    if text is None:
        chosen = chosen_inputs(inputs, "")
        found = query_documents(chosen, output or STANDARD, folder, given, quiet, overwrite=overwrite)
    else:
        found = query_text(text, values_of(within), folder, given, least, as_json=as_json, quiet=quiet)
    context.exit(0 if found else NOTHING)


def check_options(
    text: str | None, inputs: Sequence[str], output: str | None, within: Sequence[str], least: float | None
) -> None:  # fmt: skip
    """Raise UsageError if options do not belong together."""
    if (text is None) is not bool(inputs):
        raise UsageError("give either a text to look for, or --input FILE with documents")
    if output is not None and not inputs:
        raise UsageError("--output is for --input; the matches of a single text go to standard output")
    if within and inputs:
        raise UsageError("--within is for TEXT; the documents of --input have the fields themselves")
    if least is not None and inputs:
        raise UsageError("--threshold is for TEXT; the verdicts of --input are those of the index and its threshold")


def query_documents(
    inputs: Sequence[str], output: str, folder: Path, given: Mapping[str, Any], quiet: bool, *, overwrite: bool
) -> bool:  # fmt: skip
    """The verdicts on the documents of some inputs, with progress and summary on standard error, and whether any
    document matches. overwrite: replace a file that is there."""
    settings = stored_settings(folder, **given)

    from stream_lsh.embedded.querying import query  # here, because it takes numba and RocksDB with it

    with progress_display(quiet=quiet, writes_standard_output=output == STANDARD) as progress:
        summary = query(settings, inputs, output, folder, progress, overwrite=overwrite)
    if not quiet:
        lines = summary_lines(summary, max_matches=settings.max_matches, dead_letters=None, queried=True)
        complain("\n  ".join(lines))
    return any_match(summary)


def any_match(summary: Summary) -> bool:
    """Whether any document of --input matches; one that is in the index matches itself.

    Raises:
        StreamLshError: all documents were rejected.
    """
    rejected = sum(summary.rejected.values())
    if rejected and rejected == summary.documents:
        raise StreamLshError(f"all of --input was rejected ({count(rejected, 'document')}); the verdicts say why")
    return bool(summary.pairs or summary.redelivered)


def query_text(
    text: str,
    within: Mapping[str, Any],
    folder: Path,
    given: Mapping[str, Any],
    threshold: float | None,
    *,
    as_json: bool,
    quiet: bool,
) -> bool:
    """The matches of one text on standard output, and whether there are any. within: values by field. threshold: least
    similarity, None = that of the index.

    Raises:
        UsageError: the index does not look for what is less similar than its own threshold.
    """
    items = (stored_answers(folder) or {}).get("measure", "jaccard") not in ("jaccard", "containment")
    wanted = read_text(text, bare=not items)
    if not wanted.strip():
        raise UsageError("the text is empty; give some text, a file, or - for standard input")
    settings = stored_settings(folder, **given)
    check_values(within, settings.match_within, folder)
    check_least(threshold, settings, folder)

    from stream_lsh import Deduplicator, prepare

    prepare(settings)
    with Deduplicator(settings, index=folder, read_only=True) as deduplicator:
        try:
            found = deduplicator.query(asked(wanted, settings), within)
        except TypeError as error:  # a list instead of bits, say
            raise UsageError(str(error)) from None
        matches = [match for match in found if threshold is None or match.similarity >= threshold]
        documents = len(deduplicator)
    return print_matches(matches, wanted, documents, threshold or settings.least, as_json=as_json, quiet=quiet)


def print_matches(
    matches: Sequence[Match], wanted: str, documents: int, least: float, *, as_json: bool, quiet: bool
) -> bool:  # fmt: skip
    """Print the matches of a text, and return whether there are any. documents: among which it was looked for."""
    terminal = sys.stdout.isatty()
    if as_json or not terminal:
        for match in matches:
            line = {"id": match.id, "seq": match.seq, "similarity": match.similarity, **match.evidence}
            click.echo(json.dumps(line, ensure_ascii=False))
    elif matches:
        show(matches, wanted)
    if not matches and not quiet and sys.stderr.isatty():
        complain(f"nothing among {count(documents, 'document')} has a similarity of {least:g} or more")
    return bool(matches)


def values_of(within: Sequence[str]) -> dict[str, Any]:
    """The values of FIELD=VALUE by field.

    Raises:
        UsageError: there is no value, or a field has two.
    """
    values: dict[str, Any] = {}
    for given in within:
        name, equals, value = given.partition("=")
        if not name or not equals:
            raise UsageError(f"--within {given}: give FIELD=VALUE, for example lang=en")
        if name in values:
            raise UsageError(f"--within {name}=... is given twice; a document has one value")
        try:
            values[name] = json.loads(value)
        except (ValueError, RecursionError):
            values[name] = value
    return values


def check_least(least: float | None, settings: Settings, folder: Path) -> None:
    """Raise UsageError if an index does not look for so little similarity."""
    if least is not None and not least >= settings.least:  # NaN, too
        raise UsageError(
            f"--threshold {least:g}: the index in {folder} looks for a similarity of {settings.least:g} or more; "
            "give that or more, or feed the documents into an index with a lower threshold"
        )


def check_values(within: Collection[str], fields: Sequence[str], folder: Path) -> None:
    """Raise UsageError if these are not the fields that the documents of an index match within."""
    if within and not fields:
        raise UsageError(f"all documents of the index in {folder} may match: leave out --within")
    if set(within) != set(fields):
        given = " ".join(f"--within {name}=VALUE" for name in fields)
        raise UsageError(f"the documents of the index in {folder} match within {', '.join(fields)}: give {given}")


def read_text(argument: str, *, bare: bool = True) -> str:
    """The text that the argument is or names. bare: whether what looks like the name of a file, and is none, is a
    mistake; base64 looks like one.

    Raises:
        InputError: a file that cannot be read, or is not UTF-8.
    """
    if argument == "-":
        return _decoded(sys.stdin.buffer.read(), "standard input")
    try:
        is_file = Path(argument).is_file()
    except OSError:  # longer than a name may be
        is_file = False
    if is_file:
        try:
            return _decoded(Path(argument).read_bytes(), argument)
        except OSError as error:
            raise InputError(f"{argument}: {error.strerror}") from None
    bare = bare and not any(character.isspace() for character in argument)
    if bare and (os.sep in argument or argument.lower().endswith(TEXT_FILES)):
        shown = argument if len(argument) <= 200 else f"{argument[:200]}..."
        raise InputError(f"there is no file {shown}; to look for these very characters, pipe them in and give -")
    return argument


def _decoded(content: bytes, name: str) -> str:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{name} is not UTF-8: byte {error.start} is 0x{content[error.start]:02x}") from None


def asked(text: str, settings: Settings) -> str | list[str] | list[float] | dict[str, float]:
    """The value that a text denotes in an index with these settings: a text, a set, weights, a vector or bits.

    Raises:
        UsageError: it begins like JSON, and is none.
    """
    if settings.measure == "weighted-jaccard" and text.lstrip().startswith("{"):
        try:
            weights: dict[str, float] = json.loads(text)
        except (ValueError, RecursionError):
            raise UsageError("the set begins with { but is not a JSON object of weights") from None
        return weights
    if settings.measure == "weighted-jaccard" or settings.set_field is not None:
        return elements(text)
    if settings.item is None:
        return text
    if not text.lstrip().startswith("["):
        return text.strip()
    try:
        numbers: list[float] = json.loads(text)
    except (ValueError, RecursionError):
        raise UsageError("the vector begins with [ but is not a JSON list of numbers") from None
    return numbers


def elements(text: str) -> list[str]:
    """The elements of a set: separated by commas or line ends."""
    return [element for part in text.splitlines() for piece in part.split(",") if (element := piece.strip())]


def show(matches: Sequence[Match], text: str = "") -> None:
    """A table of matches on standard output; of quotations with the passages, marked in the text that was asked for."""
    from rich.console import Console
    from rich.text import Text

    passages = any("passages" in match.evidence for match in matches)
    shares = {"contained_in": ">of the text", "contains": ">of the document"} if passages else {}
    table = plain_table(None, ">similarity", "id", ">seq", *shares.values())
    for match in matches:
        parts = (f"{100 * match.evidence[name]:.0f} %" for name in shares)
        table.add_row(f"{match.similarity:.3f}", Text(printable(str(match.id))), f"{match.seq:,}", *parts)
    console = Console(highlight=False)
    console.print(table)
    for match in matches if passages else ():
        if match.evidence["passages"]:
            console.print(Text(f"\n{printable(str(match.id))}"))
        for line in marked(text, match.evidence["passages"]):
            console.print(line)


SHOWN = 3
"""Passages of a match that are shown, the longest."""
AROUND = 40  # characters before and behind a passage
MOST = 240  # characters of a passage; the middle of a longer one is left out
STYLE = "bold black on yellow"


def marked(text: str, passages: Sequence[Mapping[str, Any]]) -> Iterator[Text]:
    """The longest passages of a text, each a line or two; `newer` says where each begins and ends in it."""
    from rich.text import Text

    for passage in passages[:SHOWN]:
        begin, end = passage["newer"]
        there = "-".join(f"{place:,}" for place in passage["older"])
        line = Text(f"    {passage['words']} words, there at {there}: ", style="dim")
        line.append(("..." if begin > AROUND else "") + _flat(text[max(0, begin - AROUND) : begin]), style="dim")
        line.append(_shortened(_flat(text[begin:end])), style=STYLE)
        line.append(_flat(text[end : end + AROUND]) + ("..." if end + AROUND < len(text) else ""), style="dim")
        yield line


def _flat(text: str) -> str:
    """In one line."""
    return "".join(" " if character.isspace() else character for character in text)


def _shortened(text: str) -> str:
    return text if len(text) <= MOST else f"{text[: MOST // 2]} ... {text[-MOST // 2 :]}"
