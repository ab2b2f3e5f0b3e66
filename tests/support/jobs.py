"""Jobs over lines of JSON: feeds in files, the outputs of a run, and the command line of the same run."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from stream_lsh import Settings
from stream_lsh.alerts.rules import read_rules
from stream_lsh.embedded.job import Job
from stream_lsh.embedded.report import Summary
from support.json_lines import read_lines, write_lines

OUTPUTS = ("unique", "pairs", "verdicts", "dead_letters")
read = read_lines


def write(path: Path, *records: Mapping[str, Any]) -> Path:
    """A file with one record a line."""
    return write_lines(path, records)


def written(folder: Path, records: Sequence[Mapping[str, Any]], parts: int = 3) -> list[str]:
    """The records in so many files."""
    folder.mkdir(exist_ok=True)
    cuts = [len(records) * part // parts for part in range(parts + 1)]
    return [
        str(write(folder / f"feed-{part:03}.jsonl", *records[cuts[part] : cuts[part + 1]])) for part in range(parts)
    ]


def run(
    folder: Path, inputs: Iterable[str | Path], settings: Settings, outputs: Iterable[str] = OUTPUTS,
    rules: Path | None = None, only_new: bool = False,
) -> Summary:  # fmt: skip
    """A job whose index, and outputs under their names, are in a folder."""
    folder.mkdir(exist_ok=True)
    found = read_rules(rules) if rules is not None else ()
    paths = {name: str(folder / name) for name in outputs}
    return Job(settings, list(map(str, inputs)), paths, folder / "index", rules=found, only_new=only_new).run()


def bytes_of(folder: Path, outputs: Iterable[str] = OUTPUTS) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in outputs}


def options(settings: Mapping[str, Any]) -> list[str]:
    """Settings as options of the command line."""
    return [
        f"--{name.replace('_', '-')}={','.join(value) if isinstance(value, list) else value}"
        for name, value in settings.items()
    ]
