"""Members of judge and forward that die, or freeze, at the worst moment: with everything sent and nothing committed.

As a program, a child of the test with a job on its standard input (see `stream_lsh.kafka.run.process`):
`last_steps.py die|freeze send|commit|after NUMBER`, NUMBER counting batches or commits from 1. Who freezes stops
itself, and goes on when it gets SIGCONT.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from stream_lsh.kafka.run import process as member
from stream_lsh.kafka.settings import KafkaSettings

PATIENCE = 300  # seconds for what should take a few
DEATHS = {"session_timeout_ms": 3000, "transaction_timeout_ms": 6000}
"""Settings: who dies or freezes is noticed soon. On a slow machine others may seem dead then, too: it is not for tests
where nobody does."""


class Victim:
    """Such a process. role: judge or forward; the rest: see above."""

    def __init__(self, role: str, settings: KafkaSettings, what: str, moment: str, number: int) -> None:
        self.process: subprocess.Popen[bytes] = subprocess.Popen(
            [sys.executable, "-m", __name__, what, moment, str(number)], stdin=subprocess.PIPE
        )
        assert self.process.stdin is not None
        self.process.stdin.write(member.dump(member.Job((role,), log_level="info"), settings))
        self.process.stdin.flush()

    @property
    def dead(self) -> bool:
        return self.process.poll() is not None

    def wait_until_dead(self) -> None:
        assert self.process.wait(PATIENCE) == -signal.SIGKILL

    def wait_until_frozen(self) -> None:
        end = time.monotonic() + PATIENCE
        while True:
            state = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()[0]
            if state == "T":
                return
            assert time.monotonic() < end and self.process.poll() is None
            time.sleep(0.05)

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def end(self) -> int:
        """SIGTERM, and its code."""
        self.process.terminate()
        code = self.process.wait(PATIENCE)
        assert self.process.stdin is not None
        self.process.stdin.close()
        return code

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def main() -> None:
    what, moment, number = sys.argv[1], sys.argv[2], int(sys.argv[3])
    names = [(AIOKafkaProducer, "send_batch")]
    if moment != "send":
        names = [(AIOKafkaProducer, "commit_transaction"), (AIOKafkaConsumer, "commit")]
    count = 0

    def trapped(original: Callable[..., Any]) -> Callable[..., Any]:
        async def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal count
            count += 1
            now = count == number
            found = await original(*args, **kwargs) if moment == "after" or not now else None
            if now:
                os.kill(os.getpid(), signal.SIGKILL if what == "die" else signal.SIGSTOP)
                if moment != "after":
                    found = await original(*args, **kwargs)
            return found

        return call

    for owner, name in names:
        setattr(owner, name, trapped(getattr(owner, name)))
    member.main()


if __name__ == "__main__":
    main()
