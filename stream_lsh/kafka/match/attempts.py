"""Documents at which a worker has ended. Attempts are counted on disk: a crash or a hang leaves nothing else."""

from __future__ import annotations

import mmap
from collections import Counter
from pathlib import Path

import numpy as np
import orjson

from stream_lsh.documents.columns import Rejection
from stream_lsh.documents.engine_errors import ENGINE_ERROR
from stream_lsh.index.kernel.work import PLACE, PROGRESS
from stream_lsh.index.store.rocksdb import Store, name_key

MOST = 3  # attempts: a worker may be killed at a document by accident
_KEY = name_key("attempts")
_WHY = Rejection(ENGINE_ERROR, f"the worker has ended {MOST} times while it matched this document")


class Attempts:
    """The attempts at the next frame. A file in memory has the frame that is being matched, and how far it is. The
    system writes it to disk, also if the process ends.

    Args:
        folder: of the shard.

    Attributes:
        progress: for `Results.progress`.
    """

    def __init__(self, folder: Path, store: Store) -> None:
        size, path = 8 * (1 + PROGRESS), folder / "progress"
        if not path.exists() or path.stat().st_size != size:
            path.write_bytes(np.full(1 + PROGRESS, -1).tobytes())
        with path.open("r+b") as file:
            self._words = np.frombuffer(mmap.mmap(file.fileno(), size), np.int64)
        self.progress = self._words[1:]
        known = store.named("attempts") or {"frame": -1, "documents": {}}
        self._frame: int = known["frame"]
        self._counts = Counter({int(place): count for place, count in known["documents"].items()})
        frame, place = int(self._words[0]), int(self.progress[PLACE])
        if frame >= 0 and place >= 0:
            if frame != self._frame:
                self._frame, self._counts = frame, Counter()
            self._counts[place] += 1
            store.write(
                {_KEY: orjson.dumps({"frame": frame, "documents": {str(i): n for i, n in self._counts.items()}})}
            )
        self.end()

    def begin(self, frame: int) -> dict[int, Rejection]:
        """A frame is matched from here on. Returns its documents that are left out, by place."""
        self.progress[PLACE], self._words[0] = -1, frame
        return {i: _WHY for i, n in self._counts.items() if n >= MOST} if frame == self._frame else {}

    def end(self) -> None:
        """The frame is stored, or was given up for a cause that is no document."""
        self._words[0] = -1
