"""Documents on which matching fails: each costs itself, also where it fails in some workers only."""

import asyncio
import json
import random
import shutil
from collections.abc import Sequence
from contextlib import closing, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from support.kafka import plain
from support.kafka.pipe import BLOCK, Pipe
from support.kafka.replica_play import (
    ANY,
    UPDATES,
    WINDOW,
    answer,
    change_of,
    feed_of,
    frames,
    oracle,
    reply_of,
    settings_of,
    undisturbed,
    verdicts,
)
from support.kafka.stages import KEY
from support.poison import POISON, CrashError, poison_matching
from support.simulation.cluster import Cluster
from support.simulation.pipeline import Pipeline
from support.simulation.runner import simulated
from support.simulation.world import World

from stream_lsh.documents.document import Document
from stream_lsh.errors import DamagedError, StoreError
from stream_lsh.families.family import signer_of
from stream_lsh.index.rows.layout import FAILED, NEW, SEQ
from stream_lsh.kafka.match.copy import Rebuild
from stream_lsh.kafka.match.replica import Replica
from stream_lsh.settings.model import Settings
from stream_lsh.wire.changes import Change
from stream_lsh.wire.replies import Reply

SETTINGS: list[dict[str, Any]] = [
    {},
    ANY,
    {**UPDATES, **WINDOW},
    {"measure": "containment", "threshold": 0.8},
    {**UPDATES, "shards": 3},
    {**ANY, "shards": 2},
]


def poisoned(settings: Settings, n: int, text: str) -> list[Document]:
    """A feed in which every 30th document has this text, also as another version of an older one."""
    documents, chance = feed_of(settings, n), random.Random(1)
    for i in range(30, n, 30):
        id = documents[i].id if chance.random() < 0.5 else documents[i - 20].id
        documents[i] = replace(documents[i], id=id, text=text, deleted=False, time=None)
    return documents


def said(settings: Settings, log: list[bytes], folder: Path) -> tuple[bytes, list[Sequence[Reply]]]:
    """The verdicts of a pipeline of shards that begin again now and then, and their replies."""
    pipe, chance = Pipe(settings, log, folder), random.Random(5)
    for number, sequenced in enumerate(pipe.log):
        pipe.step(sequenced)
        if settings.late and number > 3 and chance.random() < 0.5:
            pipe.trouble(chance)
    pipe.close()
    return b"\n".join(pipe.said), [[Reply.decode(data, pipe.settings) for data in replies] for replies in pipe.replies]


@pytest.mark.parametrize("given", SETTINGS)
def test_a_document_that_raises_costs_itself(
    given: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, short_memory: None
) -> None:
    settings = settings_of(**{**given, "decision_lag": 2 * BLOCK})
    bad, empty = poisoned(settings, 300, POISON), poisoned(settings, 300, "")
    expected = oracle(settings, frames(settings, empty), tmp_path / "oracle", empty)
    poison_matching(monkeypatch)
    assert oracle(settings, frames(settings, bad), tmp_path / "embedded", bad) == expected
    found, replies = said(settings, frames(settings, bad), tmp_path / "kafka")
    assert found == expected
    failed = [why for parts in replies for reply in parts for why in reply.matches.failed.values()]
    assert len(failed) >= 5 and {why.reason for why in failed} == {"engine_error"}
    assert failed[0].detail.startswith("the engine raised ValueError in stream_lsh.index.batch_run, line ")


def test_a_text_that_cannot_be_shingled_again_costs_its_document(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under `containment` all texts of a frame are shingled before its first document is matched."""
    settings = settings_of(measure="containment", threshold=0.8)
    bad, empty = poisoned(settings, 200, POISON), poisoned(settings, 200, "")
    expected = oracle(settings, frames(settings, empty), tmp_path / "oracle", empty)
    real = signer_of(settings.signing, KEY).__class__.shingle

    def shingle(signer: Any, text: bytes, ends: Any) -> Any:
        if POISON.encode() in text:
            raise ValueError
        return real(signer, text, ends)

    log = frames(settings, bad)
    monkeypatch.setattr(signer_of(settings.signing, KEY).__class__, "shingle", shingle)
    found, replies = said(settings, log, tmp_path / "kafka")
    failed = {why.reason for parts in replies for reply in parts for why in reply.matches.failed.values()}
    assert failed == {"engine_error"} and found == expected


@pytest.mark.parametrize("given", [{"shards": 2}, {**ANY, "shards": 2}])
def test_another_shard_that_raises_has_not_compared_the_document(
    given: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the shard that stores a document can reject it."""
    settings = settings_of(**{**given, "decision_lag": 2 * BLOCK})
    documents = poisoned(settings, 200, POISON)
    poison_matching(monkeypatch, where=lambda work, _: bool(work.shard == 1))
    found, replies = said(settings, frames(settings, documents), tmp_path / "kafka")
    assert found == oracle(settings, frames(settings, documents), tmp_path / "embedded", documents)
    statuses = {int(reply.matches.status[i]) for parts in replies for reply in parts for i in reply.matches.failed}
    assert statuses == {FAILED, NEW}
    kinds = [json.loads(line) for line in found.splitlines() if b"duplicate_of" in line]
    assert {(v["kind"], "not_compared" in v) for v in kinds} >= {("rejected", False), ("unique", True)}


@pytest.mark.parametrize("error", [MemoryError(), OSError("the disk"), StoreError("RocksDB")])
def test_errors_of_the_machine_are_no_fault_of_a_document(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_of()
    documents = poisoned(settings, 100, POISON)
    poison_matching(monkeypatch, error)
    with pytest.raises((type(error), DamagedError)):
        said(settings, frames(settings, documents), tmp_path)


def test_the_first_change_of_a_frame_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker finds the change of another one, on which other documents have failed, in place of its own."""
    settings = settings_of()
    log = frames(settings, poisoned(settings, 100, POISON))
    mine, others = Replica(settings, 0, tmp_path / "mine"), undisturbed(settings, log, tmp_path / "others")
    poison_matching(monkeypatch)
    mine.activate()
    changes = [change_of(answer(mine, data)) for data in log]
    theirs = [change_of(found) for found in others]
    at = next(i for i, change in enumerate(theirs) if change != changes[i])
    assert mine.agrees(enumerate(theirs[:at])) and not mine.agrees(enumerate(theirs[: at + 1]))
    mine.close()
    for first, counts in ((at + 1, False), (at, True)):  # how many of its own come before
        mine = Replica(settings, 0, shutil.copytree(tmp_path / "mine", tmp_path / str(first)))
        mine.apply(enumerate(changes[:first]))
        with pytest.raises(Rebuild, match="another worker's change of the frame at") if counts else nullcontext():
            mine.apply([(first, theirs[at])])
        mine.close()


@pytest.mark.parametrize("given", [{}, {**UPDATES, **WINDOW}])
def test_a_document_at_which_workers_end_costs_itself(
    given: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, short_memory: None
) -> None:
    settings = settings_of(**given)
    bad, empty = poisoned(settings, 150, POISON), poisoned(settings, 150, "")
    expected = oracle(settings, frames(settings, empty), tmp_path / "oracle", empty)
    poison_matching(monkeypatch, CrashError())
    replies, crashes = [], 0
    for data in frames(settings, bad):
        while True:
            with closing(Replica(settings, 0, tmp_path / "shard")) as replica, suppress(CrashError):
                replica.activate()
                replies.append(reply_of(answer(replica, data)))
                break
            crashes += 1
    assert verdicts([[reply] for reply in replies], settings) == expected
    failed = [why for reply in replies for why in Reply.decode(reply, settings).matches.failed.values()]
    assert crashes == 3 * len(failed) > 0
    assert {why.detail for why in failed} == {"the worker has ended 3 times while it matched this document"}


N, PARTITIONS, FAULTS = 40, 2, 5


@pytest.mark.long
@pytest.mark.limit(1800)
@simulated(seeds=4, most=100)
async def test_verdicts_are_those_of_the_changelog(world: World, cluster: Cluster) -> None:
    chance, again = world.chance, set[tuple[int, int]]()

    def fails(work: Any, place: int) -> bool:
        """By chance, then a second time, too."""
        key = id(work), int(work.batch.words[place, SEQ])
        if key in again:
            again.remove(key)
            return True
        if chance.random() < 0.5:
            again.add(key)
            return True
        return False

    poison_matching(pytest.MonkeyPatch(), where=fails)  # each seed has a process of its own
    world.mean_latency = 0.1  # so that a fault often strikes between matching and the changelog
    pipeline = Pipeline(world, cluster, **plain.SURE, partitions=PARTITIONS, frame_documents=4, decision_lag=1000)
    await pipeline.create_topics()
    others = pipeline.start("sign", "sequence", "judge", "forward")
    workers = [pipeline.start("match"), pipeline.start("match")]
    history = plain.history(N, PARTITIONS, world.seed)
    for i in range(0, N, 3):
        history[i] = replace(history[i], value=orjson.dumps({"id": f"poison {i}", "text": POISON}))
    feeding = world.process("producer").start(pipeline.feed(history, 2))
    for _ in range(FAULTS):
        await asyncio.sleep(chance.uniform(0.5, 5))
        place = chance.randrange(2)
        if chance.random() < 0.5:
            workers[place].process.freeze()
            await asyncio.sleep(chance.choice((3, 12)))
            workers[place].process.thaw()
        else:
            workers[place].process.kill()
            await asyncio.sleep(chance.choice((0, 12)))  # until the other worker has its shard
            workers[place] = pipeline.start("match", folder=workers[place].folder)
    await feeding
    await pipeline.finish([others, *workers], 300)
    await pipeline.stop(others, *workers)
    # Partition and offset of the documents that verdicts say matching has failed with.
    verdicts = [orjson.loads(record.value or b"") for record in pipeline.records("verdicts")]
    assert {
        (said["source"]["partition"], said["source"]["offset"])
        for said in verdicts
        if said.get("reason") == "engine_error"
    } == _left_out(pipeline)


def _left_out(pipeline: Pipeline) -> set[tuple[int, int]]:
    """The same by the changes that count."""
    found, last = set(), -1
    for record in pipeline.records("changelog"):
        change = Change.decode(record.value or b"", pipeline.settings)
        if change.predecessor != last:
            continue
        last, reply = change.offset, Reply.decode(change.reply, pipeline.settings)
        assert reply.source is not None, "it is the only shard"
        for i in np.flatnonzero(reply.matches.status == FAILED).tolist():
            found.add((int(reply.source.partitions[i]), int(reply.source.offsets[i])))
    return found
