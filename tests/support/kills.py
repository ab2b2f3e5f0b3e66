"""Runs that are killed at random moments, or broken off in the middle."""

import random
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stream_lsh.embedded import job
from stream_lsh.errors import StreamLshError
from stream_lsh.index.index import Index

# A command line whose run commits as often as it can.
COMMITTING = """
from stream_lsh.embedded import job
job.COMMIT_SECONDS = 0.002
from stream_lsh.cli import main
main()
"""


def kill(command: list[str], output: Path, size: int, kills: int) -> None:
    """Start a command so many times and kill it with SIGKILL: each time when its output has come further, of the bytes
    that it will have in the end. Then let it run to its end."""
    codes = []
    for number in range(kills):
        target = size * (number + random.random()) / kills
        with subprocess.Popen(command) as process:
            while process.poll() is None and (not output.exists() or output.stat().st_size < target):
                time.sleep(0.001)
            time.sleep(random.random() * 0.01)
            process.kill()
            codes.append(process.wait())
    assert -9 in codes
    assert subprocess.run(command, check=False).returncode == 0


def broken_off(monkeypatch: pytest.MonkeyPatch, run: Callable[[], object], every: int = 3) -> int:
    """Have a run commit as often as it can, and fail at one commit in so many; begin it again until it ends. Returns
    how often it was broken off."""
    monkeypatch.setattr(job, "COMMIT_SECONDS", 0)
    # Have one commit in so many fail, with the error "enough".
    commit, count = Index.commit, iter(range(1, 10**6))

    def failing(index: Index, *given: Any, **more: Any) -> None:
        if next(count) % every == 0:
            raise StreamLshError("enough")
        commit(index, *given, **more)

    monkeypatch.setattr(Index, "commit", failing)
    broken = 0
    while True:
        try:
            run()
            return broken
        except StreamLshError as error:
            assert str(error) == "enough"
            broken += 1
