"""The pipeline on a real broker answers line for line as the embedded engine does.

STREAM_LSH_LONG=1 takes the first 40,000 posts and all of terms-3k instead of the first few thousand.
"""

import json
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

import orjson
import pytest
from support.kafka.feeding import POSTS, TERMS, changing, feed_of, lines, records_of
from support.kafka.harness import Pipeline, until
from support.kafka.measures import SETTINGS, feed
from support.kafka.oracle import Outputs, json_of, places_of, renumbered, same, strip
from support.long_form import LONG, rotating
from support.models.dense import dense

from stream_lsh import Settings
from stream_lsh.embedded.job import Job
from stream_lsh.kafka.settings import ROLES

SIZES = {"posts": 40_000 if LONG else 2_500, "terms": 3_000 if LONG else 250}
CORPORA = {"posts": POSTS, "terms": TERMS, "dense": ("", "text"), "langs": ("", "text"), "changing": POSTS}
ANY: dict[str, Any] = {"compare_with": "all"}
CUT = {"segment_documents": 300}
UPDATES: dict[str, Any] = {"on_conflict": "update", "deleted_field": "deleted"}
KEPT: dict[str, Any] = {"compare_with": "kept", "decision_lag": 1000, "frame_documents": 200}
SOON: dict[str, Any] = {"decision_lag": 200, "frame_documents": 70}


@pytest.fixture(scope="module")
def feeds(shared_data: Path) -> dict[str, list[bytes]]:
    """Real documents; among the posts bad lines, repeated ones and reused ids."""
    found = {name: list(lines(shared_data, CORPORA[name][0], size)) for name, size in SIZES.items()}
    found["dense"] = [orjson.dumps({"id": d.id, "text": d.text}) for d in dense(SIZES["posts"])]
    langs = ["en", "de", None, 7, "x" * 300]
    found["langs"] = [
        orjson.dumps({"id": d.id, "text": d.text, "lang": langs[i % 5]}) for i, d in enumerate(dense(500))
    ]
    found |= {name: feed(name, 900, 1, 0.1) for name in SETTINGS}
    found["posts"] = feed_of(found["posts"], 5)
    found["timed"] = [  # each an hour after the one before
        orjson.dumps({**orjson.loads(line), "ts": 3_600_000 * i})
        for i, line in enumerate(lines(shared_data, POSTS[0], 1000))
    ]
    changes = changing(records_of(found["posts"][:2000], 1, 1), 2)
    found["changing"] = [record.value for record in changes if record.value is not None]
    return found


def flow(
    broker: Any, prefix: str, folder: Path, values: Sequence[bytes], layout: Sequence[tuple[Sequence[str], str]],
    changes: int = 0, **given: Any,
) -> Outputs:  # fmt: skip
    """Documents through workers (roles and processes of each), to the end; the outputs, compared with the oracle.
    changes: a seed for others that change them; 0 = none."""
    # No worker dies here: a slow machine must not make it look so.
    with Pipeline(
        broker.bootstrap, prefix, folder, session_timeout_ms=30_000, transaction_timeout_ms=30_000, **given
    ) as pipeline:
        workers = [pipeline.worker(roles, processes) for roles, processes in layout]
        records = records_of(values, pipeline.settings.partitions, 1)
        records = changing(records, changes) if changes else records
        assert pipeline.produce(records) == len(records)
        pipeline.finish()
        pipeline.stop(*workers)
        # Their sessions would last longer: they have left.
        until(lambda: {role: pipeline.members(role) for role in ROLES} == dict.fromkeys(ROLES, 0), 20)
        found = pipeline.check()
    assert len(found.documents) == len(records)
    return found


def embedded(folder: Path, values: Sequence[bytes], **given: Any) -> tuple[list[bytes], list[bytes]]:
    """Verdicts and pairs of the command line's engine, as lines."""
    feed = folder / "feed.jsonl"
    feed.write_bytes(b"".join(value + b"\n" for value in values))
    outputs = {name: str(folder / f"{name}.jsonl") for name in ("verdicts", "pairs", "unique", "dead_letters")}
    Job(Settings(**{"max_matches": 0, **given}), [str(feed)], outputs).run()
    verdicts, pairs = ((folder / f"{name}.jsonl").read_bytes().splitlines() for name in ("verdicts", "pairs"))
    return verdicts, pairs


CASES: dict[str, list[tuple[str, str, dict[str, Any]]]] = {
    "defaults": [("posts", "one", {})],
    "copies that are kept": [
        ("posts", "one", {**CUT, "max_matches": 3}),
        ("terms", "one", {}),
        ("posts", "groups", {**KEPT, "shards": 2, **CUT}),
        ("posts", "roles", {**KEPT, "shards": 4, "max_matches": 3}),
        ("terms", "one", {**KEPT, "shards": 3, "decision_lag": 100, "frame_documents": 50}),
        ("dense", "groups", {**KEPT, "shards": 2}),
        ("langs", "one", {**KEPT, "shards": 2, "match_within": ("lang",)}),
    ],
    "any copies": [
        ("posts", "roles", {**ANY, "shards": 4, **CUT}),
        ("posts", "groups", {**ANY, "verify": "signature"}),
        ("terms", "groups", {**ANY, "shards": 4}),
    ],
    "changes": [
        ("changing", "one", {**UPDATES, **CUT}),
        ("changing", "roles", {**UPDATES, "keep": "longest", **CUT}),
        ("changing", "groups", {**UPDATES, **KEPT, "shards": 2, **CUT}),
        ("changing", "one", {**UPDATES, **KEPT, **SOON, "shards": 3}),
        ("changing", "groups", {**UPDATES, **KEPT, **SOON, "shards": 2, "keep": "longest"}),
    ],
    "items": [
        ("cosine", "groups", {**SETTINGS["cosine"], **UPDATES, **KEPT, **SOON, "shards": 2}),
        ("hamming", "one", {**SETTINGS["hamming"], **UPDATES, "match_within": ("lang",), **CUT}),
        ("euclidean", "one", {**SETTINGS["euclidean"], **ANY, "shards": 2}),
        ("levenshtein", "one", {**SETTINGS["levenshtein"], **KEPT, **SOON, "shards": 2, "match_within": ("lang",)}),
        ("weighted-jaccard", "one", {**SETTINGS["weighted-jaccard"], **UPDATES, "match_within": ("lang",), **CUT}),
        ("levenshtein", "one", {**SETTINGS["levenshtein"], **UPDATES, **CUT}),
    ],
    "containment": [
        ("containment", "one", {**SETTINGS["containment"], **UPDATES, "match_within": ("lang",), **CUT}),
        ("containment", "groups", {**SETTINGS["containment"], **ANY, "shards": 2}),
    ],
    "tf-idf": [
        ("tf-idf", "one", {**SETTINGS["tf-idf"], "match_within": (), **UPDATES, **CUT, "erase_hours": 0}),
        ("changing", "groups", {"measure": "tf-idf", **UPDATES, **CUT}),
        ("posts", "one", {"measure": "tf-idf"}),
        (
            "timed", "one", {"measure": "tf-idf", "threshold": 0.2, "time_field": "ts", "text_field": POSTS[1]},
        ),
        ("tf-idf", "one", {**SETTINGS["tf-idf"], "match_within": (), **UPDATES, **CUT}),
    ],
}  # fmt: skip
"""What is alike -> cases; the gate runs two of them all, others with each commit."""


@pytest.mark.parametrize(
    ("corpus", "processes", "given"),
    rotating([case for cases in zip_longest(*CASES.values()) for case in cases if case], 2),
)
def test_one_source_partition_is_as_embedded(
    broker: Any, prefix: str, tmp_path: Path, feeds: dict[str, list[bytes]],
    corpus: str, processes: str, given: dict[str, Any],
) -> None:  # fmt: skip
    """Also equal to a run of the command line, but for gaps in the numbers; segments begin in the middle of frames."""
    given = {"text_field": CORPORA.get(corpus, ("", "text"))[1], **given}
    layout = [(ROLES, processes)]
    found = flow(broker, prefix, tmp_path, feeds[corpus], layout, partitions=1, **given)
    given.pop("frame_documents", None)  # a setting of Kafka's
    verdicts, pairs = embedded(tmp_path, feeds[corpus], **given)
    places = places_of(record.value or b"" for record in found.verdicts)
    ours = [renumbered(strip(record.value or b""), places) for record in found.verdicts]
    equal = ours == [json.dumps(json_of(line)).encode() for line in verdicts]  # assert would print megabytes
    assert equal
    assert len(pairs) > 10
    same(
        [renumbered(strip(record.value or b""), places) for record in found.pairs],
        [json.dumps(json_of(line)).encode() for line in pairs],
        "pairs",
    )
