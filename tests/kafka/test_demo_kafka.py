"""`stream-lsh demo --kafka` as a process: what it starts, prints and leaves behind, however it ends."""

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.kafka.brokers import is_running, local_broker
from support.kafka.harness import descendants
from support.long_form import rotating
from support.waiting import PATIENCE, until

from stream_lsh.kafka.client.connection import admin
from stream_lsh.kafka.settings import KafkaSettings

DOCUMENTS = 150


class Running:
    """The command, with a folder of its own for temporary files; what it prints is in `out` and `err`."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.temporary = folder / "temporary"
        self.temporary.mkdir()
        self._out, self._err = folder / "out", folder / "err"
        command = [sys.executable, "-m", "stream_lsh", "demo", "--kafka", "--port", "0", "--rate", "100"]
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(
                [*command, "--documents", str(DOCUMENTS), *options], stdout=out, stderr=err,
                env=os.environ | {"TMPDIR": str(self.temporary)},
            )  # fmt: skip

    @property
    def out(self) -> str:
        return self._out.read_text()

    @property
    def err(self) -> str:
        return self._err.read_text()

    def wait_for(self, pattern: str) -> str:
        """Until a message is there; its first group."""

        def found() -> re.Match[str] | None:
            assert self.process.poll() is None, self.err
            return re.search(pattern, self.err)

        until(found, why=pattern)
        match = re.search(pattern, self.err)
        assert match is not None
        return match[1]


@contextmanager
def running(folder: Path, *options: str) -> Iterator[Running]:
    """The command; what is left of it is killed at the end."""
    demo = Running(folder, *options)
    left = list[int]()
    try:
        yield demo
    finally:
        left = descendants(demo.process.pid)
        demo.process.kill()
        demo.process.wait()
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def command_of(pid: int) -> str:
    return subprocess.run(["ps", "-ww", "-o", "command=", "-p", str(pid)], capture_output=True, text=True).stdout


async def topics(bootstrap: str) -> list[str]:
    async with admin(KafkaSettings(bootstrap_servers=bootstrap)) as client:
        return list(await client.list_topics())


def test_it_shows_all_of_a_pipeline_and_leaves_nothing_on_a_broker_that_is_given(broker: Any, tmp_path: Path) -> None:
    with running(tmp_path, "--bootstrap-servers", broker.bootstrap) as demo:
        prefix = demo.wait_for(r"topics of the prefix (\S+) are there")
        assert f"{prefix}.unique" in asyncio.run(topics(broker.bootstrap))
        url = demo.wait_for(r"the page is at (http\S+)")
        demo.wait_for(f"(the feed has ended): {DOCUMENTS} documents")
        demo.wait_for(f"{DOCUMENTS} (verdicts), .* 1 alert")
        assert httpx.get(url).headers["content-type"].startswith("text/html")
        stats = httpx.get(f"{url}/v1/stats").json()
        assert stats["totals"]["documents"] == DOCUMENTS
        groups = httpx.get(f"{url}/v1/groups", params={"order": "largest"}).json()["groups"]
        assert groups[0]["total_members"] >= 10, "the story that raised the alert"
        children = descendants(demo.process.pid)
        assert len(children) == 2, "a worker and the page"
        demo.process.send_signal(signal.SIGINT)
        assert demo.process.wait(PATIENCE) == 0, demo.err
        assert not any(map(is_running, children))
    lines = demo.out.splitlines()
    assert sum(line.startswith("pair ") for line in lines[:-5]) > 0
    assert sum(line.startswith("alert ") for line in lines[:-5]) == 1
    assert [line.split()[0] for line in lines[-5:]] == ["documents", "verdicts", "pairs", "groups", "alerts"]
    assert lines[-5].startswith(f"documents  {DOCUMENTS} sent")
    assert not [name for name in asyncio.run(topics(broker.bootstrap)) if name.startswith(prefix)]
    assert not list(demo.temporary.iterdir())


@pytest.mark.parametrize("what", rotating(["signal", "worker", "broker", "demo"], 2))
def test_with_a_broker_of_its_own_all_ends_together(what: str, tmp_path: Path) -> None:
    local_broker(tmp_path)  # or skip
    if what == "demo" and sys.platform != "linux":
        pytest.skip("only Linux ends the children of a killed process")
    kept = tmp_path / "kept"
    with running(tmp_path, *(["--keep", os.path.relpath(kept)] if what == "worker" else [])) as demo:
        demo.wait_for(r"Kafka answers at (\S+)")
        demo.wait_for(r"\d s  (the first pair)")
        children = descendants(demo.process.pid)
        names = {pid: command_of(pid).split() for pid in children}
        victim = {
            "signal": demo.process.pid, "demo": demo.process.pid,
            "worker": next((pid for pid, words in names.items() if "worker" in words and "--config" in words), 0),
            "broker": next((pid for pid, words in names.items() if "kafka.Kafka" in words), 0),
        }[what]  # fmt: skip
        os.kill(victim, signal.SIGTERM if what == "signal" else signal.SIGKILL)
        code = demo.process.wait(PATIENCE)
        until(lambda: not any(map(is_running, children)), why=demo.err)
    if what == "signal":
        assert code == 0, demo.err
    elif what == "worker":
        assert code == 1 and "the worker ended with signal 9; its log" in demo.err
        assert {path.name for path in kept.iterdir()} >= {"kafka", "worker", "settings.toml", "worker.log", "page.log"}
    elif what == "broker":
        assert code == 6 and "Kafka has ended; its log" in demo.err
    else:
        assert code == -signal.SIGKILL
        return
    assert not list(demo.temporary.iterdir())
