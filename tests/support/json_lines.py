"""JSON lines: what tests feed, and what comes out."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def write_lines(path: Path, documents: Iterable[object]) -> Path:
    """Write documents into a file, one a line."""
    path.write_text("".join(json.dumps(document) + "\n" for document in documents), encoding="utf-8")
    return path


def read_lines(source: str | bytes | Path) -> list[Any]:
    """The documents of a file, or of what a command has written."""
    text = source.read_bytes() if isinstance(source, Path) else source
    return [json.loads(line) for line in text.splitlines()]
