"""A copy of all shards answers as the embedded index does as of the same frame."""

from pathlib import Path

import pytest
from support.kafka.pipe import BLOCK, Pipe
from support.kafka.replica_play import UPDATES, WINDOW, each_frame, feed_of, frames, settings_of
from support.kafka.stages import KEY
from support.long_form import rotating

from stream_lsh.documents.builder import columns
from stream_lsh.embedded.engine import checked
from stream_lsh.judging.verdicts import verdict_lines
from stream_lsh.kafka.lookup.reader import FrameReader, provisional_from
from stream_lsh.kafka.match.replica import Replica
from stream_lsh.wire.decisions import Decisions

KEPT = {"decision_lag": 2 * BLOCK}


@pytest.mark.parametrize("given", [
    {"shards": 3, **UPDATES, **WINDOW, **KEPT},
    *rotating([
        {"shards": 1}, {"shards": 1, **UPDATES, **WINDOW, "keep": "longest"},
        {"shards": 3, **KEPT}, {"shards": 3, **UPDATES, **KEPT}, {"shards": 2, **UPDATES, **KEPT, "keep": "newest"},
        {"shards": 3, "compare_with": "all", "max_verified_matches": 0},
    ], 2),
])  # fmt: skip
def test_frame_answers_as_embedded(tmp_path: Path, given: dict[str, object]) -> None:
    settings = settings_of(**given)
    documents = feed_of(settings, 240)
    log = frames(settings, documents)
    expected = each_frame(settings, log, tmp_path / "embedded", documents)
    pipe = Pipe(settings, log, tmp_path / "pipe")
    copies = [Replica(settings, shard, tmp_path / f"copy{shard}") for shard in range(settings.shards)]
    asked = 0
    for at, sequenced in enumerate(pipe.log):
        pipe.step(sequenced)
        for copy, changes in zip(copies, pipe.changes, strict=True):
            copy.deactivate()
            copy.apply([(at, changes[at])])
        if at % 4:
            continue
        for copy in copies:
            copy.activate()
        place = provisional_from(copies[0].shard.late.block, settings)
        known = [Decisions.decode(data, settings) for data in pipe.decided]
        reader = FrameReader(settings, KEY, copies, [d for d in known if d.documents > place] if settings.late else [])
        assert verdict_lines(checked(reader, columns(documents)).judgement) == expected[at], f"frame {at}"
        asked += 1
    assert asked >= 3
    for copy in copies:
        copy.close()
    pipe.close()
