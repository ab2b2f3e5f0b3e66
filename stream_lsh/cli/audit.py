"""`stream-lsh audit`: what an index has dropped, and whether that was right."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from stream_lsh.audit.figures import FIGURES, Condition
from stream_lsh.cli.group import Command
from stream_lsh.cli.options import FILE, OUTPUTS, index_option, json_option, option
from stream_lsh.cli.stored import stored_settings
from stream_lsh.embedded.output_paths import check_outputs
from stream_lsh.errors import OutputError, StreamLshError
from stream_lsh.wording import count, percent

EXAMPLES = """
stream-lsh audit --index index --html report.html
stream-lsh audit --index index --html report.html --labels labels.jsonl
stream-lsh audit --index index --fail-if "dropped_share_of_source>0.5"
stream-lsh audit --index index --json > audit.json
"""
SECTION = "Audit"


@click.command(
    cls=Command,
    examples=EXAMPLES,
    help=f"""Show what an index has dropped: by source, time, similarity and size, with pairs to look at.

The report of --html is one file that loads nothing. Label the drops in it with the keys y and n, save the labels, and
give them back with --labels: the next audit estimates the share of wrong drops.

Another process may be writing to the index: the last commit is read, and nothing is changed.

The figures of --fail-if are {", ".join(FIGURES)}. The exit code is 1 if one of its conditions holds.""",
    params=[
        index_option(required=True),
        option(OUTPUTS, "--html FILE", "write the report; a file is replaced", FILE),
        json_option(text="one JSON object, without texts"),
        option(SECTION, "--labels FILE", "the labels that the report saved, as JSON lines", FILE),
        option(
            SECTION, "--verdicts FILE",
            "verdicts of dedup, as JSON lines; what was not compared is counted in them", FILE,
        ),
        option(
            SECTION, "--sample N", "drops to label, a fifth in each stratum", click.IntRange(5, 5000), default=100
        ),
        option(
            SECTION, "--fail-if FIGURE>NUMBER",
            "end with exit code 1 if the condition holds; also >=, < and <=; repeatable", multiple=True,
        ),
    ],
)  # fmt: skip
def audit(
    folder: Path, html: Path | None, as_json: bool, labels: Path | None, verdicts: Path | None, sample: int,
    fail_if: tuple[str, ...],
) -> None:  # fmt: skip
    conditions = [Condition.of(text) for text in fail_if]
    if html is not None:
        check_outputs({"--html": str(html)}, folder=folder, read={"--labels": labels, "--verdicts": verdicts})
    settings = stored_settings(folder)

    from stream_lsh.audit import html as page  # here, because they take numba and RocksDB with them
    from stream_lsh.audit import labels as labelled
    from stream_lsh.audit import report as audits

    given = None if labels is None else labelled.read_labels(labels)
    report = audits.audit(settings, folder, sample=sample, labels=given, verdicts=verdicts)
    if html is not None:
        try:
            html.write_bytes(page.html(report))
        except OSError as error:
            raise OutputError(f"{html} cannot be written: {error.strerror}") from None
    if as_json:
        click.echo(json.dumps(without_texts(report), indent=2))
    else:
        for line in summary(report):
            click.echo(line)
    failed = [one for one in conditions if one.holds(report["figures"])]
    if failed:
        said = "; ".join(f"{one.figure} is {report['figures'][one.figure]:.4g} ({one.text})" for one in failed)
        raise StreamLshError(f"the audit of {folder} fails: {said}")


def without_texts(value: Any) -> Any:
    """A report without the texts of documents and their spans."""
    if isinstance(value, Mapping):
        return {name: without_texts(part) for name, part in value.items() if name not in ("text", "spans", "sides")}
    return [without_texts(part) for part in value] if isinstance(value, list) else value


def summary(report: Mapping[str, Any]) -> list[str]:
    """The audit in a few lines."""
    documents, wrong, sources = report["documents"], report["wrong_drops"], report["sources"]
    lines = [
        f"{count(documents['dropped'])} of {count(documents['live'], 'live document')} were dropped: "
        f"{count(documents['exact_duplicates'], 'exact duplicate')}, "
        f"{count(documents['near_duplicates'], 'near-duplicate')}",
    ]  # fmt: skip
    for name, number in (("removed", "deleted or replaced"), ("damaged", "damaged"), ("provisional", "provisional")):
        if documents[name]:
            lines.append(
                f"{count(documents[name], f'{number} version' if name == 'removed' else f'{number} row')} left out"
            )
    for source in (sources or {}).get("highest", [])[:3]:
        lines.append(
            f"source {json.dumps(source['source'])}: {percent(source['dropped_share'])} of "
            f"{count(source['documents'], 'document')} dropped"
        )
    for shared in report["shared_texts"]:
        if shared["set"]:
            lines.append(
                f"source {json.dumps(shared['source'])}: {percent(shared['share_of_source'])} dropped in group "
                f"{shared['group']}; {percent(shared['shared_share'])} of its shingles are shared. {shared['set']}"
            )
    if wrong["labelled"]:
        share = "not known" if wrong["share"] is None else percent(wrong["share"])
        lines.append(
            f"wrong drops: {share}, between {percent(wrong['low'])} and {percent(wrong['high'])} with a confidence of "
            f"{percent(wrong['confidence'])}, by {count(wrong['labelled'], 'label')}"
        )
    if wrong["unused"]:
        lines.append(f"{count(wrong['unused'], 'label')} of documents that this index has not dropped: left out")
    return lines
