"""One run of the engine's job over one file, in a process of its own: `python -m bench.one FILE --settings ...`.

It is what the command line runs, with any settings, and its summary as JSON; "seconds" are without start-up: from the
first document to the last commit.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.engine import require_success
from bench.process import Finished, Sample, folder_bytes, own_peak, watch
from stream_lsh.cli.group import prepare_process
from stream_lsh.embedded.job import Job
from stream_lsh.settings.model import Settings


def run(
    file: Path,
    settings: Mapping[str, Any],
    work: Path,
    outputs: Mapping[str, Path],
    on_sample: Callable[[Sample], None] | None = None,
    state: Path | None = None,
) -> tuple[dict[str, Any], Finished]:
    """One run into the index of a folder, or into a fresh one below `work`; the summary, and what was seen of the
    process."""
    with tempfile.TemporaryDirectory(dir=work, prefix="one-") as folder:
        command = [sys.executable, "-m", "bench.one", str(file), "--index", str(state or f"{folder}/state")]
        command += ["--settings", shlex.join(f"{name}={value}" for name, value in settings.items())]
        command += ["--outputs", shlex.join(f"{name}={path}" for name, path in outputs.items())]
        said = Path(folder, "said.json")
        finished = watch(command, every=0.05, reads=file, output=said, on_sample=on_sample)
        require_success(finished, "stream-lsh")
        return json.loads(said.read_bytes()), finished


def pairs_of(given: str) -> dict[str, str]:
    """`a=1 b=2` as a dictionary."""
    return dict(pair.split("=", 1) for pair in shlex.split(given))


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.one", description="Run the job over one file and print its summary as JSON.",
        epilog='example: python -m bench.one feed.jsonl --index index --settings "compare_with=all" '
        '--outputs "pairs=found"',
    )  # fmt: skip
    parser.add_argument("file", type=Path)
    parser.add_argument("--index", type=Path, required=True, help="folder of the index")
    parser.add_argument("--settings", default="", help="name=value, with blanks between them")
    parser.add_argument("--outputs", default="", help="unique=FILE, pairs=FILE, verdicts=FILE")
    given = parser.parse_args()
    prepare_process()
    settings = Settings(**pairs_of(given.settings))  # type: ignore[arg-type]
    summary = Job(settings, [str(given.file)], pairs_of(given.outputs), given.index, overwrite=True).run()
    json.dump(asdict(summary) | {"peak": own_peak(), "disk": folder_bytes(given.index)}, sys.stdout)


if __name__ == "__main__":
    main()
