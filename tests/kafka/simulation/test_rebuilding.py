"""An index with `keep` is rebuilt from its changelogs, with another number of shards, and says the same."""

import asyncio
import json
from typing import Any

import pytest
from support.kafka import plain
from support.simulation.cluster import Cluster
from support.simulation.pipeline import Pipeline
from support.simulation.runner import simulated
from support.simulation.world import World

from stream_lsh.kafka.tools import reindex
from stream_lsh.kafka.tools.from_changelog import RESTORING, look, restore

N = 120
GIVEN: dict[str, Any] = {
    **plain.SURE, "partitions": 2, "frame_documents": 8, "decision_lag": 1000, "keep": "best", "rank_field": "ts",
    "keep_per": "source", "source_field": "outlet", "groups": True,
}  # fmt: skip


def said(pipeline: Pipeline) -> dict[tuple[int, int], dict[str, Any]]:
    """The verdicts by the place of their document, without numbers and times of signing."""
    verdicts = [json.loads(record.value or b"") for record in pipeline.records("verdicts")]
    return {
        (verdict["source"]["partition"], verdict["source"]["offset"]): {
            name: verdict.get(name) for name in ("id", "kind", "reason", "duplicate_of", "similarity", "supersedes")
        }
        for verdict in verdicts
    }


@pytest.mark.long
@simulated(most=4)
async def test_ranks_and_sources_are_those_of_the_old_index(world: World, cluster: Cluster) -> None:
    before, after = (1, 2) if world.seed % 2 else (2, 1)
    old = Pipeline(world, cluster, **GIVEN, shards=before)
    await old.create_topics()
    worker = old.start()
    await old.feed(plain.history(N, 2, world.seed), 20)
    await old.finish([worker], 300)
    await old.drain()
    await old.stop(worker)

    new = Pipeline(
        world, cluster, **GIVEN, shards=after, topic_prefix="again", documents_topic=old.topics.documents
    )  # fmt: skip
    wanted = reindex.target(reindex.changed(old.settings, "", shards=after), "again")
    assert wanted.answers == new.settings.answers
    changelogs = await look(reindex.changed(old.settings, "", shards=after), wanted)
    worker = new.start(*RESTORING)
    assert await asyncio.wait_for(restore(changelogs, wanted, asyncio.Event(), lambda _: None), 300)
    await new.stop(worker)
    ours, theirs = said(new), said(old)
    assert ours.keys() == theirs.keys()
    for place, verdict in theirs.items():
        if verdict["kind"] == "redelivered":
            assert (ours[place]["kind"], ours[place]["reason"]) == ("rejected", "redelivered")
        else:
            assert ours[place] == verdict, place
    assert any(verdict["supersedes"] is not None for verdict in theirs.values())
