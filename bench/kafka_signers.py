"""Many signers in one process, each a member of the group with clients of its own. Settings are read as a worker's."""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal

from stream_lsh.kafka.run.metrics import Probe
from stream_lsh.kafka.run.restarts import keep_running
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.kafka.sign import pacing
from stream_lsh.kafka.sign.stage import SignStage


async def sign(signers: int) -> None:
    """Run so many signers until SIGTERM."""
    settings, stop = KafkaSettings.load(), asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with asyncio.TaskGroup() as group:
        for _ in range(signers):
            probe = Probe("sign")
            group.create_task(keep_running(lambda probe=probe: SignStage(settings, probe), stop, settings, probe))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.kafka_signers", description=__doc__.splitlines()[0])
    parser.add_argument("--signers", type=int, required=True, help="how many")
    parser.add_argument(
        "--most-frames", type=float, default=pacing.MOST_FRAMES,
        help="frames a second of all signers; inf: pauses are linger_ms (%(default)s)",
    )  # fmt: skip
    given = parser.parse_args()
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # it tells of each rebalancing of the group
    pacing.MOST_FRAMES = given.most_frames
    asyncio.run(sign(given.signers))


if __name__ == "__main__":
    main()
