"""`stream-lsh pairs`: the pairs of near-duplicates in a feed."""

from __future__ import annotations

from typing import Any

import click

from stream_lsh.cli.group import Command
from stream_lsh.cli.running import INPUT_HELP, job_options, run_job

# `pairs` is to report all of them. A bound remains, because one text a million times has 10^12 pairs.
MOST = 1000
EXAMPLES = """
stream-lsh pairs feed.jsonl > pairs.jsonl
stream-lsh pairs archive/ --threshold 0.5 --max-matches 0 --pairs pairs.jsonl.gz
producer | stream-lsh pairs --index index - | consumer
"""


@click.command(
    cls=Command,
    examples=EXAMPLES,
    help="Write every pair of near-duplicates, a document and an earlier one, as soon as it is found.\n"
    + INPUT_HELP
    + """
The pairs are written to standard output, unless --pairs names a file, or another output is `-`.

A new index compares a document with all earlier documents (--compare-with all). It verifies up to 1,000 candidates of
each document, and lists up to 1,000 matches. An index that `dedup` has made (--compare-with kept) gives only the pairs
with kept documents.""",
    params=job_options("pairs"),
)
@click.pass_context
def pairs(context: click.Context, /, **_: Any) -> None:
    run_job(
        context, "pairs", "stream-lsh pairs feed.jsonl > pairs.jsonl",
        always={"max_matches": MOST}, when_new={"compare_with": "all", "max_verified_matches": MOST,
        "max_candidates": MOST},
    )  # fmt: skip
