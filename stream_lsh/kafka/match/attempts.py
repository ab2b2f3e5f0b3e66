"""Documents at which a worker has ended. Attempts are counted on disk: a crash or a hang leaves nothing else."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import orjson

from stream_lsh.documents.columns import Rejection
from stream_lsh.index.kernel.work import PLACE, PROGRESS
from stream_lsh.index.store.rocksdb import Store, name_key
from stream_lsh.kafka.consumer.attempts import MOST, ended, mapped

_KEY = name_key("attempts")
_WHY = ended("matched")


class Attempts:
    """The attempts at the next frame. A mapped file has the frame that is being matched, and how far it is.

    Args:
        folder: of the shard.

    Attributes:
        progress: for `Results.progress`.
    """

    def __init__(self, folder: Path, store: Store) -> None:
        self._words = mapped(folder / "progress", 1 + PROGRESS)
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
