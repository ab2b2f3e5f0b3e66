"""A worker that is told to stop at any moment of its life has stopped cleanly, with one code and no traceback."""

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from support.kafka.brokers import settings_for
from support.long_form import rotating

from stream_lsh.kafka.tools.topics import create

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="no /proc to see the handlers in"),
]

PATIENCE = 300.0
CLOSED = "127.0.0.1:1"  # nobody answers there
MOMENTS = 4
EARLIEST, LATEST = 0.3, 6.0  # seconds after the start


def catches(pid: int, number: int) -> bool:
    """Whether a process has a handler of its own for a signal; before that it is Python that is being started."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    mask = next(int(line.split()[1], 16) for line in lines if line.startswith("SigCgt:"))
    return bool(mask >> (number - 1) & 1)


class Started:
    """`stream-lsh kafka worker`, as a process."""

    def __init__(self, folder: Path, *words: str) -> None:
        self._errors = folder / "stderr"
        environment = {name: value for name, value in os.environ.items() if not name.startswith("STREAM_LSH_")}
        with self._errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "stream_lsh.cli", "kafka", "worker", "--data-folder", str(folder / "data"),
                *words],
                stdin=subprocess.DEVNULL, stderr=errors, env=environment, start_new_session=True,
            )  # fmt: skip

    def __enter__(self) -> "Started":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()

    def ready(self) -> None:
        """Wait for its handler."""
        end = time.monotonic() + PATIENCE
        while not catches(self.process.pid, signal.SIGTERM):
            assert self.process.poll() is None and time.monotonic() < end, self.said()
            time.sleep(0.001)

    def said(self) -> str:
        return self._errors.read_text()

    def stopped(self) -> str:
        """What it said, when it has ended cleanly."""
        assert self.process.wait(PATIENCE) == 0, self.said()
        said = self.said()
        assert "Traceback" not in said and "terminated" not in said and "stopped" in said, said
        return said


@pytest.fixture
def server(request: pytest.FixtureRequest, prefix: str, tmp_path: Path) -> Iterator[str]:
    """The address of a broker with topics, or of none."""
    if request.param == "away":
        yield CLOSED
        return
    broker: Any = request.getfixturevalue("broker")
    asyncio.run(create(settings_for(broker, prefix, tmp_path, partitions=1)))
    yield broker.bootstrap


@pytest.mark.parametrize(
    ("seed", "server", "processes"), rotating(product(range(MOMENTS), ("away", "there"), ("one", "groups")), 8),
    indirect=["server"],
)  # fmt: skip
def test_at_any_moment(server: str, prefix: str, tmp_path: Path, processes: str, seed: int) -> None:
    delay = EARLIEST + (LATEST - EARLIEST) * (seed + random.Random(f"{processes} {seed}").random()) / MOMENTS
    began = time.monotonic()
    words = ("--bootstrap-servers", server, "--topic-prefix", prefix, "--processes", processes)
    with Started(tmp_path, *words) as worker:
        worker.ready()
        time.sleep(max(0.0, delay - (time.monotonic() - began)))
        worker.process.terminate()
        worker.stopped()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_at_the_earliest_moment(prefix: str, tmp_path: Path, number: int) -> None:
    with Started(tmp_path, "--bootstrap-servers", CLOSED, "--topic-prefix", prefix) as worker:
        worker.ready()
        worker.process.send_signal(number)
        assert worker.stopped() == "stream-lsh: stopped before anything had begun\n"


@pytest.mark.parametrize("processes", ["one", "groups"])
def test_again_and_again_after_it_has_stopped(prefix: str, tmp_path: Path, processes: str) -> None:
    """An impatient supervisor: what comes when the worker has said that it stopped changes nothing."""
    words = ("--bootstrap-servers", CLOSED, "--topic-prefix", prefix, "--processes", processes)
    with Started(tmp_path, *words) as worker:
        end = time.monotonic() + PATIENCE
        for text in ("waiting for Kafka", "stopped"):
            while text not in worker.said():
                assert worker.process.poll() is None and time.monotonic() < end, worker.said()
                time.sleep(0.001)
            worker.process.terminate()
        while worker.process.poll() is None:
            worker.process.terminate()
            time.sleep(0.0005)
        worker.stopped()
