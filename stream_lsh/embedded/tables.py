"""Files of a table (CSV, TSV), which are no JSON lines: how to convert one."""

from __future__ import annotations

import csv
import shlex
from pathlib import PurePath

from stream_lsh.embedded.decompression import decompressor

DELIMITERS = {".csv": ",", ".tsv": "\t"}
_UNPACKED_BY = {".gz": "gzip -dc", ".xz": "xz -dc", ".zst": "zstd -dc"}
_COLUMNS = 12  # so many are named


def is_table(name: str, head: bytes) -> bool:
    """Whether a file of this name, whose first bytes (decompressed) are `head`, is a table."""
    begin = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    return _suffix(name) in DELIMITERS and not begin.startswith((b"{", b"[")) and bool(begin)


def how_to_convert(name: str, head: bytes) -> str:
    """The sentence that says how to read a table."""
    delimiter = DELIMITERS[_suffix(name)]
    line = head.decode("utf-8-sig", "replace").splitlines()[0]
    columns = next(csv.reader([line], delimiter=delimiter))
    shown = ", ".join(columns[:_COLUMNS]) + (", ..." if len(columns) > _COLUMNS else "")
    packed = PurePath(name).suffix if decompressor(name) is not None else ""
    source = f"{_UNPACKED_BY[packed]} {shlex.quote(name)} | " if packed else ""
    script = (
        "import csv, json, sys; csv.field_size_limit(2**30); "
        f"[print(json.dumps(row)) for row in csv.DictReader(sys.stdin, delimiter={delimiter!r})]"
    ).replace("'", '"')
    target = "" if packed else f" < {shlex.quote(name)}"
    return (
        f"{name} is a table (columns: {shown}), and documents are read as JSON lines. Convert it, and name the "
        f"columns with id and text:\n  {source}python3 -c '{script}'{target} | "
        "stream-lsh dedup --id-field ID --text-field TEXT -"
    )


def _suffix(name: str) -> str:
    path = PurePath(name.lower())
    return PurePath(path.stem).suffix if decompressor(path.name) is not None else path.suffix
