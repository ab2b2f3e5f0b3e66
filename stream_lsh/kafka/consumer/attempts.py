"""What is left of a worker that has crashed or hung: words in a file that the process has mapped into its memory."""

from __future__ import annotations

import mmap
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stream_lsh.documents.columns import Rejection
from stream_lsh.documents.engine_errors import ENGINE_ERROR

MOST = 3  # attempts: a worker may be killed at a document by accident


def ended(doing: str) -> Rejection:
    """Why a document is rejected after that many attempts. doing: what the worker did with it, in the past tense."""
    return Rejection(ENGINE_ERROR, f"the worker has ended {MOST} times while it {doing} this document")


def mapped(path: Path, words: int) -> NDArray[np.int64]:
    """int64[words] in a file. The system writes them to disk, also if the process ends. A new file, or one of another
    size, begins with -1 everywhere.

    Raises:
        OSError: the file cannot be written.
    """
    size = 8 * words
    if not path.exists() or path.stat().st_size != size:
        path.write_bytes(np.full(words, -1).tobytes())
    with path.open("r+b") as file:
        return np.frombuffer(mmap.mmap(file.fileno(), size), np.int64)
