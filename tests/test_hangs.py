"""A test that hangs ends with the stacks of its threads and tasks."""

import os
import subprocess
import sys
from pathlib import Path

HANGS = """
import asyncio, subprocess, sys, threading, time
import pytest

@pytest.mark.limit(0.2)
def test_thread():
    threading.Thread(target=time.sleep, args=(8,), name="the-thread", daemon=True).start()
    time.sleep(60)

@pytest.mark.limit(0.2)
async def test_task():
    async def the_inner():
        await asyncio.sleep(60)
    async def the_task():
        await the_inner()
    await asyncio.create_task(the_task())

@pytest.mark.limit(1)
def test_child():
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], stderr=open("child", "wb"))
    child.wait()
    time.sleep(60)

def test_other():
    pass
"""


def test_stacks_of_all_threads_tasks_and_children(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(HANGS)
    options = ["-p", "support.hang", "-o", "asyncio_mode=auto", "-p", "no:cacheprovider", "--rootdir", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "test_it.py"], cwd=tmp_path, capture_output=True, text=True,
        env={name: value for name, value in os.environ.items() if name not in ("STREAM_LSH_LONG", "PYTEST_ADDOPTS")},
    )  # fmt: skip
    assert "3 failed, 1 passed" in done.stdout, done.stdout
    assert done.stdout.count("s are over") >= 3
    assert all(name in done.stdout for name in ("the-thread", "in the_task", "in the_inner"))
    assert b"Current thread" in (tmp_path / "child").read_bytes()
