"""The requests that a simulated Kafka serves, from the names of their fields to the names of the answers' fields."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from support.simulation import wire
from support.simulation.errors import Error
from support.simulation.groups import Committed, Place, State
from support.simulation.log import Log

if TYPE_CHECKING:
    from support.simulation.cluster import Cluster, Node

Fields = dict[str, Any]
Reply = Callable[[Fields | None], None]

VERSIONS: dict[int, tuple[int, int]] = {
    0: (0, 12), 1: (4, 17), 2: (1, 10), 3: (0, 13), 8: (2, 9), 9: (1, 9), 10: (0, 6), 11: (2, 9), 12: (0, 4),
    13: (0, 5), 14: (0, 5), 15: (0, 6), 16: (0, 5), 18: (0, 4), 19: (2, 7), 20: (1, 6),
    21: (0, 2), 22: (0, 5), 24: (0, 5),
    25: (0, 4), 26: (0, 5), 28: (0, 5), 32: (1, 4), 33: (0, 2), 37: (0, 3), 42: (0, 2),
}  # fmt: skip
"""Lowest and highest version of each API, as Kafka 4.1 announces them (a test compares them with a real one)."""

_VERSIONS = wire.Repeated(
    api_versions=[{"api_key": api, "min_version": low, "max_version": high} for api, (low, high) in VERSIONS.items()]
)
EARLIEST, LATEST = -2, -1  # instead of a time
_TOPIC, _BROKER = 2, 4  # kinds of resources
_SET, _DEFAULT = 1, 5  # sources of a setting
_OF_COORDINATOR = {"OffsetCommit", "OffsetFetch", "JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup"}


def per_topic(asked: list[Fields], key: str = "topic") -> list[tuple[str, Any]]:
    """Topics and partitions of a request, flat: (topic, fields or number of a partition)."""
    return [(topic[key], partition) for topic in asked for partition in topic["partitions"]]


def by_topic(found: list[tuple[str, Fields]], key: str = "topic", inner: str = "partitions") -> list[Fields]:
    """Back in topics, in the order of their first partition."""
    topics: dict[str, list[Fields]] = defaultdict(list)
    for topic, fields in found:
        topics[topic].append(fields)
    return [{key: topic, inner: fields} for topic, fields in topics.items()]


@cache
def _method(request: str) -> str:
    """Its name, as `_end_txn` of EndTxn."""
    return "".join("_" + c.lower() if c.isupper() else c for c in request)


class Api:
    """Serves requests."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._described: dict[Any, wire.Repeated] = {}

    def serve(self, node: Node, head: wire.Head, ask: Fields, reply: Reply) -> None:
        """Answer a request, now or later."""
        getattr(self, _method(head.name))(node, ask, reply, head)

    # Of the cluster

    def _api_version(self, node: Node, ask: Fields, reply: Reply, head: wire.Head) -> None:
        reply(_VERSIONS)

    def _metadata(self, node: Node, ask: Fields, reply: Reply, head: wire.Head) -> None:
        cluster = self._cluster
        names = tuple(cluster.topics if ask["topics"] is None else ask["topics"])
        leaders = tuple(tuple(topic.leaders) if (topic := cluster.topics.get(name)) else () for name in names)
        state = names, leaders, tuple(one.number for one in cluster.nodes if one.up)
        if state not in self._described:
            self._described[state] = self._describe(*state)
        reply(self._described[state])

    def _describe(
        self, names: Sequence[str], leaders: Sequence[Sequence[int]], numbers: Sequence[int]
    ) -> wire.Repeated:
        """Topics, the leaders of the partitions of each, and the nodes that are up."""
        topics = []
        for name, given in zip(names, leaders, strict=True):
            partitions = [
                {"partition": place, "leader": leader if leader in numbers else -1, "replicas": numbers, "isr": numbers,
                 "offline_replicas": [], "error_code": 0 if leader in numbers else 5}
                for place, leader in enumerate(given)
            ]  # fmt: skip
            error = Error.NONE if given else Error.UNKNOWN_TOPIC_OR_PARTITION
            topics.append({"error_code": error, "topic": name, "is_internal": False, "partitions": partitions})
        # A rack, as Python before 3.12 takes the hash of None from its address: clients choose from a set of brokers.
        hosts = [(number, self._cluster.nodes[number].host) for number in numbers]
        brokers = [{"node_id": number, "host": host, "port": 9092, "rack": "rack"} for number, host in hosts]
        return wire.Repeated(brokers=brokers, cluster_id="simulated", controller_id=numbers[0], topics=topics)

    def _find_coordinator(self, node: Node, ask: Fields, reply: Reply, head: wire.Head) -> None:
        found = self._cluster.coordinator(ask.get("coordinator_key", ask.get("consumer_group")))
        if found is None:
            return reply({"error_code": Error.COORDINATOR_NOT_AVAILABLE, "coordinator_id": -1, "host": "", "port": -1})
        return reply({"coordinator_id": found.number, "host": found.host, "port": 9092})

    # Of partitions

    def _at(self, node: Node, place: Place) -> tuple[Log | None, Error]:
        """A partition that this node leads, or the error."""
        log = self._cluster.log(place)
        if log is None:
            return None, Error.UNKNOWN_TOPIC_OR_PARTITION
        if self._cluster.leader(place) != node.number:
            return None, Error.NOT_LEADER_OR_FOLLOWER
        return log, Error.NONE

    def _produce(self, node: Node, ask: Fields, reply: Reply, head: wire.Head) -> None:
        found = []
        for topic, one in per_topic(ask["topics"]):
            place = topic, one["partition"]
            log, error = self._at(node, place)
            base = -1
            name = ask.get("transactional_id")
            if log is not None:
                verified = not name or self._cluster.transactions.holds(name, place)
                error, base = log.append(one["messages"], self._cluster.world.now_ms, verified)
            start = log.start if log else -1
            stamped = log is not None and log.config["message.timestamp.type"] == "LogAppendTime" and not error
            time = self._cluster.world.now_ms if stamped else -1
            fields = {
                "partition": place[1],
                "error_code": error,
                "offset": base,
                "timestamp": time,
                "log_start_offset": start,
            }
            found.append((topic, fields))
        reply({"topics": by_topic(found)} if ask["required_acks"] else None)

    def _fetch(self, node: Node, ask: Fields, reply: Reply, head: wire.Head) -> None:
        asked = per_topic(ask["topics"])
        committed = bool(ask.get("isolation_level"))
        answered = False
        logs: dict[Log, None] = {}

        def look(final: bool = False) -> None:
            nonlocal answered
            if answered:
                return
            found, size, failed = [], 0, False
            for topic, part in asked:
                log, error = self._at(node, (topic, part["partition"]))
                offset = part.get("fetch_offset", part.get("offset"))
                data, gone = b"", []
                if log is not None and not log.start <= offset <= log.end:
                    log, error = None, Error.OFFSET_OUT_OF_RANGE
                elif log is not None and (size < ask.get("max_bytes", size + 1)):
                    data, gone = log.read(offset, part["max_bytes"], committed)
                size += len(data)
                failed = failed or bool(error)
                found.append((topic, {
                    "partition": part["partition"], "error_code": error, "highwater_offset": log.end if log else -1,
                    "last_stable_offset": log.stable if log else -1, "log_start_offset": log.start if log else -1,
                    "aborted_transactions": [{"producer_id": one.producer, "first_offset": one.first} for one in gone],
                    "preferred_read_replica": -1, "message_set": data,
                }))  # fmt: skip
                if log is not None:
                    logs[log] = None
            if final or failed or size >= ask["min_bytes"]:
                answered = True
                for log in logs:
                    log.changed.pop(again, None)
                return reply({"session_id": 0, "topics": by_topic(found, "topics")})
            for log in logs:
                log.changed[again] = None
            return None

        def again() -> None:
            self._cluster.loop.call_soon(look)

        look()
        if not answered:
            self._cluster.loop.call_later(ask["max_wait_time"] / 1000, look, True)

    def _offset(self, node: Node, ask: Fields, reply: Reply, head: wire.Head) -> None:
        committed = bool(ask.get("isolation_level"))
        found = []
        for topic, one in per_topic(ask["topics"]):
            log, error = self._at(node, (topic, one["partition"]))
            offset, time = -1, -1
            if log is not None and one["timestamp"] == EARLIEST:
                offset = log.start
            elif log is not None and one["timestamp"] == LATEST:
                offset = log.stable if committed else log.end
            elif log is not None:
                offset, time = log.at_time(one["timestamp"], committed) or (-1, -1)
            fields = {"partition": one["partition"], "error_code": error, "timestamp": time, "offset": offset}
            found.append((topic, fields))
        reply({"topics": by_topic(found)})

    def _delete_records(self, node: Node, ask: Fields, reply: Reply, head: wire.Head) -> None:
        found = []
        for topic, one in per_topic(ask["topics"], "name"):
            log, error = self._at(node, (topic, one["partition_index"]))
            if log is not None and "delete" not in log.config["cleanup.policy"]:
                log, error = None, Error.POLICY_VIOLATION
            offset = one["offset"]
            if log is not None and offset == -1:
                offset = log.end
            if log is not None and offset > log.end:
                log, error = None, Error.OFFSET_OUT_OF_RANGE
            if log is not None:
                log.delete_before(offset)
            low = log.start if log else -1
            found.append(
                (topic, {"partition_index": one["partition_index"], "low_watermark": low, "error_code": error})
            )
        reply({"topics": by_topic(found, "name")})

    # Of topics

    def _create_topics(self, node: Node, ask: Fields, reply: Reply, head: wire.Head) -> None:
        cluster, found = self._cluster, []
        for one in ask["create_topic_requests"]:
            error = Error.NONE
            if one["topic"] in cluster.topics:
                error = Error.TOPIC_ALREADY_EXISTS
            elif one["replication_factor"] > len(cluster.nodes):
                error = Error.INVALID_REPLICATION_FACTOR
            elif not ask.get("validate_only"):
                config = {entry["config_key"]: entry["config_value"] for entry in one["configs"]}
                number = max(one["num_partitions"], len(one["replica_assignment"]), 1)
                cluster.create(one["topic"], number, **config)
            found.append({"topic": one["topic"], "error_code": error})
        reply({"topic_errors": found})

    def _delete_topics(self, node: Node, ask: Fields, reply: Reply, head: wire.Head) -> None:
        found = []
        for name in ask["topics"]:
            known = self._cluster.delete(name)
            found.append({"topic": name, "error_code": Error.NONE if known else Error.UNKNOWN_TOPIC_OR_PARTITION})
        reply({"topic_error_codes": found})

    def _create_partitions(self, node: Node, ask: Fields, reply: Reply, head: wire.Head) -> None:
        found = []
        for one in ask["topic_partitions"]:
            topic, count = self._cluster.topics.get(one["topic"]), one["new_partitions"]["count"]
            error = Error.NONE
            if topic is None:
                error = Error.UNKNOWN_TOPIC_OR_PARTITION
            elif count <= len(topic.logs):
                error = Error.INVALID_PARTITIONS
            elif not ask["validate_only"]:
                self._cluster.grow(one["topic"], count)
            found.append({"topic": one["topic"], "error_code": error})
        reply({"topic_errors": found})

    def _describe_configs(self, node: Node, ask: Fields, reply: Reply, head: wire.Head) -> None:
        found = []
        for one in ask["resources"]:
            topic = self._cluster.topics.get(one["resource_name"]) if one["resource_type"] == _TOPIC else None
            config = topic.config if topic else self._cluster.broker_config if one["resource_type"] == _BROKER else {}
            error = Error.NONE if config else Error.UNKNOWN_TOPIC_OR_PARTITION
            entries = [
                {"config_names": name, "config_value": value, "read_only": False, "is_sensitive": False,
                 "config_source": _SET if topic and name in topic.set else _DEFAULT, "is_default": False,
                 "config_synonyms": []}
                for name, value in config.items() if not one["config_names"] or name in one["config_names"]
            ]  # fmt: skip
            found.append({**one, "error_code": error, "config_entries": entries})
        reply({"resources": found})

    def _alter_configs(self, node: Node, ask: Fields, reply: Reply, head: wire.Head) -> None:
        found = []
        for one in ask["resources"]:
            topic = self._cluster.topics.get(one["resource_name"]) if one["resource_type"] == _TOPIC else None
            if topic is not None and not ask["validate_only"]:
                given = {entry["config_name"]: entry["config_value"] for entry in one["config_entries"]}
                unset = [name for name in topic.set if name not in given]
                defaults = type(topic)({}, []).config
                topic.config.update({name: defaults[name] for name in unset} | given)
                topic.set = given
            found.append({**one, "error_code": Error.NONE if topic else Error.UNKNOWN_TOPIC_OR_PARTITION})
        reply({"resources": found})

    # Of groups

    def _coordinates(self, node: Node, key: str) -> bool:
        return self._cluster.coordinator(key) is node

    def _join_group(self, node: Node, ask: Fields, reply: Reply, head: wire.Head) -> None:
        if not self._coordinates(node, ask["group"]):
            empty = {"generation_id": -1, "group_protocol": "", "leader_id": "", "member_id": "", "members": []}
            return reply({"error_code": Error.NOT_COORDINATOR, **empty})
        return self._cluster.group(ask["group"]).join(ask, head.client, reply)

    def _sync_group(self, node: Node, ask: Fields, reply: Reply, head: wire.Head) -> None:
        if not self._coordinates(node, ask["group"]):
            return reply({"error_code": Error.NOT_COORDINATOR, "member_assignment": b""})
        return self._cluster.group(ask["group"]).sync(ask, reply)

    def _heartbeat(self, node: Node, ask: Fields, reply: Reply, head: wire.Head) -> None:
        if not self._coordinates(node, ask["group"]):
            return reply({"error_code": Error.NOT_COORDINATOR})
        return self._cluster.group(ask["group"]).heartbeat(ask, reply)

    def _leave_group(self, node: Node, ask: Fields, reply: Reply, head: wire.Head) -> None:
        if not self._coordinates(node, ask["group"]):
            return reply({"error_code": Error.NOT_COORDINATOR})
        return self._cluster.group(ask["group"]).leave(ask, reply)

    def _offset_commit(self, node: Node, ask: Fields, reply: Reply, head: wire.Head) -> None:
        name, found = ask["consumer_group"], []
        error = Error.NOT_COORDINATOR
        if self._coordinates(node, name):
            error = self._cluster.group(name).may_commit(ask["consumer_group_generation_id"], ask["consumer_id"])
        for topic, one in per_topic(ask["topics"]):
            if not error:
                given = Committed(one["offset"], one["metadata"])
                self._cluster.offsets(name).committed[topic, one["partition"]] = given
            found.append((topic, {"partition": one["partition"], "error_code": error}))
        reply({"topics": by_topic(found)})

    def _offset_fetch(self, node: Node, ask: Fields, reply: Reply, head: wire.Head) -> None:
        name = ask["consumer_group"]
        if not self._coordinates(node, name):
            return reply({"error_code": Error.NOT_COORDINATOR, "topics": []})
        known = self._cluster.offsets(name).committed
        places = list(known) if ask["topics"] is None else per_topic(ask["topics"])
        found = []
        for place in places:
            one = known.get(place, Committed(-1, ""))
            found.append((place[0], {"partition": place[1], "offset": one.offset, "metadata": one.metadata}))
        return reply({"topics": by_topic(found)})

    def _describe_groups(self, node: Node, ask: Fields, reply: Reply, head: wire.Head) -> None:
        found = []
        for name in ask["groups"]:
            group = self._cluster.groups.get(name)
            members = [
                {"member_id": one.id, "client_id": one.client, "client_host": "/127.0.0.1",
                 "member_metadata": one.protocols.get(group.protocol, b""), "member_assignment": one.assignment}
                for one in group.members.values()
            ] if group else []  # fmt: skip
            found.append({
                "group": name, "state": group.state.value if group else "Dead", "members": members,
                "error_code": Error.NONE if self._coordinates(node, name) else Error.NOT_COORDINATOR,
                "protocol_type": "consumer" if members else "", "protocol": group.protocol if members else "",
                "authorized_operations": 0,
            })  # fmt: skip
        reply({"groups": found})

    def _list_groups(self, node: Node, ask: Fields, reply: Reply, head: wire.Head) -> None:
        names = [name for name in self._cluster.groups if self._coordinates(node, name)]
        reply({"groups": [{"group": name, "protocol_type": "consumer"} for name in names]})

    def _delete_groups(self, node: Node, ask: Fields, reply: Reply, head: wire.Head) -> None:
        found = []
        for name in ask["groups_names"]:
            group = self._cluster.groups.get(name)
            error = Error.GROUP_ID_NOT_FOUND if group is None else Error.NONE
            if group is not None and group.state is not State.EMPTY:
                error = Error.NON_EMPTY_GROUP
            if not error:
                del self._cluster.groups[name]
            found.append({"group_id": name, "error_code": error})
        reply({"results": found})

    # Of transactions

    def _init_producer_id(self, node: Node, ask: Fields, reply: Reply, head: wire.Head) -> None:
        name = ask["transactional_id"]
        if name is not None and not self._coordinates(node, name):
            return reply({"error_code": Error.NOT_COORDINATOR, "producer_id": -1, "producer_epoch": -1})
        timeout = ask["transaction_timeout_ms"] / 1000
        error, producer, epoch = self._cluster.transactions.begin_producer(name, timeout)
        return reply({"error_code": error, "producer_id": producer, "producer_epoch": epoch})

    def _add_partitions_to_txn(self, node: Node, ask: Fields, reply: Reply, head: wire.Head) -> None:
        places = set(per_topic(ask["topics"]))
        known = all(self._cluster.log(place) is not None for place in places)
        error = Error.NONE if known else Error.UNKNOWN_TOPIC_OR_PARTITION
        if not self._coordinates(node, ask["transactional_id"]):
            error = Error.NOT_COORDINATOR
        if not error:
            error = self._cluster.transactions.add(*self._producer(ask), places)
        found = [(topic, {"partition": number, "error_code": error}) for topic, number in sorted(places)]
        reply({"errors": by_topic(found, inner="partition_errors")})

    def _add_offsets_to_txn(self, node: Node, ask: Fields, reply: Reply, head: wire.Head) -> None:
        if not self._coordinates(node, ask["transactional_id"]):
            return reply({"error_code": Error.NOT_COORDINATOR})
        return reply({"error_code": self._cluster.transactions.add(*self._producer(ask), set(), ask["group_id"])})

    def _txn_offset_commit(self, node: Node, ask: Fields, reply: Reply, head: wire.Head) -> None:
        _, error = self._cluster.transactions.checked(*self._producer(ask))
        if not self._coordinates(node, ask["group_id"]):
            error = Error.NOT_COORDINATOR
        found = []
        for topic, one in per_topic(ask["topics"]):
            if not error:
                pending = self._cluster.offsets(ask["group_id"]).pending.setdefault(ask["producer_id"], {})
                pending[topic, one["partition"]] = Committed(one["offset"], one["metadata"])
            found.append((topic, {"partition": one["partition"], "error_code": error}))
        reply({"errors": by_topic(found, inner="partition_errors")})

    def _end_txn(self, node: Node, ask: Fields, reply: Reply, head: wire.Head) -> None:
        if not self._coordinates(node, ask["transactional_id"]):
            return reply({"error_code": Error.NOT_COORDINATOR})
        commit = bool(ask["transaction_result"])
        return self._cluster.transactions.end(
            *self._producer(ask), commit, lambda error: reply({"error_code": error})
        )  # fmt: skip

    @staticmethod
    def _producer(ask: Fields) -> tuple[str, int, int]:
        return ask["transactional_id"], ask["producer_id"], ask["producer_epoch"]
