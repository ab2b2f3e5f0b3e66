"""The example with Quix Streams writes each new document once, also if it is killed again and again."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from support.kafka.feeding import Record, produce
from support.waiting import PATIENCE, until

EXAMPLE = Path(__file__).parents[2] / "examples" / "with_quixstreams.py"
NUMBER = 300


async def make_topic(broker: Any, name: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(name, 1, 1)])
    finally:
        await admin.close()


def test_each_new_document_is_written_once(broker: Any, prefix: str, tmp_path: Path) -> None:
    pytest.importorskip("quixstreams", reason="pip install 'stream-lsh[quix]', in an environment of its own")
    index, out = tmp_path / "index", tmp_path / "out"
    out.mkdir()
    asyncio.run(make_topic(broker, prefix))
    environment = os.environ | {"BOOTSTRAP_SERVERS": broker.bootstrap, "TOPIC": prefix}
    command = [sys.executable, str(EXAMPLE), str(index), str(out)]

    def feed(first: int) -> None:
        """New documents, each followed by a copy with a word more."""
        texts = [" ".join(f"w{n}x{k}" for k in range(20)) for n in range(first, first + NUMBER)]
        lines = [{"id": f"{kind}{n}", "text": text + more} for n, text in enumerate(texts, first)
                 for kind, more in (("new", ""), ("copy", " again"))]  # fmt: skip
        records = [Record(0, None, json.dumps(line).encode()) for line in lines]
        asyncio.run(produce(broker.bootstrap, prefix, records))

    def written() -> list[str]:
        return [json.loads(line)["id"] for path in out.glob("*.jsonl") for line in path.read_text().splitlines()]

    for part in range(3):
        feed(part * NUMBER)
        process = subprocess.Popen(command, env=environment)
        try:
            if part < 2:
                until(lambda: len(written()) > part * NUMBER)  # noqa: B023
                time.sleep(0.2 * part)
                process.kill()
            else:
                until(lambda: len(set(written())) == 3 * NUMBER)
                process.send_signal(signal.SIGTERM)
                assert process.wait(PATIENCE) == 0
        finally:
            process.kill()
            process.wait()
    assert sorted(written()) == sorted(f"new{n}" for n in range(3 * NUMBER))
