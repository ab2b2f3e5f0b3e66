"""The topics and the user of a pipeline as resources of Strimzi, the operator of Kafka on Kubernetes (API v1).

This module imports no Kafka client.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any

from stream_lsh.kafka.names import Topics, TopicSpec, wanted
from stream_lsh.kafka.settings import INSYNC, UNCLEAN, KafkaSettings

API = "kafka.strimzi.io/v1"
REPLICAS = 3  # where the settings leave it to the broker
USER = "stream-lsh"
_LONGEST = 200  # characters of a resource's name


def resources(settings: KafkaSettings, cluster: str) -> list[dict[str, Any]]:
    """A KafkaTopic for each topic, documents first, and a KafkaUser that may do all that the pipeline's roles and
    commands do.

    Args:
        cluster: name of the Kafka resource.
    """
    labels = {"strimzi.io/cluster": cluster}
    replicas = settings.replication_factor or REPLICAS
    return [*(_topic(spec, replicas, labels) for spec in wanted(settings)), _user(settings, labels)]


def _topic(spec: TopicSpec, replicas: int, labels: Mapping[str, str]) -> dict[str, Any]:
    strong = {UNCLEAN: "false"} | ({INSYNC: "2"} if replicas > 1 else {})
    return {
        "apiVersion": API,
        "kind": "KafkaTopic",
        "metadata": {"name": _resource_name(spec.name), "labels": dict(labels)},
        "spec": {
            "topicName": spec.name,
            "partitions": spec.partitions,
            "replicas": replicas,
            "config": {**spec.configs, **strong},
        },
    }


def _resource_name(topic: str) -> str:
    """A name that Kubernetes takes: that of the topic if possible, otherwise one with its hash."""
    if re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", topic):
        return topic
    plain = re.sub(r"[^a-z0-9]+", "-", topic.lower()).strip("-")
    return f"{plain[:_LONGEST]}-{hashlib.sha256(topic.encode()).hexdigest()[:8]}".lstrip("-")


def _user(settings: KafkaSettings, labels: Mapping[str, str]) -> dict[str, Any]:
    topics = Topics.of(settings)
    own = f"{topics.prefix}."
    acls = [
        _acl("topic", own, "prefix", "All"),
        _acl("group", own, "prefix", "Read"),
        _acl("transactionalId", own, "prefix", "Write", "Describe"),
        {"resource": {"type": "cluster"}, "operations": ["Describe", "DescribeConfigs"]},
    ]
    rights = "Read", "Write", "Describe", "DescribeConfigs"
    acls[1:1] = [_acl("topic", name, "literal", *rights) for name in topics.sources if not name.startswith(own)]
    return {
        "apiVersion": API,
        "kind": "KafkaUser",
        "metadata": {"name": USER, "labels": dict(labels)},
        "spec": {
            "authentication": {"type": "tls" if settings.security_protocol == "SSL" else "scram-sha-512"},
            "authorization": {"type": "simple", "acls": acls},
        },
    }


def _acl(kind: str, name: str, pattern: str, *operations: str) -> dict[str, Any]:
    return {"resource": {"type": kind, "name": name, "patternType": pattern}, "operations": list(operations)}
