"""The interface in Python with more than one process: a caller that is killed, and readers beside a writer."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.models.dense import dense

from stream_lsh import Deduplicator, Settings
from stream_lsh.embedded.information import information

SMALL = Settings(memory_documents=64)  # a flush after nearly every commit, so that kills and readers meet merges

# A caller as he should be: he uses the verdicts of a batch, makes that durable, and then commits his position.
CALLER = """
import json, os, sys, time
from pathlib import Path
from stream_lsh import Deduplicator, Document, Settings

folder, pause = Path(sys.argv[1]), float(sys.argv[2])
documents = [Document(**json.loads(line)) for line in (folder / "documents.jsonl").open()]
with Deduplicator(Settings(memory_documents=64), state=folder / "index", commit="manual") as deduplicator, \\
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
    with Deduplicator(state=tmp_path / "broken" / "index", read_only=True) as reader:
        assert (len(reader), reader.facts) == (2000, {"position": 2000})


WRITER = """
import random, sys
from pathlib import Path
from stream_lsh import Deduplicator, Document, Settings

chance, number = random.Random(6), 0
with Deduplicator(Settings(memory_documents=64), state=Path(sys.argv[1]), commit="manual") as deduplicator:
    while not Path(sys.argv[1], "stop").exists():
        texts = [" ".join(f"w{chance.randrange(10**6)}" for _ in range(20)) for _ in range(chance.randrange(1, 60))]
        verdicts = list(deduplicator.process([Document(number + i, text) for i, text in enumerate(texts)]))
        number += len(texts)
        deduplicator.commit({"number": number, "last": texts[-1]})
"""


@pytest.mark.long
def test_readers_beside_a_writer_see_what_was_committed(tmp_path: Path) -> None:
    """Each sees one commit whole: as many documents as its facts say, the last of them findable."""
    state = tmp_path / "index"
    seen: set[int] = set()
    with subprocess.Popen([sys.executable, "-c", WRITER, str(state)]) as writer:
        try:
            while not (state / "generations").exists():
                assert writer.poll() is None
                time.sleep(0.05)
            until = time.monotonic() + 6
            while time.monotonic() < until or len(seen) < 5:
                assert writer.poll() is None
                with Deduplicator(SMALL, state=state, read_only=True) as reader:
                    facts = reader.facts
                    if not facts:
                        continue
                    assert len(reader) == facts["number"]
                    assert [match.id for match in reader.query(facts["last"])] == [facts["number"] - 1]
                    seen.add(facts["number"])
                found = information(state, check=len(seen) % 4 == 0)
                documents, health = found["documents"], found["health"]
                assert isinstance(documents, dict) and isinstance(health, dict)
                assert documents["stored"] == documents["seen"] >= facts["number"]
                assert health["problems"] == []
            for command in (["info", "--check"], ["query", "text"]):
                arguments = [sys.executable, "-m", "stream_lsh", *command, "--state", str(state)]
                done = subprocess.run(arguments, capture_output=True, check=False)
                assert done.returncode == 0, done.stderr
        finally:
            state.mkdir(exist_ok=True)
            (state / "stop").touch()
            assert writer.wait(60) == 0
    assert len(seen) >= 5
