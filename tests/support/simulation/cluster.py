"""A simulated Kafka: nodes, topics, partitions and their leaders, coordinators; and what can happen to them.

All nodes share one state, as if every follower were in step: a leader that goes takes nothing with it, unless an
unclean election is asked for (`Cluster.lose_tail`).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from typing import Any

from support.simulation import wire
from support.simulation.api import Api
from support.simulation.groups import Group, Offsets, Place
from support.simulation.log import Log
from support.simulation.network import Network
from support.simulation.transactions import Transactions
from support.simulation.world import World

PORT = 9092

TOPIC_DEFAULTS: Mapping[str, str] = {
    "cleanup.policy": "delete",
    "compression.type": "producer",
    "delete.retention.ms": "86400000",
    "max.compaction.lag.ms": "9223372036854775807",
    "max.message.bytes": "1048588",
    "message.timestamp.after.max.ms": "9223372036854775807",
    "message.timestamp.before.max.ms": "9223372036854775807",
    "message.timestamp.type": "CreateTime",
    "min.cleanable.dirty.ratio": "0.5",
    "min.compaction.lag.ms": "0",
    "min.insync.replicas": "1",
    "retention.bytes": "-1",
    "retention.ms": "604800000",
    "segment.bytes": "1073741824",
    "segment.ms": "604800000",
    "unclean.leader.election.enable": "false",
}
BROKER_DEFAULTS: Mapping[str, str] = {
    "auto.create.topics.enable": "false",
    "default.replication.factor": "1",
    "group.max.session.timeout.ms": "1800000",
    "group.min.session.timeout.ms": "6000",
    "message.max.bytes": "1048588",
    "num.partitions": "1",
    "offsets.retention.minutes": "10080",
    "transaction.max.timeout.ms": "900000",
}


class Node:
    """A broker of the cluster."""

    def __init__(self, cluster: Cluster, number: int) -> None:
        self.cluster, self.number, self.up = cluster, number, True

    @property
    def host(self) -> str:
        return f"broker-{self.number}"

    def serve(self, head: wire.Head, ask: dict[str, Any], reply: Callable[[dict[str, Any] | None], None]) -> None:
        self.cluster.api.serve(self, head, ask, reply)


class Topic:
    """A topic: what was set, and its partitions. leaders: the node of each."""

    def __init__(self, config: Mapping[str, str], leaders: list[int]) -> None:
        self.set = dict(config)
        self.config = {**TOPIC_DEFAULTS, **config}
        self.leaders = leaders
        self.logs = [Log(self.config) for _ in leaders]


class Cluster:
    """See the module.

    Args:
        nodes: number of brokers.
        group_delay: group.initial.rebalance.delay.ms, in seconds.
    """

    def __init__(self, world: World, nodes: int = 1, group_delay: float = 0.0) -> None:
        self.world = world
        self.process = world.process("kafka")
        self.loop = self.process.loop
        self.nodes = [Node(self, number) for number in range(nodes)]
        self.topics: dict[str, Topic] = {}
        self.broker_config = dict(BROKER_DEFAULTS)
        self.groups: dict[str, Group] = {}
        self._group_delay = group_delay
        self._coordinators = {number: number for number in range(nodes)}
        self.transactions = Transactions(world, self.loop, self)
        self.api = Api(self)
        self.network = Network(world, self.loop, {(node.host, PORT): node for node in self.nodes})
        world.network = self.network

    @property
    def bootstrap(self) -> str:
        """For `bootstrap_servers`."""
        return ",".join(f"{node.host}:{PORT}" for node in self.nodes)

    # What there is

    def create(self, name: str, partitions: int = 1, **config: str) -> Topic:
        """A topic. Names of settings with underscores for dots."""
        given = {key.replace("_", "."): value for key, value in config.items()}
        topic = self.topics[name] = Topic(given, [self._leader(name, number) for number in range(partitions)])
        return topic

    def delete(self, name: str) -> Topic | None:
        """Delete a topic, and what groups have committed of it."""
        for group in self.groups.values():
            committed = group.offsets.committed
            for place in [place for place in committed if place[0] == name]:
                del committed[place]
        return self.topics.pop(name, None)

    def grow(self, name: str, partitions: int) -> None:
        """More partitions for a topic."""
        topic = self.topics[name]
        for number in range(len(topic.logs), partitions):
            topic.leaders.append(self._leader(name, number))
            topic.logs.append(Log(topic.config))

    def _leader(self, name: str, partition: int) -> int:
        return (zlib.crc32(name.encode()) + partition) % len(self.nodes)

    def log(self, place: Place) -> Log | None:
        """A partition, None if there is none."""
        topic = self.topics.get(place[0])
        return topic.logs[place[1]] if topic and 0 <= place[1] < len(topic.logs) else None

    def leader(self, place: Place) -> int:
        return self.topics[place[0]].leaders[place[1]]

    def group(self, name: str) -> Group:
        """A group, new if need be."""
        if name not in self.groups:
            self.groups[name] = Group(self.world, self.loop, name, self._group_delay)
        return self.groups[name]

    def offsets(self, group: str) -> Offsets:
        return self.group(group).offsets

    def coordinator(self, key: str) -> Node | None:
        """The node that coordinates a group or a transactional id; None while there is none."""
        home = zlib.crc32(key.encode()) % len(self.nodes)
        node = self.nodes[self._coordinators[home]]
        return node if node.up else None

    # What can happen to it

    def stop(self, number: int) -> None:
        """A node goes. Its partitions and coordinators move to the next that is up."""
        node = self.nodes[number]
        node.up = False
        self.network.reset(node)
        self.world.note("node", number, "is down")
        self.move(number)

    def move(self, number: int) -> None:
        """Move what a node leads to the others that are up, if there are any."""
        others = [node.number for node in self.nodes if node.up and node.number != number]
        if not others:
            return
        for topic in self.topics.values():
            for place, leader in enumerate(topic.leaders):
                if leader == number:
                    topic.leaders[place] = self.world.chance.choice(others)
                    topic.logs[place].epoch += 1
        for home, node in self._coordinators.items():
            if node == number:
                self._coordinators[home] = self.world.chance.choice(others)

    def start(self, number: int) -> None:
        """A node is back. It leads nothing yet."""
        self.nodes[number].up = True
        self.world.note("node", number, "is up")

    def lose_tail(self, place: Place, records: int) -> None:
        """An unclean election: the last records of a partition are gone."""
        log = self.log(place)
        assert log is not None
        log.lose(max(log.start, log.end - records))
        self.world.note("partition", *place, "now ends at", log.end)

    def clean(self, active: bool = False) -> None:
        """Let retention and compaction run everywhere, over all segments but the active ones, or over those, too."""
        for topic in self.topics.values():
            for log in topic.logs:
                if active:
                    log.roll()
                log.clean(self.world.now_ms)

    def expire_offsets(self, group: str) -> None:
        """Forget what a group without members has committed, as brokers do after seven days."""
        found = self.groups.get(group)
        if found is not None and not found.members:
            found.offsets.committed.clear()
