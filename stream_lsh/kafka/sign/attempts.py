"""Documents at which a signer has ended. Attempts are counted on disk: a crash or a hang leaves nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby
from math import isqrt
from pathlib import Path

import numpy as np
import orjson

from stream_lsh.errors import StreamLshError, UsageError
from stream_lsh.kafka.consumer.attempts import MOST, ended, mapped
from stream_lsh.kafka.sign.framing import Chunk, Framer, Signed, split

_WHY = ended("signed")
Range = tuple[int, int, int]
"""A source partition, and offsets of documents in it, the last one exclusive."""


class Attempts:
    """The attempts at documents that are not committed yet. A mapped file has the batch that is being signed.

    The documents of a batch at which a worker has ended are signed in smaller batches next time, and one by one after
    the second end. At the third end there is a single document, which is left out from then on.

    Args:
        folder: of the worker.
        topic: of the documents.
        most: documents of a batch.

    Attributes:
        found: what the former worker was signing when it ended.

    Raises:
        UsageError: the folder cannot be used.
    """

    def __init__(self, folder: Path, topic: str, most: int) -> None:
        self._most, self._topic = most, topic
        self._path = folder / "sign" / "attempts.json"
        self.found: list[Range] = []
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._words = mapped(self._path.with_name("progress"), 1 + 3 * most)
            self._ends = self._read()
            if (n := int(self._words[0])) > 0:
                self.found = [(p, first, end) for p, first, end in self._words[1 : 1 + 3 * n].reshape(-1, 3).tolist()]
                self._write(self._ends + self.found)
        except OSError as error:
            raise UsageError(f"data_folder {folder} cannot be used: {error.strerror}.") from None
        self._end()

    def parts(self, chunks: list[Chunk]) -> Iterator[list[Chunk]]:
        """A batch, or the smaller batches in which it must be signed."""
        sizes = list[int]()
        for count, places in groupby(self._counts(chunks)):
            n, limit = len(list(places)), (self._most, isqrt(self._most), 1)[min(count, 2)]
            sizes += [min(limit, n - i) for i in range(0, n, limit)]
        for size in sizes[:-1]:
            part, chunks = split(chunks, size)
            yield part
        yield chunks

    def sign(self, framer: Framer, chunks: list[Chunk], now: int) -> list[Signed]:
        """The frames of one of the `parts`. See `Framer.frames`."""
        ranges = [(c.partition, c.records[0].offset, c.records[-1].offset + 1) for c in chunks if c.records]
        self._words[1 : 1 + 3 * len(ranges)] = np.array(ranges, np.int64).ravel()
        self._words[0] = len(ranges)
        excluded = {i: _WHY for i, count in enumerate(self._counts(chunks)) if count >= MOST}
        try:
            frames = framer.frames(chunks, now, excluded)
        except (StreamLshError, MemoryError, OSError):  # they are not due to a document
            self._end()
            raise
        except BaseException:  # the process ends of it, and the next one counts it
            self._leave()
            raise
        self._end()
        return frames

    def passed(self, positions: Mapping[int, int]) -> None:
        """These positions are committed, by partition: no earlier document is signed again."""
        left = [at for at in self._ends if at[2] > positions.get(at[0], 0)]
        if len(left) < len(self._ends):
            self._write(left)

    def close(self) -> None:
        """What is being signed is given up, and the worker continues."""
        self._end()
        self._leave()  # the thread that signs may end later

    def _end(self) -> None:
        self._words[0] = -1

    def _leave(self) -> None:
        """Leave the file as it is."""
        self._words = self._words.copy()

    def _counts(self, chunks: list[Chunk]) -> list[int]:
        """How often a worker has ended at each document; empty if at none."""
        partitions = {chunk.partition for chunk in chunks} if self._ends else set[int]()
        ends = [end for end in self._ends if end[0] in partitions]
        if not ends:
            return []
        return [
            sum(partition == chunk.partition and first <= record.offset < end for partition, first, end in ends)
            for chunk in chunks
            for record in chunk.records
        ]

    def _read(self) -> list[Range]:
        """The ends that were counted before. Those at another topic, and a damaged file, count as none."""
        try:
            known = orjson.loads(self._path.read_bytes())
        except (FileNotFoundError, orjson.JSONDecodeError):
            known = {"topic": None}
        if known["topic"] == self._topic:
            return [(partition, first, end) for partition, first, end in known["ends"]]
        self._end()
        self._write([])
        return []

    def _write(self, ends: list[Range]) -> None:
        new = self._path.with_suffix(".new")
        new.write_bytes(orjson.dumps({"topic": self._topic, "ends": ends}))
        new.replace(self._path)
        self._ends = ends
