"""Erasing of the dead letters of deleted ids in an index folder.

They are overwritten in place: a run appends behind the last one.
"""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Set
from contextlib import suppress
from pathlib import Path
from typing import Any

from stream_lsh.documents.fields import LINE_ID, Fields, id_text
from stream_lsh.documents.json_reader import read_object
from stream_lsh.documents.refused import Refused

FILE = "dead-letters.jsonl"
ERASED_LETTER = b'{"reason":"erased"}'  # and blanks: what is left of a dead letter
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|(?<![\w.-])-?\d+(?![\w.])')


def erase_letters(path: Path, ids: Set[bytes], id_field: str) -> None:
    """Erase the dead letters of documents with these ids (JSON texts). Where the id of a letter cannot be read, it is
    erased if one of the ids is in it as a string or a number. Another process may append meanwhile."""
    places: list[tuple[int, int]] = []
    at = 0
    with suppress(FileNotFoundError), path.open("r+b") as file:
        for line in file:
            if line.endswith(b"\n") and _is_of(line, ids, id_field):
                places.append((at, len(line) - 1))
            at += len(line)
        for at, size in places:
            os.pwrite(file.fileno(), ERASED_LETTER.ljust(size), at)
        os.fsync(file.fileno())


def _is_of(line: bytes, ids: Set[bytes], id_field: str) -> bool:
    if line.startswith(ERASED_LETTER):
        return line.rstrip() != ERASED_LETTER  # a power cut interrupted the write
    letter: dict[str, Any] = json.loads(line)  # orjson refuses lone surrogates, which file names may have
    original, id = letter.get("original"), b"null"
    raw = base64.b64decode(letter["original_base64"]) if original is None else original.encode()
    if id_field == LINE_ID:
        id = id_text(f"{letter['input']}:{letter['line']}")
    else:
        try:
            id = Fields(id_field).extract(read_object(raw)).id
        except Refused as refused:
            id = refused.id
    if id != b"null":
        return id in ids
    return any(_canonical(token) in ids for token in _TOKEN.findall(raw))


def _canonical(token: bytes) -> bytes:
    try:
        return id_text(json.loads(token))
    except (ValueError, Refused):
        return token
