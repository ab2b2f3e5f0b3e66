"""Memory of a match worker whose changelog has records of 16 MB: through recovery, and as a standby."""

import base64
import random
from pathlib import Path
from typing import Any

import pytest
from support.kafka.harness import Pipeline, Worker, until
from support.kafka.match_play import Replies, frames, produce

from stream_lsh.documents.document import Document
from stream_lsh.index.store.files import disk_bytes

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="this system does not tell a process's memory"),
]

DOCUMENTS, DOCUMENT_BYTES, WORD_BYTES = 400, 54_000, 200  # of a frame
RECORDS, RECORD_BYTES = 25, 16_000_000
MOST_BYTES = 600_000_000


def most_resident(worker: Worker) -> int:
    """Bytes of memory that it has had at most."""
    status = Path(f"/proc/{worker.pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) << 10


@pytest.mark.first
def test_large_records_do_not_fill_the_memory(broker: Any, prefix: str, tmp_path: Path) -> None:
    large = {"frame_bytes": 32 << 20, "record_bytes": 32 << 20, "session_timeout_ms": 60_000}
    with Pipeline(broker.bootstrap, prefix, tmp_path, **large) as pipeline:
        # Frames of texts that hardly compress.
        chance, made = random.Random(1), []
        for number in range(RECORDS):
            letters = base64.b64encode(chance.randbytes(DOCUMENTS * DOCUMENT_BYTES * 3 // 4)).decode()
            words = [letters[at : at + WORD_BYTES] for at in range(0, len(letters), WORD_BYTES)]
            step = len(words) // DOCUMENTS
            documents = [
                Document(f"{number}-{i}", " ".join(words[i * step : (i + 1) * step])) for i in range(DOCUMENTS)
            ]
            made += frames(pipeline.settings, documents, DOCUMENTS, first=number)
        log, replies = made, Replies(pipeline.settings)
        assert min(map(len, log)) > RECORD_BYTES

        def start(name: str, **given: Any) -> Worker:
            worker = pipeline.worker(("match",), name=name, **given)
            if name != "standby":
                until(lambda: "answering for the shards 0" in worker.said(10**7), why=pipeline.report())
            return worker

        first = start("first")
        pipeline.run(produce(pipeline.settings, log[:-1]))
        pipeline.run(replies.read(RECORDS - 1))
        pipeline.stop(first)
        worker = start("recovered")
        recovery = most_resident(worker)
        pipeline.run(produce(pipeline.settings, log[-1:]))
        pipeline.run(replies.read(RECORDS))
        pipeline.stop(worker)
        start("owner", standbys=1, data_folder=pipeline.data(worker))
        standby = start("standby", standbys=1)
        until(lambda: disk_bytes(pipeline.data(standby)) >= RECORDS * RECORD_BYTES, why=pipeline.report())
        assert max(recovery, most_resident(standby)) < MOST_BYTES
