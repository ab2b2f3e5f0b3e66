"""incrededup (crates.io), a program in Rust with its index on disk: `cargo install incrededup`.

It reads a table of SQLite, keeps its index in redb, and writes one line for each duplicate: the document, and the one
that stands for all that are connected with it, however far away that is. Similarity is that of the signatures (128
components, 16 bands of 8, 3-word shingles); it cuts words at blanks only and leaves out those of one letter.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

from bench.corpora import read_documents
from bench.engine import require_success
from bench.process import folder_bytes, watch

NAME = "incrededup"


def available() -> bool:
    """Whether the program is on the PATH."""
    return shutil.which(NAME) is not None


def run(file: Path, text_fields: Sequence[str], threshold: float, folder: Path, threads: int) -> dict[str, Any]:
    """One run over a file: its figures, and its pairs under "pairs". The table is made before the clock starts.

    `restart`: seconds of a second run, which finds nothing new.
    """
    table, data = folder / "documents.sqlite", folder / "data"
    ids = _fill(table, file, tuple(text_fields))
    # Without these two limits it leaves out short texts, and pairs of which one is much longer.
    command = [NAME, "--sqlite", str(table), "--data-dir", str(data), "--threshold", str(threshold)]
    command += ["--min-content-len", "0", "--size-diff", "1", "--workers", str(threads)]
    finished = watch(command)
    require_success(finished, NAME)
    size = folder_bytes(data)
    with sqlite3.connect(table) as connection:
        found = connection.execute("SELECT parent_id, child_id FROM dupes").fetchall()
    connection.close()
    again = watch(command)
    require_success(again, NAME)
    return {
        "documents": len(ids), "rate": len(ids) / finished.seconds, "whole": len(ids) / finished.seconds,
        "cpu_micros": 1e6 * finished.cpu_seconds / len(ids), "peak_mb": finished.peak / 1e6, "disk": size / len(ids),
        "restart": again.seconds, "others": finished.others,
        "pairs": [(ids[UUID(parent).int], ids[UUID(child).int]) for parent, child in found],
    }  # fmt: skip


def _fill(table: Path, file: Path, text_fields: tuple[str, ...]) -> list[str]:
    """Make the table that it reads. Its ids are numbers of lines as UUIDs; the documents' own ids come back."""
    ids: list[str] = []
    with sqlite3.connect(table) as connection:
        connection.execute(
            "CREATE TABLE documents (id TEXT PRIMARY KEY, content TEXT NOT NULL, content_len INTEGER NOT NULL,"
            " filename TEXT, is_parent INTEGER)"
        )
        connection.execute(
            "CREATE TABLE dupes (child_id TEXT PRIMARY KEY, parent_id TEXT NOT NULL, jaccard_similarity REAL NOT NULL,"
            " size_difference INTEGER NOT NULL, size_difference_pct REAL NOT NULL)"
        )
        for document, text in read_documents(file, text_fields):
            row = (str(UUID(int=len(ids))), text, len(text.encode()))
            connection.execute("INSERT INTO documents (id, content, content_len) VALUES (?, ?, ?)", row)
            ids.append(document)
    connection.close()
    return ids
