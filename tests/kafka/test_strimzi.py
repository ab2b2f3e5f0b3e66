"""`kafka topics create --format strimzi`: what Strimzi's operator would make of a pipeline."""

import re

import pytest
import yaml
from click.testing import CliRunner

from stream_lsh.cli import main
from stream_lsh.kafka.names import wanted
from stream_lsh.kafka.settings import KafkaSettings

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
