"""Members of judge, forward and group that die at the worst moment: with everything sent and nothing committed.

As a program, a child of the test with a job on its standard input (see `stream_lsh.kafka.run.process`):
`last_steps.py NUMBER`, the number of the commit, from 1 on.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from stream_lsh.kafka.run import process as member
from stream_lsh.kafka.settings import KafkaSettings

PATIENCE = 300  # seconds for what should take a few
DEATHS = {"session_timeout_ms": 3000, "transaction_timeout_ms": 6000}
"""Settings: a member that dies is noticed soon. On a slow machine others may seem dead, too: other tests do without."""


class Victim:
    """Such a process. role: of which; number: of its last commit."""

    def __init__(self, role: str, settings: KafkaSettings, number: int) -> None:
        self.process: subprocess.Popen[bytes] = subprocess.Popen(
            [sys.executable, "-m", __name__, str(number)], stdin=subprocess.PIPE
        )
        assert self.process.stdin is not None
        self.process.stdin.write(member.dump(member.Job((role,), log_level="info"), settings))
        self.process.stdin.flush()

    @property
    def dead(self) -> bool:
        return self.process.poll() is not None

    def wait_until_dead(self) -> None:
        assert self.process.wait(PATIENCE) == -signal.SIGKILL


def main() -> None:
    last, count = int(sys.argv[1]), 0

    def trapped(original: Callable[..., Any]) -> Callable[..., Any]:
        async def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal count
            count += 1
            if count == last:
                os.kill(os.getpid(), signal.SIGKILL)
            return await original(*args, **kwargs)

        return call

    for owner, name in ((AIOKafkaProducer, "commit_transaction"), (AIOKafkaConsumer, "commit")):
        setattr(owner, name, trapped(getattr(owner, name)))
    member.main()


if __name__ == "__main__":
    main()
