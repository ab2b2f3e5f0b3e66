"""`stream-lsh kafka reindex` with all stages: interrupted and run again, then the workers go on where it ended."""

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from support.kafka.feeding import records_of
from support.kafka.harness import PATIENCE, Pipeline

from stream_lsh.demo.feed import feed_lines
from stream_lsh.kafka.settings import ROLES

DOCUMENTS = 1500
GIVEN: dict[str, Any] = {"partitions": 2}


def start(folder: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "stream_lsh.cli", *words], stderr=subprocess.PIPE, text=True, cwd=folder
    )


def test_rebuild_and_go_on(broker: Any, prefix: str, tmp_path: Path) -> None:
    lines = [line.strip() for line in feed_lines(DOCUMENTS + 200, 5)]
    first, more = lines[:DOCUMENTS], lines[DOCUMENTS:]
    with Pipeline(broker.bootstrap, prefix, tmp_path, **GIVEN) as old:
        old.produce(records_of(first, 2, 1))
        config = old.worker(start=False).config
    words = ["kafka", "reindex", "--config", str(config), "--to-prefix", f"{prefix}-2"]
    words += ["--compare-with", "all", "--shards", "2"]
    run = start(tmp_path, *words, "--log-level", "info")
    assert run.stderr is not None
    said = ""
    for line in run.stderr:
        said += line
        if "answering for" in line:
            run.send_signal(signal.SIGINT)
            break
    said += run.stderr.read()  # not communicate(): it does not know what was read ahead
    run.wait(PATIENCE)
    # It may have been fast enough.
    assert (run.returncode == 130 and "run the same command again to go on" in said) or "To switch" in said

    run = start(tmp_path, *words)
    _, said = run.communicate(timeout=PATIENCE)
    assert run.returncode == 0 and f"{len(first):,} documents judged" in said, said
    assert f"stream-lsh kafka worker --topic-prefix {prefix}-2" in said

    given = {**GIVEN, "compare_with": "all", "shards": 2, "documents_topic": old.topics.documents}
    new = Pipeline(broker.bootstrap, f"{prefix}-2", tmp_path / "new", **given)
    new.folder.mkdir()
    with new:
        worker = new.worker(ROLES, data_folder=tmp_path / f"worker-0-data-{prefix}-2")
        new.produce(records_of(more, 2, 2))
        new.finish()
        worker.terminate()
        assert worker.wait() == 0, new.report()
        assert len(new.check().documents) == len(lines)
