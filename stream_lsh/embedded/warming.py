"""Compiles kernels before the work begins: a process that compiles for seconds answers no request and looks dead."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import numpy as np

from stream_lsh.documents import avro_json
from stream_lsh.embedded.engine import Engine
from stream_lsh.embedded.job import Job
from stream_lsh.embedded.temporary import temporary_folder
from stream_lsh.index.postings.run import Run, merge
from stream_lsh.settings.model import Settings

DOCUMENTS, SEGMENT, DIMENSIONS = 64, 24, 64
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
    # Only what chooses code matters here; fields are called what they are called below.
    chosen = Settings.model_validate(
        {name: getattr(settings, name) for name in Settings.model_fields}
        | {
            "id_field": "id", "text_field": ("text",), "time_field": "time", "memtable_documents": 16,
            "match_within": settings.match_within and ("lang",), "set_field": settings.set_field and "set",
            "max_document_bytes": 2**20, "segment_documents": SEGMENT, "vector_field": None, "bits_field": None,
            **({} if settings.dimensions is None else {"dimensions": DIMENSIONS}),
            **({"max_distance": min(3, settings.max_distance or 0)} if settings.measure == "hamming" else {}),
        }
    )  # fmt: skip
    with suppress(_Stopped):
        _run(chosen, stopped)


class _Stopped(Exception):
    """It is not wanted any more."""


def _run(chosen: Settings, stopped: Callable[[], bool]) -> None:
    def look(_: object) -> None:
        if stopped():
            raise _Stopped

    look(None)
    with temporary_folder() as folder:
        feed = Path(folder) / "feed.jsonl"
        for turn in range(2):  # the second turn reads rows and texts back, for similar documents
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
        with closing(Engine.open(chosen, Path(folder) / "index")) as engine:
            engine.index.look_up([b'"0-0"'])
        runs = [Run.of(np.array([n], np.uint64), np.array([n], np.uint32), n, n + 1) for n in range(3)]
        merge(runs, Path(folder) / "run.bin")


IN_IMAGES: tuple[dict[str, Any], ...] = ({}, {"shards": 2}, {"measure": "tf-idf"}, {"measure": "containment"})
"""Settings whose kernels an image has: the defaults, in one process and on Kafka, stories, quotations."""

if __name__ == "__main__":
    for values in IN_IMAGES:
        warm_up(Settings.model_validate(values))
    avro_json.warm_up()
