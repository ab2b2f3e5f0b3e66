"""Results as a table on the terminal, as JSON lines, and as a piece of Markdown for docs/."""

from __future__ import annotations

import argparse
import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import orjson

from bench.corpora import default_data, default_work

Row = Mapping[str, Any]


def environment(packages: Sequence[str] = ("numpy", "numba", "rocksdict")) -> dict[str, Any]:
    """Where the figures were taken: processor, cores, load before the run, versions. Nothing that names the machine."""
    versions = {}
    for name in packages:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = "not installed"
    return {
        "processor": _processor(), "cores": os.cpu_count(), "load": round(os.getloadavg()[0], 2),
        "system": f"{platform.system()} {platform.machine()}", "python": platform.python_version(),
        "versions": versions,
    }  # fmt: skip


def table(columns: Mapping[str, str], rows: Iterable[Row], *, markdown: bool = False) -> str:
    """A table of rows; `columns` maps the key in a row to its heading, in order. What a row lacks is a dash."""
    cells = [list(columns.values())] + [[_text(row.get(key)) for key in columns] for row in rows]
    widths = [max(len(line[i]) for line in cells) for i in range(len(columns))]
    # The first column is a name, all others are figures.
    padded = [
        [
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        for line in cells
    ]
    if not markdown:
        return "\n".join("  ".join(line).rstrip() for line in padded)
    rule = ["-" * width if i == 0 else "-" * (width - 1) + ":" for i, width in enumerate(widths)]
    return "\n".join("| " + " | ".join(line) + " |" for line in [padded[0], rule, *padded[1:]])


def write(out: Path | None, name: str, where: Mapping[str, Any], rows: Iterable[Row], markdown: str) -> None:
    """Write `<name>.jsonl` (the environment, then every result) and `<name>.md` into a folder, if one is given."""
    if out is None:
        return
    out.mkdir(parents=True, exist_ok=True)
    lines = [orjson.dumps({"kind": "environment", **where}), *(orjson.dumps(dict(row)) for row in rows)]
    (out / f"{name}.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    (out / f"{name}.md").write_text(markdown + "\n\n" + caption(where) + "\n", encoding="utf-8")


def caption(where: Mapping[str, Any]) -> str:
    """The environment in one line."""
    versions = ", ".join(f"{name} {version}" for name, version in where["versions"].items())
    return (
        f"{where['cores']} cores of {where['processor']}, {where['system']}, Python {where['python']}, {versions}; "
        f"load before the run {where['load']}."
    )


def parser(name: str, description: str, example: str) -> argparse.ArgumentParser:
    """The options that all benchmarks share: --data, --work, --out; and an example."""
    made = argparse.ArgumentParser(
        prog=f"python -m bench.{name}", description=description, epilog=f"example: {example}"
    )
    made.add_argument(
        "--data", type=Path, default=default_data(), help="folder of the real data (default: ../shared/data)"
    )
    made.add_argument("--work", type=Path, default=default_work(), help="folder for unpacked files and indexes, kept")
    made.add_argument("--out", type=Path, help=f"folder for {name}.jsonl and {name}.md")
    return made


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or "unknown"


def _text(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}" if abs(value) >= 10 else f"{value:.3f}"
    return f"{value:,}" if isinstance(value, int) else str(value)
