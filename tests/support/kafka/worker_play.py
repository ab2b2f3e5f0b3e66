"""Stages for the tests of the worker: what they do is told by files in a folder, what they did by lines in one.

As a program: a worker with these stages, `python -m support.kafka.worker_play FOLDER PROCESSES ROLE ...`.
"""

import asyncio
import os
import sys
import time
from pathlib import Path

import click

from stream_lsh.cli.failures import guarded, name_command
from stream_lsh.embedded.signals import interruption
from stream_lsh.errors import BrokerError, StoreError
from stream_lsh.kafka.run import supervisor as worker
from stream_lsh.kafka.run.restarts import Stage
from stream_lsh.kafka.run.supervisor import plan, work
from stream_lsh.kafka.settings import KafkaSettings

STAGES = {
    "sequence": "support.kafka.worker_play:Sequence",
    "judge": "support.kafka.worker_play:Judge",
    "forward": "support.kafka.worker_play:Forward",
}


class Play(Stage):
    """Says that it runs, does what a file with the name of its role says, drains."""

    async def run(self, stop: asyncio.Event) -> None:
        folder = self.settings.data_folder
        self.note(folder, "started")
        order = folder / self.role
        while not stop.is_set():
            if order.exists():
                what = order.read_text()
                order.unlink()
                if what == "give up":
                    raise StoreError("the shelf is empty; fill it")
                if what == "no broker":
                    raise BrokerError("nobody answers")
                if what == "crash":
                    raise KeyError("a bug")
                if what == "fail":
                    raise ConnectionResetError("the line is cut")
                if what == "hang":
                    self.note(folder, "hangs")
                    time.sleep(3600)
            self.probe.idle()
            await asyncio.sleep(0.02)
        await asyncio.sleep(0.05)
        self.note(folder, "drained")

    def note(self, folder: Path, what: str) -> None:
        password = self.settings.sasl_password
        secret = password.get_secret_value() if password is not None else ""
        with (folder / "log").open("a") as file:
            file.write(f"{self.role} {os.getpid()} {what} {secret}\n")


class Sequence(Play):
    role = "sequence"


class Judge(Play):
    role = "judge"


class Forward(Play):
    role = "forward"


async def _there(*_: object) -> None:
    pass


def main() -> None:
    folder, processes, *roles = sys.argv[1:]
    port = os.environ.get("PLAY_PORT")
    settings = KafkaSettings(
        data_folder=Path(folder), security_protocol="SASL_PLAINTEXT", sasl_mechanism="PLAIN", sasl_username="ann",
        sasl_password="swordfish",
    )  # fmt: skip
    worker.LIVED = 3600.0  # five crashes are in a row then, however long a slow machine takes for them
    jobs = plan(  # type: ignore[arg-type]
        roles, processes, int(port) if port else None, "debug", STAGES, together="PLAY_TOGETHER" in os.environ
    )
    try:
        with click.Context(click.Command("play")) as context, guarded(context):
            name_command(context)
            signals = work(jobs, settings, check=_there)
            if len(signals) > 1:
                raise interruption(signals[1])
    except click.exceptions.Exit as end:
        sys.exit(end.exit_code)


if __name__ == "__main__":
    main()
