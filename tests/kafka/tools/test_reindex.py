"""Rebuilding under a new prefix: what there is to do, when it is done, and that other work is not mixed up with it."""

from pathlib import Path

import pytest

from stream_lsh.errors import UsageError
from stream_lsh.kafka.names import Topics
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.kafka.tools.reindex import Goal, target


def test_what_there_is_to_do() -> None:
    goal = Goal({0: 0, 1: 100, 2: 7}, {0: 50, 1: 150, 2: 7})
    assert goal.total == 100 and goal.deleted == 107
    assert goal.done({}) == 0
    assert goal.open({}) == {0: 0, 1: 100}
    assert goal.done({0: 50, 1: 120}) == 70
    assert goal.open({0: 50, 1: 120}) == {1: 120}
    # Documents that came later count for nothing here.
    assert goal.done({0: 90, 1: 150, 2: 30}) == 100
    assert not goal.open({0: 90, 1: 150, 2: 30})


def test_nothing_to_do() -> None:
    assert not Goal({0: 5}, {0: 5}).open({}) and Goal({0: 5}, {0: 5}).total == 0


def test_the_new_settings() -> None:
    old = KafkaSettings(
        topic_prefix="news", shards=4, compare_with="all", http_port=9100, data_folder=Path("/var/lib/shards")
    )
    new = target(old, "news-2")
    assert Topics.of(new).documents == "news.documents" and Topics.of(new).frames == "news-2.frames"
    assert new.data_folder == Path("/var/lib/shards-news-2") and new.http_port is None
    assert new.shards == 4 and new.fingerprint == old.fingerprint
    assert target(old, "news-2", "elsewhere").data_folder == Path("elsewhere")
    assert target(old.model_copy(update={"data_folder": Path("/")}), "two").data_folder == Path("/two")
    named = KafkaSettings(topic_prefix="news", documents_topic="crawl")
    assert Topics.of(target(named, "news-2")).documents == "crawl"


def test_a_relative_data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    for given, found in ((".", "here-two"), ("data", "here/data-two")):
        settings = KafkaSettings(topic_prefix="one", data_folder=Path(given))
        assert target(settings, "two").data_folder == tmp_path / found


@pytest.mark.parametrize(
    ("prefix", "words"), [("news", "give a new one"), ("new prefix", "letters, digits"), ("", "letters, digits")]
)
def test_a_prefix_that_cannot_be(prefix: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        target(KafkaSettings(topic_prefix="news"), prefix)


def test_the_old_documents_may_not_be_an_output_of_the_new() -> None:
    old = KafkaSettings(topic_prefix="a", documents_topic="b.unique")
    with pytest.raises(UsageError, match=r"b\.unique"):
        target(old, "b")
