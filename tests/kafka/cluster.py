"""Three brokers, so that a quorum can be lost: the first is the controller too and stays, the others can be killed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from stream_lsh.kafka.broker import KafkaBroker, free_port

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
    return KafkaBroker(folder, version, port, properties=properties, heap_mb=384)


@contextmanager
def cluster(folder: Path, version: str) -> Iterator[list[KafkaBroker]]:
    """The three, running; the first of them is the controller.

    Raises:
        BrokerError: see `KafkaBroker.start`.
    """
    control = free_port()
    voters = f"1@127.0.0.1:{control}"
    with ExitStack() as stack:
        first = stack.enter_context(_broker(folder / "1", version, 1, voters, free_port(), control))
        meta = (folder / "1" / "data" / "meta.properties").read_text(encoding="ascii")
        (name,) = (line for line in meta.splitlines() if line.startswith("cluster.id="))
        brokers = [first]
        for node in range(2, COPIES + 1):
            # What formatting would write, but for the id of the cluster, which would be another one.
            data = folder / str(node) / "data"
            data.mkdir(parents=True)
            (data / "meta.properties").write_text(f"version=1\nnode.id={node}\n{name}\n", encoding="ascii")
            broker = _broker(folder / str(node), version, node, voters, free_port(), None)
            brokers.append(stack.enter_context(broker))
        yield brokers
