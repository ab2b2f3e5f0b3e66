"""Memory of a match worker whose changelog has records of 16 MB: through recovery, and as a standby."""

import asyncio
import base64
import random
import time
from pathlib import Path
from typing import Any

import pytest
from support.kafka.brokers import settings_for
from support.kafka.match_play import LIMIT, Replies, Worker, frames, produce, workers

from stream_lsh.documents.document import Document
from stream_lsh.index.store.files import disk_bytes
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.kafka.tools.topics import create

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="this system does not tell a process's memory"),
]

DOCUMENTS, DOCUMENT_BYTES, WORD_BYTES = 400, 54_000, 200  # of a frame
RECORDS, RECORD_BYTES = 25, 16_000_000
MOST_BYTES = 600_000_000


def large_frames(settings: KafkaSettings) -> list[bytes]:
    """Frames of texts that hardly compress."""
    chance, made = random.Random(1), []
    for number in range(RECORDS):
        letters = base64.b64encode(chance.randbytes(DOCUMENTS * DOCUMENT_BYTES * 3 // 4)).decode()
        words = [letters[at : at + WORD_BYTES] for at in range(0, len(letters), WORD_BYTES)]
        step = len(words) // DOCUMENTS
        documents = [Document(f"{number}-{i}", " ".join(words[i * step : (i + 1) * step])) for i in range(DOCUMENTS)]
        made += frames(settings, documents, DOCUMENTS, first=number)
    return made


def most_resident(worker: Worker) -> int:
    """Bytes of memory that it has had at most."""
    status = Path(f"/proc/{worker.process.pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) << 10


@pytest.mark.first
async def test_large_records_do_not_fill_the_memory(broker: Any, prefix: str, tmp_path: Path) -> None:
    large = {"frame_bytes": 32 << 20, "record_bytes": 32 << 20}
    settings = settings_for(broker, prefix, tmp_path, **large, session_timeout_ms=60_000)
    recovered = settings.model_copy(update={"data_folder": tmp_path / "recovered"})
    log = large_frames(settings)
    assert min(map(len, log)) > RECORD_BYTES
    replies = Replies(settings)

    async def followed(worker: Worker, folder: Path) -> None:
        end = time.monotonic() + LIMIT
        while disk_bytes(folder) < RECORDS * RECORD_BYTES:
            assert worker.process.poll() is None and time.monotonic() < end, worker.log.read_text()
            await asyncio.sleep(0.2)

    await create(settings)
    with workers(tmp_path) as start:
        worker = start(settings)
        await produce(settings, log[:-1])
        await replies.read(RECORDS - 1)
        assert worker.stop() == 0
        worker = start(recovered)
        worker.wait_for("answering for the shards 0")
        recovery = most_resident(worker)
        await produce(settings, log[-1:])
        await replies.read(RECORDS)
        assert worker.stop() == 0
        start(recovered.model_copy(update={"standbys": 1})).wait_for("answering for the shards 0")
        folder = tmp_path / "standby"
        standby = start(settings.model_copy(update={"data_folder": folder, "standbys": 1}))
        await followed(standby, folder)
        assert max(recovery, most_resident(standby)) < MOST_BYTES
