"""Three brokers, so that a quorum can be lost: the first is the controller too and stays, the others can be killed."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from aiokafka.admin import AIOKafkaAdminClient

from stream_lsh.kafka.tools.broker import KafkaBroker, free_ports
from support.kafka.stages import PATIENCE

COPIES = 3
_COPIED = {
    "offsets.topic.replication.factor": str(COPIES),
    "transaction.state.log.replication.factor": str(COPIES),
    "transaction.state.log.min.isr": "2",
    "share.coordinator.state.topic.replication.factor": str(COPIES),
}


def _broker(folder: Path, version: str, node: int, voters: str, port: int, control: int | None) -> KafkaBroker:
    listeners = {"PLAINTEXT": port} | ({} if control is None else {"CONTROLLER": control})
    properties = {
        **_COPIED,
        "node.id": str(node),
        "process.roles": "broker" if control is None else "broker,controller",
        "controller.quorum.voters": voters,
        "listeners": ",".join(f"{name}://127.0.0.1:{number}" for name, number in listeners.items()),
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    }
    return KafkaBroker(folder, version, port, properties=properties)


async def _until_complete(bootstrap: str) -> None:
    """Wait until all know of each other: copies can be spread from then on."""
    client = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await client.start()
    try:
        end = time.monotonic() + PATIENCE
        while len((await client.describe_cluster())["brokers"]) < COPIES:
            assert time.monotonic() < end, "a broker is missing in the cluster"
            await asyncio.sleep(0.1)
    finally:
        await client.close()


@contextmanager
def cluster(folder: Path, version: str) -> Iterator[list[KafkaBroker]]:
    """The three, running; the first of them is the controller. BrokerError: see `KafkaBroker.start`."""
    control, *ports = free_ports(1 + COPIES)
    voters = f"1@127.0.0.1:{control}"
    with ExitStack() as stack:
        first = stack.enter_context(_broker(folder / "1", version, 1, voters, ports[0], control))
        meta = (folder / "1" / "data" / "meta.properties").read_text(encoding="ascii")
        (name,) = (line for line in meta.splitlines() if line.startswith("cluster.id="))
        brokers = [first]
        for node in range(2, COPIES + 1):
            # What formatting would write, but for the id of the cluster, which would be another one.
            data = folder / str(node) / "data"
            data.mkdir(parents=True)
            (data / "meta.properties").write_text(f"version=1\nnode.id={node}\n{name}\n", encoding="ascii")
            broker = _broker(folder / str(node), version, node, voters, ports[node - 1], None)
            brokers.append(stack.enter_context(broker))
        asyncio.run(_until_complete(first.bootstrap))
        yield brokers
