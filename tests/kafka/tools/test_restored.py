"""What shards have stored, restored for another number of shards, answers as if it had always been theirs."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import orjson
import pytest
from support.kafka import match_play
from support.kafka.replica_play import change_of, fields_of, oracle, reply_of, stream, undisturbed, verdicts
from support.kafka.stages import KEY
from support.long_form import rotating
from support.poison import WORDS, poison

from stream_lsh.documents.builder import columns
from stream_lsh.documents.document import Document
from stream_lsh.errors import FormatError
from stream_lsh.families.family import signer_of
from stream_lsh.families.signer import Signer
from stream_lsh.kafka.match.replica import Replica
from stream_lsh.kafka.tools.restored import Segments, documents, pieces
from stream_lsh.settings.model import Settings
from stream_lsh.wire.changes import Change
from stream_lsh.wire.frames import CONTINUES, STARTS, Frame
from stream_lsh.wire.replies import Reply
from stream_lsh.wire.sequenced import Sequenced
from stream_lsh.wire.source import Source, numbers

SIZE = 40
DIMENSIONS = 32
BEST = {"keep": "best", "rank_field": "rank"}
PER_SOURCE = {"keep_per": "source", "source_field": "outlet"}


def feed(n: int) -> list[Document]:
    """Among them documents that come again, ids that do with another text, and texts of which nothing is left."""
    found = stream(3, n)
    for i in range(20, n, 17):
        found[i] = found[i - 13]
    for i in range(25, n, 19):
        found[i] = Document(found[i - 5].id, f"{found[i].text} changed")
    for i in range(30, n, 23):
        found[i] = Document(found[i].id, "<br>")
    numbered = [(document, int(document.id)) for document in found]
    return [
        replace(document, within={"lang": n % 3 or None}, rank=n * 7 % 11, source=f"s{n % 5 > 0:d}")
        for document, n in numbered
    ]


def changing(given: list[Document]) -> list[Document]:
    """With deletions among them; some are told late."""
    out = [replace(document, time=1000 + i - 40 * (i % 9 == 0)) for i, document in enumerate(given)]
    for i in range(20, len(out), 7):
        out[i] = Document(out[i - 16 + i % 5].id, time=out[i].time if i % 3 else None, deleted=True)
    return out


def vector_of(document: Document) -> Document:
    """The sum of its words, each of which has a direction; of what has no words zeros, which have none."""
    words = [word for word in (document.text or "").split() if word != "<br>"]
    directions = [np.random.default_rng(crc32(word.encode())).standard_normal(DIMENSIONS) for word in words]
    return replace(document, text=None, vector=np.sum([np.zeros(DIMENSIONS), *directions], axis=0))


def changes_of(settings: Settings, given: list[Document], folder: Path) -> list[list[Change]]:
    """What each shard has changed, frame by frame."""
    log = match_play.frames(settings, given, SIZE)
    shards = [undisturbed(settings, log, folder / f"old-{shard}", shard) for shard in range(settings.shards)]
    return [[Change.decode(change_of(found), settings) for found in each] for each in zip(*shards, strict=True)]


def sequenced(settings: Settings, log: Sequence[Frame]) -> list[bytes]:
    ends = accumulate((len(frame.source) for frame in log), initial=0)
    return [
        Sequenced(number, number - 1, first, KEY, None, memoryview(frame.encode(settings))).encode(settings)
        for number, (frame, first) in enumerate(zip(log, ends, strict=False))
    ]


def judged(said: bytes) -> list[dict[str, Any]]:
    """The verdicts among verdicts and pairs."""
    return [orjson.loads(line) for line in said.splitlines() if b'"kind"' in line]


@pytest.mark.parametrize(
    ("compare_with", "before", "after", "within", "updates", "vectors", "keep"),
    [
        ("all", 2, 1, ["lang"], False, False, {}), ("kept", 1, 1, ["lang"], True, True, {}),
        ("kept", 1, 1, ["lang"], True, False, BEST | PER_SOURCE),
        *rotating([
            ("kept", 1, 1, [], True, False, {}), ("all", 2, 3, [], False, False, {}),
            ("all", 1, 2, [], False, False, {}), ("kept", 1, 1, [], False, False, {}),
            ("kept", 1, 1, ["lang"], False, False, {}), ("kept", 1, 1, ["lang"], True, False, {}),
            ("all", 2, 3, [], True, False, {}), ("all", 2, 3, ["lang"], False, True, {}),
            ("kept", 1, 1, [], False, False, BEST), ("kept", 1, 1, [], False, False, PER_SOURCE),
            ("kept", 1, 1, ["lang"], False, False, {"keep": "longest"}),
        ], 4),
    ],
)  # fmt: skip
def test_it_answers_as_the_embedded_index(
    tmp_path: Path, compare_with: str, before: int, after: int, within: list[str], updates: bool, vectors: bool,
    keep: dict[str, Any],
) -> None:  # fmt: skip
    given = feed(600)
    common: dict[str, Any] = {
        "compare_with": compare_with, "segment_documents": 150, "threshold": 0.6, "max_matches": 0,
        "normalize": "lower,space,markup", "match_within": within, **keep,
    }  # fmt: skip
    if updates:
        given = changing(given)
        common |= {"on_conflict": "update", "time_field": "ts"}
    if vectors:
        given = [document if document.deleted else vector_of(document) for document in given]
        common |= {"measure": "cosine", "dimensions": DIMENSIONS, "normalize": Settings().normalize}
    old, more = given[:400], given[400:]
    was, new = Settings(**common, shards=before), Settings(**common, shards=after)
    signer, segments, log, reasons = signer_of(new.signing, KEY), Segments(), [], dict[int, str]()
    for changes in changes_of(was, old, tmp_path):
        for found, source in pieces(*documents(changes, was), 33):
            seqs = numbers(len(log), len(source))
            reasons |= {int(seqs[i]): refusal.reason for i, refusal in source.rejected.items()}
            log.append(Frame.of(signer, new, found, segments.of(source), source))
    for at in range(0, len(more), SIZE):
        part = columns(more[at : at + SIZE], fields_of(new))
        n, first = len(part), len(old) + at
        source = Source(
            np.zeros(n, np.int32), np.arange(first, first + n), part.ids, part.times, 1, part.rejected,
            sources=part.sources,
        )  # fmt: skip
        log.append(Frame.of(signer, new, part, np.array([[0, first, first + n, CONTINUES]]), source))

    data = sequenced(new, log)
    shards = [undisturbed(new, data, tmp_path / f"new-{shard}", shard) for shard in range(after)]
    ours = judged(verdicts([[reply_of(found) for found in each] for each in zip(*shards, strict=True)], new))
    theirs = judged(oracle(new, data, tmp_path / "embedded", given))
    assert ours[len(old) :] == theirs[len(old) :]
    kinds = Counter(line["kind"] for line in theirs[: len(old)])
    assert {line["kind"] for line in theirs[len(old) :]} >= {"unique", "near_duplicate", "redelivered", "rejected"}
    assert 10 < kinds["redelivered"] < 100
    for mine, line in zip(ours, theirs[: len(old)], strict=False):
        if line["kind"] in ("redelivered", "outdated"):
            assert (mine["kind"], reasons[mine["seq"]]) == ("rejected", line["kind"])
        else:
            assert mine == line
    assert "empty" in reasons.values()
    if updates:
        assert kinds["deleted"] > 20 and kinds["outdated"], kinds
        assert any("new_representative" in line for line in theirs) == (compare_with == "kept")
    else:
        assert "id_reused" in reasons.values()


def test_a_document_that_signing_raises_on_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a scope only its hash is stored, so texts are signed to find it."""
    settings = Settings(threshold=0.6, compare_with="all", shards=2, match_within=["lang"])
    given = feed(SIZE)
    given[7] = replace(given[7], text=WORDS)
    [changes] = changes_of(settings, given, tmp_path)
    whole, _ = documents(changes, settings)
    poison(monkeypatch)
    found, source = documents(changes, settings)
    assert source.rejected == found.rejected
    assert found.rejected.keys() - whole.rejected.keys() == {7} and found.rejected[7].reason == "engine_error"
    scopes = [np.delete(each.scope_hashes(np.empty(0, np.uint64)), 7).tolist() for each in (found, whole)]
    assert scopes[0] == scopes[1] and found.texts == whole.texts.replace(WORDS.encode(), b"")


def test_times_headers_and_what_is_not_accepted(tmp_path: Path) -> None:
    settings = Settings(threshold=0.6)
    part = columns(
        [Document("a", "one two three four five six", time=7), Document("b", ""), Document("c", "x y z " * 9)]
    )
    source = Source(
        np.array([1, 1, 0], np.int32), np.array([4, 6, 9]), part.ids, part.times, 1234, part.rejected,
        {0: [("traceparent", b"t")], 2: [("traceparent", b"u")]},
    )  # fmt: skip
    frame = Frame.of(Signer(settings.signing, KEY), settings, part, np.array([[1, 0, 7, 1], [0, 0, 10, 1]]), source)
    accepted = np.array([False, True, True])
    data = Sequenced(0, -1, 0, KEY, accepted, memoryview(frame.encode(settings))).encode(settings)
    replica = Replica(settings, 0, tmp_path / "shard")
    replica.activate()
    answer = replica.match(data)
    replica.close()
    assert answer is not None and answer.change is not None
    found, where = documents([Change.decode(answer.change, settings)], settings)
    assert found.ids == [b'"b"', b'"c"'] and found.texts == b"x y z " * 9 and found.ends.tolist() == [0, 54]
    assert found.rejected == {0: part.rejected[1]} and where.rejected == found.rejected
    assert where.partitions.tolist() == [1, 0] and where.offsets.tolist() == [6, 9] and where.signed_at == 1234
    assert where.headers == {1: [("traceparent", b"u")]} and where.times.tolist() == part.times[1:].tolist()


def test_frames_continue_each_other() -> None:
    def source(partitions: list[int], offsets: list[int]) -> Source:
        n = len(offsets)
        return Source(np.array(partitions, np.int32), np.array(offsets), [b"1"] * n, np.zeros(n, np.int64), 0)

    segments = Segments()
    assert segments.of(source([3, 3, 0], [5, 8, 2])).tolist() == [[0, 2, 3, STARTS], [3, 5, 9, STARTS]]
    assert segments.of(source([3], [20])).tolist() == [[3, 9, 21, CONTINUES]]
    # Ends of transactions behind the last document; a partition that never had one; one that is further by now.
    known = {0: 4, 1: 7, 3: 20}
    assert segments.up_to(known, {}).tolist() == [[0, 3, 4, CONTINUES], [1, 7, 7, STARTS], [3, 21, 21, CONTINUES]]
    assert segments.positions == {0: 4, 1: 7, 3: 21}


def test_changes_that_are_not_whole(tmp_path: Path) -> None:
    settings = Settings(threshold=0.6, compare_with="all", shards=2)
    [changes] = changes_of(settings, feed(SIZE), tmp_path)
    without = next(i for i, change in enumerate(changes) if Reply.decode(change.reply, settings).source is None)
    with pytest.raises(FormatError, match="do not fit together"):
        documents(changes[without : without + 1], settings)
    broken = changes[0]
    texts = {key: value for key, value in broken.values.items() if not key.startswith(b"t")}
    bare = Change(
        broken.shard, broken.offset, broken.predecessor, broken.first, broken.last, broken.key, texts, broken.reply
    )
    with pytest.raises(FormatError, match="0 texts for"):
        documents([bare, changes[1]], settings)
