"""Topics: names, making them, showing and checking what is there, and what Strimzi's operator would make."""

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiokafka.admin import NewTopic
from click.testing import CliRunner
from support.kafka.brokers import settings_for
from support.kafka.stages import grow
from support.simulation.runner import simulated

from stream_lsh.cli import main
from stream_lsh.errors import BrokerError
from stream_lsh.kafka.client.connection import admin, explained
from stream_lsh.kafka.names import Topics, largest_record, wanted
from stream_lsh.kafka.settings import ROLES, KafkaSettings
from stream_lsh.kafka.tools.topics import create, safe_settings, show
from stream_lsh.kafka.topics import TopicState, check
from stream_lsh.kafka.weaknesses import weaknesses


def by_name(states: list[TopicState]) -> dict[str, TopicState]:
    return {state.wanted.name: state for state in states}


async def add(settings: KafkaSettings, name: str, partitions: int = 1, **configs: str) -> None:
    given = {key.replace("_", "."): value for key, value in configs.items()}
    async with admin(settings) as client:
        response = await client.create_topics([NewTopic(name, partitions, 1, topic_configs=given)])
        assert [code for _, code, *_ in response.topic_errors] == [0]
        while name not in await client.list_topics():  # brokers learn of it a little later
            await asyncio.sleep(0.05)


def test_names() -> None:
    topics = Topics.of(KafkaSettings(topic_prefix="news"))
    assert topics.documents == "news.documents"
    assert topics.dead_letters == "news.dead-letters"
    assert topics.changelog == "news.match-shards-changelog"
    assert topics.group("judge") == "news.judge"
    assert topics.transactional_id("judge") == "news.judge"
    assert topics.transactional_id("forward", 3) == "news.forward.3"
    assert Topics.of(KafkaSettings(documents_topic="crawl")).documents == "crawl"


def test_what_is_wanted_follows_the_settings() -> None:
    settings = KafkaSettings(partitions=3, shards=2, compare_with="all", retention_hours=2, max_document_bytes=10**8)
    specs = {spec.name.partition(".")[2]: spec for spec in wanted(settings)}
    assert len(specs) == 10
    assert [specs[name].partitions for name in ("documents", "verdicts", "pairs", "unique", "dead-letters")] == [3] * 5
    assert [specs[name].partitions for name in ("signatures", "matches")] == [1, 1]
    assert [specs[name].partitions for name in ("frames", "match-shards-changelog")] == [2, 2]
    assert {name for name, spec in specs.items() if spec.cleanup_policy != "delete"} == {"state"}
    assert specs["verdicts"].configs["retention.ms"] == "7200000"
    changelog = specs["match-shards-changelog"].configs
    assert (changelog["retention.ms"], changelog["retention.bytes"]) == ("-1", "-1")
    assert specs["documents"].max_message_bytes == 10**8 + 64 * 2**10
    assert specs["unique"].max_message_bytes > specs["documents"].max_message_bytes
    assert specs["signatures"].max_message_bytes == largest_record(settings) > 10**8 + 10**8 // 256
    assert specs["frames"].max_message_bytes == 1_048_588  # large documents are cut there
    stamps = "message.timestamp.type"
    assert [specs[name].configs[stamps] for name in ("signatures", "unique")] == ["LogAppendTime"] * 2
    specs = {spec.name.partition(".")[2]: spec for spec in wanted(KafkaSettings(unique_timestamps="CreateTime"))}
    assert specs["unique"].configs[stamps] == specs["dead-letters"].configs[stamps] == "CreateTime"


WEAK = {
    "min.insync.replicas": "1", "unclean.leader.election.enable": "true", "cleanup.policy": "compact,delete",
    "retention.ms": "3600000", "retention.bytes": "1000000",
}  # fmt: skip
COPIES = {"min.insync.replicas", "unclean.leader.election.enable"}


@pytest.mark.parametrize(
    ("given", "segment", "compaction"),
    [
        ({}, None, None), ({"erase_hours": 0}, 1, 60), ({"erase_hours": 0.5}, 30, 60),
        ({"erase_hours": 24}, 60, 1440), ({"window": "80m"}, 10, None),
        ({"erase_hours": 24, "window": "80m"}, 10, 1440),
    ],
)  # fmt: skip
def test_erased_bytes_leave_changelogs_in_time(
    given: dict[str, Any], segment: int | None, compaction: int | None
) -> None:
    """Minutes for which a segment file lasts, and after which a record is compacted."""
    settings = KafkaSettings(groups=True, shards=2, **given)
    specs = {spec.name.partition(".")[2]: spec.configs for spec in wanted(settings)}
    minutes = {str(60_000 * n): n for n in (segment, compaction) if n is not None}
    assert minutes.get(specs["match-shards-changelog"].get("segment.ms", "")) == segment
    decisions = specs["decisions"].get("segment.ms", "")
    assert minutes.get(decisions) == (segment if "erase_hours" in given else None)
    assert minutes.get(specs["group-changelog"].get("max.compaction.lag.ms", "")) == compaction


def test_weaknesses() -> None:
    settings = KafkaSettings(groups=True, retention_hours=2)
    topics = Topics.of(settings)

    def found(replicas: int, configs: dict[str, str]) -> dict[str, set[str]]:
        return {
            spec.name.partition(".")[2]: {weak.setting for weak in weaknesses(topics, spec, replicas, configs)}
            for spec in wanted(settings)
        }

    weak = found(3, WEAK)
    assert weak["documents"] == {"unclean.leader.election.enable"} and weak["unique"] == COPIES
    assert weak["pairs"] == weak["dead-letters"] == weak["groups"] == weak["alerts"] == {*COPIES, "cleanup.policy"}
    for name in ("verdicts", "signatures", "frames", "matches", "memberships"):
        assert weak[name] == WEAK.keys()
    assert weak["match-shards-changelog"] == WEAK.keys()
    assert weak["group-changelog"] == weak["state"] == {*COPIES, "cleanup.policy"}
    assert not COPIES & set().union(*found(1, WEAK).values())
    assert not any(found(3, {}).values())
    strong = {"min.insync.replicas": "2", "unclean.leader.election.enable": "false", "retention.ms": "7200000"}
    assert {name for name, weak in found(3, strong).items() if weak} == {"match-shards-changelog"}


@pytest.mark.parametrize(
    ("replicas", "of_broker", "expected"),
    [
        (None, {}, {}),
        (1, {"default.replication.factor": "3"}, {}),
        (3, {}, {"min.insync.replicas": "2"}),
        (None, {"default.replication.factor": "3", "min.insync.replicas": "1"}, {"min.insync.replicas": "2"}),
        (None, {"default.replication.factor": "3", "min.insync.replicas": "2"}, {}),
        (None, {"unclean.leader.election.enable": "true"}, {"unclean.leader.election.enable": "false"}),
    ],
)
def test_new_topics_are_strong(replicas: int | None, of_broker: dict[str, str], expected: dict[str, str]) -> None:
    assert safe_settings(replicas, of_broker) == expected


@simulated()
async def test_weak_topics_are_refused_unless_allowed(
    broker: Any, prefix: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = settings_for(broker, prefix, tmp_path, partitions=1)
    await add(settings, f"{prefix}.matches", retention_ms="3600000", max_message_bytes=str(2**27))
    await create(settings)
    with pytest.raises(
        BrokerError,
        match=r"matches has retention.ms = 3600000, less than retention_hours.*set it to 604800000, or allow it: "
        r"allow_weak_topics = \['retention.ms'\]",
    ):
        await check(settings, ["match"])
    await check(settings, ["forward"])
    await check(settings.model_copy(update={"allow_weak_topics": ("retention.ms",)}), ["match"])
    assert f"{prefix}.matches has retention.ms = 3600000, which is allowed" in caplog.text


@simulated()
async def test_create_makes_them_all_and_may_be_repeated(broker: Any, prefix: str, tmp_path: Path) -> None:
    settings = settings_for(broker, prefix, tmp_path, shards=2, partitions=3)
    assert all(state.partitions == 0 and not state.done for state in await show(settings))
    first = await create(settings)
    assert [state.done for state in first] == ["created"] * 10
    assert all(state.partitions == state.wanted.partitions and not state.differences for state in first)
    second = await create(settings)
    assert [state.done for state in second] == [""] * 10
    await check(settings, ROLES)


@simulated()
async def test_outputs_follow_the_documents_topic_that_is_there(broker: Any, prefix: str, tmp_path: Path) -> None:
    source = f"{prefix}-source"
    settings = settings_for(broker, prefix, tmp_path, documents_topic=source, partitions=2)
    await add(settings, source, 5, max_message_bytes=str(2**25))
    states = by_name(await create(settings))
    assert states[source].done == ""
    assert states[source].differences == ("partitions: 5, not 2",)
    topics = Topics.of(settings)
    for name in (topics.verdicts, topics.pairs, topics.unique, topics.dead_letters):
        assert states[name].partitions == 5
    assert int(states[topics.unique].configs["max.message.bytes"]) > 2**25
    await check(settings, ROLES)


@simulated()
async def test_partitions_added_to_documents_are_followed(broker: Any, prefix: str, tmp_path: Path) -> None:
    settings = settings_for(broker, prefix, tmp_path, partitions=2)
    await create(settings)
    topics = Topics.of(settings)
    await grow(settings, topics.documents, 4)
    await check(settings, ROLES)  # until the outputs have them as well, sign leaves the new ones out
    await grow(settings, topics.verdicts, 3)
    with pytest.raises(BrokerError, match=rf"{prefix}.unique has 2 partitions and {prefix}.verdicts 3;.*create"):
        await check(settings, ["forward"])
    await check(settings, ["sign", "sequence", "match"])
    states = by_name(await create(settings))
    assert states[topics.pairs].done == "2 partitions added"
    assert states[topics.verdicts].partitions == 4
    await check(settings, ROLES)
    await grow(settings, topics.verdicts, 6)
    with pytest.raises(BrokerError, match=rf"verdicts has 6 partitions and {topics.documents} 4; add partitions to"):
        await check(settings, ["judge"])


@simulated()
async def test_what_is_missing_is_named_with_the_remedy(broker: Any, prefix: str, tmp_path: Path) -> None:
    settings = settings_for(broker, prefix, tmp_path)
    await add(settings, f"{prefix}.documents")
    with pytest.raises(
        BrokerError,
        match=rf"does not have the topics {prefix}.signatures, {prefix}.state. `stream-lsh kafka topics create`",
    ):
        await check(settings, ["sign"])
    with pytest.raises(BrokerError, match=r"topics .*dead-letters, .*unique, .*verdicts"):
        await check(settings, ["forward"])


@simulated()
async def test_another_number_of_shards_is_refused(broker: Any, prefix: str, tmp_path: Path) -> None:
    await create(settings_for(broker, prefix, tmp_path, shards=2))
    with pytest.raises(BrokerError, match=r"frames has 2 partitions, but shards = 4.*topic_prefix"):
        await check(settings_for(broker, prefix, tmp_path, shards=4), ["match"])


@simulated()
async def test_topics_that_would_lose_records_are_refused(broker: Any, prefix: str, tmp_path: Path) -> None:
    settings = settings_for(broker, prefix, tmp_path, shards=1)
    await add(settings, f"{prefix}.match-shards-changelog", cleanup_policy="compact")
    await add(settings, f"{prefix}.matches", max_message_bytes="1000000")
    await add(settings, f"{prefix}.signatures", 2, message_timestamp_type="CreateTime")
    states = by_name(await create(settings))
    assert "cleanup.policy: compact, not delete" in states[f"{prefix}.match-shards-changelog"].differences
    with pytest.raises(BrokerError, match=r"changelog has cleanup.policy = compact.*max.message.bytes = 1000000"):
        await check(settings, ["match"])
    with pytest.raises(BrokerError, match=r"signatures has 2 partitions.*type = CreateTime.*set it to Log"):
        await check(settings, ["sign"])


@simulated()
async def test_how_documents_are_kept_is_their_owners_business(broker: Any, prefix: str, tmp_path: Path) -> None:
    settings = settings_for(broker, prefix, tmp_path, partitions=1)
    await add(settings, f"{prefix}.documents", cleanup_policy="compact")
    states = by_name(await create(settings))
    assert "cleanup.policy" not in " ".join(states[f"{prefix}.documents"].differences)
    await check(settings, ROLES)


@simulated()
async def test_a_limit_that_is_too_small_is_named_with_the_one_to_set(broker: Any, prefix: str, tmp_path: Path) -> None:
    settings = settings_for(broker, prefix, tmp_path)
    topics = Topics.of(settings)
    await add(settings, topics.documents, 4, max_message_bytes=str(2**25))
    await add(settings, topics.verdicts, 4, max_message_bytes="1000000")
    await add(settings, topics.unique, 4, max_message_bytes=str(2**25))
    await add(settings, topics.matches, max_message_bytes="1000000")
    await create(settings)
    with pytest.raises(BrokerError) as caught:
        await check(settings, ["judge", "forward"])
    said = sorted(str(caught.value).rstrip(".").split("; the topic "))
    assert "max_document_bytes" not in str(caught.value)
    for name in (topics.verdicts, topics.matches):
        assert f"{name} has max.message.bytes = 1000000, which is too small; set it to 1048588" in str(caught.value)
    more = 2**25 + 64 * 2**10
    assert any(f"set it to {more}, so that it takes what {topics.documents} takes" in problem for problem in said)


@pytest.mark.parametrize("given", [{}, {"shards": 2, "groups": True}])
def test_all_topics_fit_a_broker_with_default_limits(given: dict[str, Any]) -> None:
    assert {spec.max_message_bytes for spec in wanted(KafkaSettings(**given))} == {1_048_588}


@simulated()
async def test_too_many_copies_are_named(broker: Any, prefix: str, tmp_path: Path) -> None:
    settings = settings_for(broker, prefix, tmp_path, replication_factor=7)
    with pytest.raises(BrokerError, match="replication_factor = 7"), explained(settings):
        await create(settings)


NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


@pytest.mark.parametrize("prefix", ["news", "News_A", "_", "x" * 90])
def test_strimzi_gets_every_topic_and_a_user_for_them(prefix: str) -> None:
    words = ["--topic-prefix", prefix, "--documents-topic", "crawl", "--groups", "--strimzi-cluster", "ours"]
    result = CliRunner().invoke(main, ["kafka", "topics", "create", "--format", "strimzi", *words])
    assert result.exit_code == 0, result.output
    *topics, user = yaml.safe_load_all(result.output)
    specs = wanted(KafkaSettings(topic_prefix=prefix, documents_topic="crawl", groups=True))
    found = {topic["spec"]["topicName"]: topic for topic in topics}
    assert list(found) == [spec.name for spec in specs]
    for spec in specs:
        about = found[spec.name]["spec"]
        assert about["partitions"] == spec.partitions and about["replicas"] == 3
        assert spec.configs.items() <= about["config"].items() and about["config"]["min.insync.replicas"] == "2"
    names = [resource["metadata"]["name"] for resource in (*topics, user)]
    assert len(set(names)) == len(names) and all(NAME.fullmatch(name) for name in names)
    assert {resource["metadata"]["labels"]["strimzi.io/cluster"] for resource in (*topics, user)} == {"ours"}
    allowed = {(acl["resource"]["type"], acl["resource"].get("name")) for acl in user["spec"]["authorization"]["acls"]}
    own = f"{prefix}."
    assert allowed == {
        ("topic", own), ("group", own), ("transactionalId", own), ("topic", "crawl"), ("cluster", None)
    }  # fmt: skip
