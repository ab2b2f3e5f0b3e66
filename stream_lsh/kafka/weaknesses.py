"""Weak topics: settings of a topic by which Kafka may lose records that the pipeline still needs. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from stream_lsh.kafka.names import FOREVER, Topics, TopicSpec
from stream_lsh.kafka.settings import INSYNC, POLICY, RETENTION, RETENTION_BYTES, UNCLEAN

READ = ("verdicts", "signatures", "frames", "matches", "memberships")
"""Topics that a role reads, and that only `retention_hours` ends, as attributes of `Topics`."""
OWNERS = ("documents", "unique")
"""Topics that their owner may compact: a later record replaces an earlier one of its key."""


@dataclass(frozen=True, slots=True)
class Weakness:
    """A setting of a topic by which records may be lost. wanted: the value that is strong enough. why: what happens."""

    topic: str
    setting: str
    value: str
    wanted: str
    why: str

    def __str__(self) -> str:
        return (
            f"the topic {self.topic} has {self.setting} = {self.value}, {self.why}; set it to {self.wanted}, or allow "
            f"it: allow_weak_topics = [{self.setting!r}]"
        )


def weaknesses(topics: Topics, spec: TopicSpec, replicas: int, configs: Mapping[str, str]) -> Iterator[Weakness]:
    """What is weak about a topic. Settings that are not in `configs`, because they may not be read, are not.

    The documents topic and the outputs are also used by others. They have only the rules without which answers are lost
    or repeated: how long they keep records, and whether `unique` is compacted, is up to their owner.

    Args:
        spec: its required configuration. configs: its settings, by Kafka's names, defaults included.
    """
    name, read, owners = spec.name, *({getattr(topics, each) for each in names} for names in (READ, OWNERS))
    if name not in topics.sources and replicas > 1 and int(configs.get(INSYNC, 2)) < 2:
        why = f"with {replicas} replicas, so that acknowledged records are lost with one broker"
        yield Weakness(name, INSYNC, configs[INSYNC], "2", why)
    if replicas > 1 and configs.get(UNCLEAN) == "true":
        why = "by which a broker without the last records may become leader, and they are lost"
        yield Weakness(name, UNCLEAN, "true", "false", why)
    policy = configs.get(POLICY, spec.cleanup_policy)
    removes = "delete" if spec.cleanup_policy == "compact" else "compact"
    if removes in policy and name not in (*owners, *topics.sources):
        why = "by which Kafka removes records that are still needed"
        yield Weakness(name, POLICY, policy, spec.cleanup_policy, why)
    if "delete" not in spec.cleanup_policy:
        return
    if spec.retention_ms == FOREVER:
        why = "but nothing in it may be deleted by age or size"
        for setting in (RETENTION, RETENTION_BYTES):
            if int(configs.get(setting, FOREVER)) >= 0:
                yield Weakness(name, setting, configs[setting], "-1", why)
    elif name in read:
        if 0 <= int(configs.get(RETENTION, FOREVER)) < spec.retention_ms:
            why = "less than retention_hours, for which a role may be behind"
            yield Weakness(name, RETENTION, configs[RETENTION], str(spec.retention_ms), why)
        if int(configs.get(RETENTION_BYTES, FOREVER)) >= 0:
            why = "by which records end before retention_hours, for which a role may be behind"
            yield Weakness(name, RETENTION_BYTES, configs[RETENTION_BYTES], "-1", why)
