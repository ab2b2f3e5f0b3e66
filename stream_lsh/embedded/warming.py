"""Compiling before the work begins: who compiles for seconds answers nobody, and is taken for dead."""

from __future__ import annotations

import fcntl
import json
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import numpy as np

from stream_lsh.embedded.job import Job
from stream_lsh.embedded.temporary import temporary_folder
from stream_lsh.hashing import kernels
from stream_lsh.index.runs import Run, merge
from stream_lsh.settings import Settings

log = logging.getLogger(__name__)

LOOK = 0.1  # seconds between two looks whether another process has finished
DOCUMENTS, GENERATION, DIMENSIONS = 64, 24, 64
WORDS = (
    "The harbour was closed on Tuesday because of a storm from the west, and all ferries stayed where they were.",
    "Der Hafen wurde am Dienstag wegen eines Sturms geschlossen; die Fähren blieben, wo sie waren – überall.",
    "由于西边来的风暴，港口于星期二关闭，所有渡轮都停在原地，直到第二天早上才重新开放。",
    "Ο ΔΡΟΜΟΣ ΠΡΟΣ ΤΟ ΛΙΜΑΝΙ ΕΙΝΑΙ ΚΛΕΙΣΤΟΣ. İstanbul limanı da salı günü fırtına yüzünden kapalıydı.",
    'A "quoted" word,\ta tab and a \\ in the middle of it.',
)


def warm_up(settings: Settings, stopped: Callable[[], bool] = lambda: False) -> None:
    """Run the whole engine on a few documents in a temporary folder, and again on some more: all kernels are loaded, or
    compiled, after it.

    Args:
        stopped: whether that is not wanted any more; then less may be done.

    Raises:
        OutputError: there is no place for temporary files.
    """
    if kernels.cold():
        log.info("compiling for this machine, once; that takes about half a minute")
    # Only what chooses code matters here; fields are called what they are called below.
    chosen = Settings.model_validate(
        {name: getattr(settings, name) for name in Settings.model_fields}
        | {
            "id_field": "id", "text_field": ("text",), "time_field": "time", "memory_documents": 16,
            "match_within": settings.match_within and ("lang",), "set_field": settings.set_field and "set",
            "max_document_bytes": 2**20, "generation_documents": GENERATION, "vector_field": None, "bits_field": None,
            **({} if settings.dimensions is None else {"dimensions": DIMENSIONS}),
            **({"distance": min(3, settings.distance or 0)} if settings.likeness == "hamming" else {}),
        }
    )  # fmt: skip
    with suppress(_Stopped), _first_alone(chosen, stopped):
        _run(chosen, stopped)


class _Stopped(Exception):
    """It is not wanted any more."""


@contextmanager
def _first_alone(chosen: Settings, stopped: Callable[[], bool]) -> Iterator[None]:
    """One process at a time, until one has come to the end with these settings: what it has compiled others load."""
    folder = kernels.FOLDER
    if folder is None:
        yield
        return
    done = folder / f"warm-{chosen.fingerprint}"
    with ExitStack() as stack:
        with suppress(OSError):
            file = stack.enter_context((folder / "warm-up.lock").open("w"))
            while not done.exists() and not stopped():
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    time.sleep(LOOK)
        yield
        with suppress(OSError):
            done.touch()


def _run(chosen: Settings, stopped: Callable[[], bool]) -> None:
    def look(_: object) -> None:
        if stopped():
            raise _Stopped

    look(None)
    with temporary_folder() as folder:
        feed = Path(folder) / "feed.jsonl"
        for turn in range(2):  # the second time rows are read back, and texts of whom later ones are similar to
            with feed.open("a", encoding="utf-8") as file:
                for number in range(DOCUMENTS):
                    # Copies, near-duplicates (in the second half) and others, with and without escapes.
                    text = WORDS[number % len(WORDS)] * (1 + number // 16) + f" {number % 32 if number % 3 else ''}"
                    text += " once more" * turn
                    document = {
                        "id": f"{number}-{turn}", "text": text, "time": 1_700_000_000 + number, "set": text.split(),
                        "vector": [1 + number % 5] * (DIMENSIONS - 2) + [number % 7, number // 16],
                        "bits": f"{0x9E3779B97F4A7C15 * (1 + number % 5) % 2**61 * 8 + number // 16:016x}",
                    }  # fmt: skip
                    file.write(json.dumps(document, ensure_ascii=number % 2 == 0) + "\n")
                file.write("{no document\n")
            Job(chosen, [str(feed)], {}, Path(folder) / "index").run(look)
        runs = [Run.of(np.array([n], np.uint64), np.array([n], np.uint32), n, n + 1) for n in range(3)]
        merge(runs, Path(folder) / "run.bin")
