"""Deduplicate a topic with Quix Streams, exactly once, with a sink.

    BOOTSTRAP_SERVERS=127.0.0.1:9092 python with_quixstreams.py INDEX OUTPUT_FOLDER

Documents are JSON objects in the topic `documents`, or the one that TOPIC names. Each checkpoint gives the sink a
batch. Its new documents are in OUTPUT_FOLDER/N.jsonl. N and the last offset are committed with the documents, in one
step: if the index has the batch, its file is there, too. If not, the batch is repeated, and the file is replaced.
"""

import json
import os
import sys
from pathlib import Path

from quixstreams import Application
from quixstreams.sinks import BatchingSink, SinkBatch

from stream_lsh import Deduplicator, Settings


class NewDocuments(BatchingSink):
    """Writes the documents that are similar to no earlier one."""

    def __init__(self, deduplicator: Deduplicator, folder: Path) -> None:
        super().__init__()
        self._deduplicator = deduplicator
        self._folder = folder

    def write(self, batch: SinkBatch) -> None:
        facts, place = dict(self._deduplicator.facts), f"{batch.topic}:{batch.partition}"
        items = [item for item in batch if item.offset > facts.get(place, -1)]
        if not items:  # the index has them, but Kafka did not get their offsets
            return
        number = facts.get("files", 0)
        verdicts = self._deduplicator.process([item.value for item in items])
        new = [item.value for item, verdict in zip(items, verdicts, strict=True) if verdict.kind == "unique"]
        part = self._folder / f"{number}.part"
        part.write_text("".join(json.dumps(document) + "\n" for document in new), encoding="utf-8")
        part.rename(self._folder / f"{number}.jsonl")
        self._deduplicator.commit({**facts, place: items[-1].offset, "files": number + 1})


if __name__ == "__main__":
    index, folder = sys.argv[1:]
    servers = os.environ.get("BOOTSTRAP_SERVERS", "127.0.0.1:9092")
    application = Application(
        servers, consumer_group="with-quixstreams", auto_offset_reset="earliest", commit_interval=1
    )
    documents = application.dataframe(application.topic(os.environ.get("TOPIC", "documents")))
    with Deduplicator(Settings(threshold=0.7), index=index, commit="manual") as deduplicator:
        documents.sink(NewDocuments(deduplicator, Path(folder)))
        application.run()
