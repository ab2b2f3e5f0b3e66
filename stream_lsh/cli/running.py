"""What `dedup` and `pairs` share: one run of the job from a command line."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import click

from stream_lsh.cli.failures import complain, set_resumes
from stream_lsh.cli.options import (
    DOCUMENTS,
    INDEX,
    NAME,
    RUNNING,
    SECTIONS,
    SIMILARITY,
    config_of,
    config_option,
    groups_options,
    index_option,
    load_settings,
    option,
    output_options,
    quiet_option,
    setting,
)
from stream_lsh.cli.progress import progress_display
from stream_lsh.cli.rejected import Share, check_rejected
from stream_lsh.cli.stored import bound, stored_answers
from stream_lsh.cli.summary import summary_lines
from stream_lsh.cli.webfeeds import FIELDS, chosen_feeds, feed_options
from stream_lsh.embedded.output_paths import check_outputs
from stream_lsh.errors import UsageError

ONLY_KEPT = "the index compares with what was kept (compare_with = kept): these are the pairs with kept documents only"
OUTPUTS = ("unique", "pairs", "verdicts", "groups", "alerts", "dead_letters")
STANDARD = "-"
INPUT_HELP = """
INPUT is a file of JSON lines (.jsonl; also .gz, .xz, .zst), a table (.parquet, .arrow, .csv, .tsv), a crawl (.warc,
.wet; also compressed), a folder of text files, or - for standard input. Several inputs are read one after the other.
Without INPUT, standard input is read if it is a pipe.
"""


def job_options(standard: str) -> list[click.Parameter]:
    """INPUT, the outputs, the index and all settings; `standard` is the output of the command."""
    return [
        click.Argument(["inputs"], nargs=-1, metavar="[INPUT ...]", type=NAME),
        *output_options(standard),
        *(setting(name) for name in SECTIONS[SIMILARITY] + SECTIONS[DOCUMENTS]),
        *(groups_options() if standard == "unique" else ()),
        index_option(),
        *(setting(name) for name in SECTIONS[INDEX]),
        config_option(),
        *(feed_options() if standard == "unique" else ()),
        option(
            RUNNING, "--max-rejected SHARE",
            "end with exit code 1 if more than this share of all documents was rejected, 0.01 or 1%; default: if all "
            "documents of an input were rejected", Share(),
        ),
        quiet_option(),
    ]  # fmt: skip


def run_job(
    context: click.Context,
    standard: str,
    example: str,
    *,
    groups: bool = False,
    always: Mapping[str, Any] = MappingProxyType({}),
    when_new: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """Run the job that the command line describes, with progress and summary on standard error.

    Args:
        groups: a persistent index that it makes keeps them, if it can; otherwise `dedup` refuses one that does.
        always: the command's own defaults. when_new: those of an index that it makes; one that is there has its own.

    Raises:
        StreamLshError, KeyboardInterrupt, OSError: for `failures.guarded` to explain.
    """
    given = context.params
    asking = bool(given.get("feeds"))
    inputs = chosen_inputs(given["inputs"], example) if given["inputs"] or not asking else []
    named = [*inputs, *([str(given["feed_log"])] if given.get("feed_log") is not None else [])]
    read = {"--config": config_of(context), "--rules": given.get("rules")}
    outputs = chosen_outputs(given, standard, named, read)
    fields = FIELDS if asking and not inputs else {"source_field": FIELDS["source_field"]} if asking else {}
    folder: Path | None = given["folder"]
    set_resumes(context, folder)

    stored = stored_answers(folder)
    own = when_new if stored is None else bound(stored, given["measure"])
    settings = load_settings(context, defaults={**always, **fields, **own})
    feeds = chosen_feeds(given, versions=settings.updates) if "feeds" in given else None
    asked = standard == "pairs"
    if asked and not given["quiet"] and settings.compare_with == "kept":
        complain(ONLY_KEPT)

    from stream_lsh.alerts.rules import read_rules
    from stream_lsh.documents.erased_letters import FILE as DEAD_LETTERS
    from stream_lsh.embedded.job import Job  # here, because it takes numba and RocksDB with it

    rules = read_rules(given["rules"]) if given.get("rules") is not None else ()
    # A temporary index has no reader for them.
    kept = None if groups and folder is not None and settings.compare_with == "kept" else False
    job = Job(
        settings, [*inputs, *([feeds] if feeds is not None else [])], outputs, folder, overwrite=given["overwrite"],
        only_new=given["only_new"], rules=rules, groups=kept, no_groups=not groups and not asked,
        final=given.get("final", False),
    )  # fmt: skip
    with progress_display(quiet=given["quiet"], writes_standard_output=STANDARD in outputs.values()) as progress:
        summary = job.run(progress)
    if not given["quiet"]:
        lines = summary_lines(
            summary, max_matches=settings.max_matches, dead_letters=outputs.get("dead_letters"), pairs=asked
        )
        complain("\n  ".join(lines))
    letters = outputs.get("dead_letters", str(folder / DEAD_LETTERS) if folder is not None else None)
    check_rejected(summary, given["max_rejected"], letters)


def chosen_inputs(inputs: Sequence[str], example: str) -> list[str]:
    """The inputs; none at all means standard input, unless that is a terminal, where it would look like a hang.

    Raises:
        UsageError: no input, or standard input twice.
    """
    if not inputs:
        if sys.stdin is None or sys.stdin.isatty():
            raise UsageError(f"no INPUT: name a file, a folder, or - for standard input; for example: {example}")
        return [STANDARD]
    if list(inputs).count(STANDARD) > 1:
        raise UsageError("standard input (-) is given more than once; it can be read only once")
    return list(inputs)


def chosen_outputs(
    given: Mapping[str, Any],
    standard: str,
    inputs: Sequence[str],
    read: Mapping[str, Path | None] = MappingProxyType({}),
) -> dict[str, str]:
    """The path of each output. `standard` is written to standard output unless it has a path or another output is `-`.
    read: files by the options that name them.

    Raises:
        UsageError: two outputs in one place, or an output over what is read, or in an index.
    """
    outputs = {name: path for name in OUTPUTS if (path := given.get(name)) is not None}
    if standard not in outputs and STANDARD not in outputs.values():
        outputs[standard] = STANDARD
    flags = {f"--{name.replace('_', '-')}": path for name, path in outputs.items()}
    check_outputs(flags, inputs, folder=given.get("folder"), read=read)
    return outputs
