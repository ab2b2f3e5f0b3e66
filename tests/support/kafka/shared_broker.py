"""One broker for all processes of a test run: the first process that asks starts it, and it ends with the run.

As a program, this module keeps the broker: `python -m support.kafka.shared_broker FOLDER PID`. It ends when the process
PID has ended.
"""

import fcntl
import os
import subprocess
import sys
import time
import traceback
from dataclasses import dataclass
from pathlib import Path

from stream_lsh.errors import BrokerError
from stream_lsh.kafka.tools.broker import KafkaBroker
from support.kafka.brokers import VERSION, DockerBroker, docker_answers, is_running
from support.waiting import until

LOOK = 0.5  # seconds between two looks whether the run has ended
PROPERTIES = {
    "log.cleaner.backoff.ms": "1000",  # else compaction lets us wait for 15 s
    "log.initial.task.delay.ms": "1000",
    "log.retention.check.interval.ms": "1000",  # else what is too old goes after minutes, in whichever test runs then
}


@dataclass(frozen=True, slots=True)
class SharedBroker:
    """It is not this process that stops it. bootstrap: host:port."""

    bootstrap: str


def shared_broker(folder: Path) -> str:
    """host:port of the run's broker, of which all its processes give the same folder; or a BrokerError."""
    folder.mkdir(exist_ok=True)
    address, failure = folder / "address", folder / "failure"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not address.exists() and not failure.exists():
            # pytest-xdist's processes are children of the one that the run ends with.
            run = os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else os.getpid()
            command = [sys.executable, "-m", __name__, str(folder), str(run)]
            subprocess.run(command, stdin=subprocess.DEVNULL, check=True)
        until(lambda: address.exists() or failure.exists(), why=f"no broker in {folder}")
    if failure.exists():
        raise BrokerError(failure.read_text())
    return address.read_text()


def main() -> None:
    folder, run = Path(sys.argv[1]), int(sys.argv[2])
    if os.fork():  # no child of a test: a test that hangs ends its children
        os._exit(0)
    os.setsid()  # Ctrl-C ends the tests first
    broker = (
        DockerBroker(VERSION) if docker_answers() else KafkaBroker(folder / "kafka", VERSION, properties=PROPERTIES)
    )
    try:
        broker.start()
        _write(folder / "address", broker.bootstrap)
        while is_running(run):
            time.sleep(LOOK)
    except Exception as error:
        _write(folder / "failure", str(error) if isinstance(error, BrokerError) else traceback.format_exc())
    finally:
        broker.stop()


def _write(path: Path, text: str) -> None:
    new = path.with_suffix(".new")
    new.write_text(text)
    new.rename(path)


if __name__ == "__main__":
    main()
