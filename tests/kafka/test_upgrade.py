"""Workers of the version before and of this one, mixed in any order while documents come: a rolling upgrade."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from chaos import documents
from feeding import Feed, records_of
from harness import HERE, Pipeline, Worker, until
from stage_helpers import warm

from stream_lsh.hashing import kernels

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("upgrade")]

BEFORE = "4c13dc1"
"""The revision that is upgraded from."""
IN_USE = "is in use by another process"
WARM = (
    "from stream_lsh.kafka.run.warming import warm_up; from stream_lsh.kafka.settings import KafkaSettings;"
    "warm_up(KafkaSettings())"
)


@pytest.fixture(scope="module")
def before() -> Path:
    """The folder of the program as it was then, with its kernels compiled: kept, for numba knows it by its path."""
    git = subprocess.run(["git", "archive", BEFORE, "stream_lsh"], cwd=HERE, capture_output=True, check=False)
    if git.returncode:
        pytest.skip(f"this clone has no revision {BEFORE}: {git.stderr.decode(errors='replace').strip()}")
    cache = Path(tempfile.gettempdir()) if kernels.FOLDER is None else kernels.FOLDER.parent
    folder = cache / f"revision-{BEFORE}"
    if not folder.exists():
        made = Path(tempfile.mkdtemp(dir=cache))
        with tarfile.open(fileobj=io.BytesIO(git.stdout)) as archive:
            archive.extractall(made, filter="data")
        with suppress(OSError):  # somebody else was faster
            made.rename(folder)  # whole, or not at all
        shutil.rmtree(made, ignore_errors=True)
    compiling = subprocess.Popen([sys.executable, "-c", WARM], cwd=folder, env=os.environ | {"PYTHONPATH": str(folder)})
    warm()  # beside it
    assert compiling.wait() == 0
    return folder


def replace(pipeline: Pipeline, workers: Sequence[Worker], package: Path, *, kill: bool = False) -> None:
    """Go on with workers of this version, when all has had its verdict that was there before."""
    there = pipeline.produced()
    for worker in workers:
        (worker.kill if kill else worker.terminate)()
    for worker in workers:
        code = worker.wait()
        # Then a match worker that was stopped in a rebalance took a shard again before it had closed it.
        known = worker.package != HERE and code == 3 and IN_USE in worker.said()
        assert kill or code == 0 or known, pipeline.report(f"{worker.name} has ended with code {code}")
        worker.package = package
        worker.start()
    until(lambda: all(worker.started or not worker.running for worker in workers), why=pipeline.report())
    pipeline.wait_for(there)
    pipeline.alive()


@pytest.mark.parametrize("shards", [1, 2])
def test_a_rolling_upgrade_under_load_with_a_step_back(
    broker: Any, prefix: str, shared_data: Path, tmp_path: Path, before: Path, shards: int
) -> None:
    """Each role goes from old workers to new ones and back, with what they have said, committed and stored."""
    roles = ("sign", "sequence"), ("match",), ("judge", "forward")
    with Pipeline(broker.bootstrap, prefix, tmp_path, partitions=4, shards=shards) as pipeline:
        pairs = [[pipeline.worker(mine, start=False) for _ in range(2)] for mine in roles]
        firsts, seconds = zip(*pairs, strict=True)
        for worker in pipeline.workers:
            worker.package = before
            worker.start()
        feed = Feed(broker.bootstrap, pipeline.topics.documents, records_of(
            list(documents(shared_data, 30_000, 9)), 4, 9
        ), rate=150)  # fmt: skip
        feed.start()
        pipeline.wait_for(200)
        for worker in firsts:
            replace(pipeline, [worker], HERE)
        replace(pipeline, seconds, before, kill=True)  # begins with what new ones have left
        replace(pipeline, firsts, before)  # all goes to old ones, new folders too
        replace(pipeline, seconds, HERE)
        replace(pipeline, firsts, HERE)
        feed.stop()
        pipeline.finish()
        for worker in pipeline.workers:
            worker.terminate()
        assert [worker.wait() for worker in pipeline.workers] == [0] * 6, pipeline.report()
        said = "".join(worker.said(10**7) for worker in pipeline.workers)
        assert "Traceback" not in said and "other settings" not in said and "version" not in said
        pipeline.check()
