"""Our own command line, as a user has it: the command, its settings for a comparison, and what it says of itself."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import orjson

from bench.process import Finished

COMMAND = (sys.executable, "-m", "stream_lsh.cli")
# Everything that is alike, whatever it costs: with max_verified_matches = 0 there is no limit to buckets and
# candidates.
ALL_PAIRS = {"compare_with": "all", "max_verified_matches": 0, "max_matches": 0}
REPORT = re.compile(r"([\d,]+) documents? in [^\n(]*\(([\d,.]+)/s\)")


def comparison_options(threshold: float, text_fields: Sequence[str]) -> list[str]:
    """The settings under which our pairs are the truth's: its shingles, exact Jaccard, all pairs, all candidates."""
    options = ["--shingles", "words:3", "--tokens", "word", "--normalize", "lower,space", "--verify", "exact"]
    options += ["--threshold", str(threshold)]
    for name, value in ALL_PAIRS.items():
        options += ["--" + name.replace("_", "-"), str(value)]
    for name in text_fields:
        options += ["--text-field", name]
    return options


def from_anywhere() -> None:
    """Let the processes that are started find these modules, wherever they are started."""
    found = [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, found))


def pairs_command(file: Path | str, state: Path | None, pairs: Path | None, options: Sequence[str]) -> list[str]:
    """`stream-lsh pairs FILE ...`; without `pairs` they go to standard output."""
    command = [*COMMAND, "pairs", str(file), *options]
    if state is not None:
        command += ["--index", str(state)]
    if pairs is not None:
        command += ["--pairs", str(pairs)]
    return command


def own_rate(errors: str) -> float | None:
    """Documents a second by the summary on standard error; None if there is no such line."""
    found = REPORT.search(errors)
    return float(found[2].replace(",", "")) if found else None


def read_pairs(path: Path) -> Iterator[tuple[str, str]]:
    """(older, newer) of each line of a file of pairs."""
    with path.open("rb") as lines:
        for line in lines:
            pair = orjson.loads(line)
            yield pair["older"], pair["newer"]


def require_success(finished: Finished, what: str) -> None:
    """Stop the benchmark if a command failed, with what it said.

    Raises:
        SystemExit: the exit code was not 0.
    """
    if finished.code:
        raise SystemExit(f"{what} failed with exit code {finished.code}:\n{finished.errors.strip()}")
