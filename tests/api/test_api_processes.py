"""The interface in Python with more than one process: a caller that is killed, and readers beside a writer."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.models.dense import dense

from stream_lsh import Deduplicator
from stream_lsh.embedded.information import information

# A caller as he should be: he uses the verdicts of a batch, makes that durable, and then commits his position.
CALLER = """
import json, os, sys, time
from pathlib import Path
from stream_lsh import Deduplicator, Document, Settings

folder, pause = Path(sys.argv[1]), float(sys.argv[2])
documents = [Document(**json.loads(line)) for line in (folder / "documents.jsonl").open()]
with Deduplicator(Settings(memtable_documents=64), index=folder / "index", commit="manual") as deduplicator, \\
        (folder / "used.jsonl").open("a+b") as used:
    print("ready", flush=True)
    position = deduplicator.facts.get("position", 0)
    while position < len(documents):
        verdicts = list(deduplicator.process(documents[position : position + 40]))
        time.sleep(pause)
        for verdict in verdicts:
            for pair in verdict.pairs:
                line = [pair.older, pair.newer, pair.older_seq, pair.newer_seq, pair.similarity]
                used.write(json.dumps(line).encode() + b"\\n")
        used.flush()
        os.fsync(used.fileno())
        time.sleep(pause)
        position += len(verdicts)
        deduplicator.commit({"position": position})
"""


@pytest.mark.long
def test_a_killed_caller_loses_no_pair(tmp_path: Path) -> None:
    """What he has used twice is the same both times; all in all it is what an uninterrupted run gives."""
    documents = dense(2000, 4)
    lines = "".join(json.dumps({"id": document.id, "text": document.text}) + "\n" for document in documents)
    for name in ("whole", "broken"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "documents.jsonl").write_text(lines)
    subprocess.run([sys.executable, "-c", CALLER, str(tmp_path / "whole"), "0"], check=True, stdout=subprocess.DEVNULL)
    expected = (tmp_path / "whole" / "used.jsonl").read_bytes().splitlines()
    assert len(expected) > 1000
    chance, kills, used = random.Random(8), 0, tmp_path / "broken" / "used.jsonl"
    while True:
        arguments = [sys.executable, "-c", CALLER, str(tmp_path / "broken"), "0.004" if kills < 10 else "0"]
        with subprocess.Popen(arguments, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None and process.stdout.readline() == b"ready\n"
            try:
                process.wait(chance.uniform(0.01, 0.15) * 1.3**kills if kills < 10 else None)
                break
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
                process.wait()
                kills += 1
        data = used.read_bytes() if used.exists() else b""
        used.write_bytes(data[: data.rfind(b"\n") + 1])  # a line that was being written
    assert process.returncode == 0 and kills >= 3
    assert list(dict.fromkeys(used.read_bytes().splitlines())) == expected
    health = information(tmp_path / "broken" / "index", check=True)["health"]
    assert health == {"interrupted": False, "checked": "every byte", "problems": []}
    with Deduplicator(index=tmp_path / "broken" / "index", read_only=True) as reader:
        assert (len(reader), reader.facts) == (2000, {"position": 2000})
