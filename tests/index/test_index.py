"""Openings and commits that break off keep what was committed; forged hashes make no two documents one."""

import gc
import shutil
import threading
from collections.abc import Callable
from copy import deepcopy
from dataclasses import fields
from itertools import pairwise
from pathlib import Path
from typing import Any

import mmh3
import numpy as np
import orjson
import pytest
from support.feeds import WORDS, nasty
from support.in_memory import temporary_folder
from support.indexes import fed, once, opened
from support.long_form import rotating

from stream_lsh.documents.builder import columns
from stream_lsh.documents.document import Document
from stream_lsh.errors import StoreError
from stream_lsh.hashing.murmur import murmur128
from stream_lsh.index import batch_run
from stream_lsh.index.index import Index
from stream_lsh.index.matches import Matches
from stream_lsh.index.postings.runs import Postings
from stream_lsh.index.rows.ids import Ids
from stream_lsh.index.rows.keys import ends_of, posting_key
from stream_lsh.index.rows.layout import TEXT
from stream_lsh.index.rows.row_file import RowFile
from stream_lsh.index.shard import Shard
from stream_lsh.index.store.rocksdb import TEXTS, Store
from stream_lsh.judging.verdicts import judge, verdicts
from stream_lsh.settings.model import Settings

BATCH, N = 40, 240
FEED = nasty(7, N, words=WORDS[:60])
Whole = tuple[Settings, list[dict[str, Any]]]


def settings_of(shards: int) -> Settings:
    """Everything that is committed is flushed."""
    more = {} if shards == 1 else {"compare_with": "all", "shards": shards}
    return Settings(memtable_documents=16, segment_documents=90, **more)


@pytest.fixture(scope="module", params=[1, pytest.param(3, marks=pytest.mark.long)], ids=["1 shard", "3 shards"])
def whole(request: pytest.FixtureRequest) -> Whole:
    """Settings, and the verdicts of an index that nothing disturbs."""
    settings = settings_of(request.param)
    with temporary_folder() as folder:
        return settings, once(FEED, settings, folder, BATCH)


def breaking(method: Callable[..., Any], at: int, *, after: bool = False) -> Callable[..., Any]:
    """The method, but its call number `at` breaks off, before or after what it does."""
    calls = 0

    def called(*arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == at and not after:
            raise KeyboardInterrupt
        result = method(*arguments, **options)
        if calls == at:
            raise KeyboardInterrupt
        return result

    return called


@pytest.mark.parametrize(
    ("owner", "name", "after", "committed"),
    [
        (Shard, "take", False, 0),
        (Shard, "take", True, 0),
        (Store, "write", False, 0),
        (Store, "write", True, 1),
        (Postings, "committed", False, 1),
        (Shard, "flush", False, 1),
        (Postings, "add", True, 1),
    ],
)
def test_a_commit_that_breaks_off_is_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: type, name: str, after: bool, committed: int, whole: Whole
) -> None:
    """It is on disk whole or not at all, whatever the shards believe; closing adds nothing."""
    settings, verdicts = whole
    with opened(settings, tmp_path) as index:
        for at in (0, BATCH):
            fed(index, FEED[at : at + BATCH], at, BATCH)
            index.commit({"feed": {"next": at + BATCH}})
        fed(index, FEED[2 * BATCH : 3 * BATCH], 2 * BATCH, BATCH)
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(owner, name, breaking(getattr(owner, name), 1, after=after))
            index.commit({"feed": {"next": 3 * BATCH}})
        with pytest.raises(StoreError, match=f"a commit of the index in {index.folder} was broken off: open it again"):
            index.commit({})
    # The index answers from its last commit on like an undisturbed one.
    with opened(Settings(), tmp_path) as again:
        done = (again.store.named("feed") or {"next": 0})["next"]
        assert fed(again, FEED[done:], done, BATCH) == verdicts[done:]
        again.commit({"feed": {"next": N}})
    assert int(done) == (2 + committed) * BATCH


def test_a_segment_that_was_not_committed_never_began(tmp_path: Path) -> None:
    """What was lost had begun the next segment behind the last committed row; what comes instead is of this one."""
    settings = Settings(segment_documents=10, memtable_documents=16, shingles="words:1")
    documents = [Document(i, " ".join(WORDS[9 * i : 9 * i + 9])) for i in range(30)]
    with opened(settings, tmp_path) as index:
        fed(index, documents[:8], 0, 8)
        index.commit({})
        fed(index, [documents[0], documents[1], documents[20]], 8, 3)
    with opened(settings, tmp_path) as index:
        fed(index, documents[8:], 8, 3)
        index.commit({})
    with opened(settings, tmp_path) as index:
        assert [(g.number, g.first) for g in index.shards[0].segments] == [(0, 0), (1, 10), (2, 20)]
        assert {verdict["kind"] for verdict in fed(index, documents, 30, 30)} == {"redelivered"}


def test_matches_stay_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their room is used again by the next batch, whether it fits or not."""
    monkeypatch.setattr(batch_run, "LEAST", 1)
    found, then, cuts = list[Matches](), list[Matches](), (0, 30, 33, 200, 201, N)
    with opened(Settings(), tmp_path) as index:
        for start, stop in pairwise(cuts):
            found += index.match(index.sign(columns(FEED[start:stop])), np.arange(start, stop))
            then.append(deepcopy(found[-1]))
    for matches, before, (start, stop) in zip(found, then, pairwise(cuts), strict=True):
        assert len(matches.status) == stop - start
        for field in fields(Matches):
            assert np.array_equal(getattr(matches, field.name), getattr(before, field.name)), (start, field.name)


def test_texts_of_single_documents_share_a_value(tmp_path: Path) -> None:
    """Up to 32 of one segment, which can be read before a commit and behind it."""
    documents = [Document(str(i), f"{' '.join(WORDS[i : i + 9])} {i}") for i in range(45)]

    def texts() -> list[bytes]:
        return [index.text(0, row) for row in range(45)]

    wanted = [str(document.text).encode() for document in documents]
    with opened(Settings(segment_documents=40), tmp_path) as index:
        fed(index, documents, 0, 1)
        assert texts() == wanted
        index.commit({})
        assert texts() == wanted
        stored = [first for segment in (0, 1) for first, _ in index.store.rows_of(TEXTS, 0, segment, 0)]
    assert stored == [0, 32, 40]


def test_each_index_has_a_key_of_its_own(tmp_path: Path) -> None:
    keys = set()
    for name in "abc":
        once(FEED[:5], Settings(), tmp_path / name)
        store = Store(tmp_path / name / "db", read_only=True)
        keys.add(store.named("index")["key"])
        store.close()
    assert len(keys) == 3 and all(len(bytes.fromhex(key)) == 16 for key in keys)


def files_of(folder: Path) -> set[str]:
    """Files of a folder that this process has open."""
    found = set()
    for descriptor in Path("/proc/self/fd").iterdir():
        try:
            found.add(descriptor.readlink())
        except FileNotFoundError:  # the one that reads the folder
            continue
    return {path.name for path in found if path.is_relative_to(folder)}


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="open files are read from /proc")
@pytest.mark.parametrize(
    ("owner", "name", "read_only"),
    [
        (RowFile, "_check", False),
        *rotating([(Ids, "restore", False), (RowFile, "_check", True), (Ids, "restore", True)], 1),
    ],
)
def test_an_opening_that_fails_leaves_nothing_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: type, name: str, read_only: bool
) -> None:
    """The second shard fails, after the first has started to write what it flushed."""
    once(FEED, settings_of(2), tmp_path)
    gc.collect()
    assert files_of(tmp_path) == set()
    if not read_only:
        for folder in tmp_path.glob("segments/*/postings"):
            shutil.rmtree(folder)
    before = set(threading.enumerate())
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(owner, name, breaking(getattr(owner, name), 2, after=True))
        Index(Settings(), tmp_path, read_only=read_only)
    assert set(threading.enumerate()) <= before
    gc.collect()  # a run's file is closed with the last reference to it
    assert files_of(tmp_path) == set()


TAIL = " and what both have in common, which is the larger part of the text, word for word to the end"
# 32 bytes that leave MurmurHash3 x64 128 in the same state, whatever its seed and the blocks of 16 bytes before them
# (the differential of Aumasson and Bernstein, SipHash, 2012). The first word, mixed, differs in bit 36, which is
# rotated to be the highest bit of h1; the second in bit 32, which keeps the difference out of h2; the third in bit 63,
# which takes it out of h1. Mixing can be undone; a search of seconds has found words that are text.
BLOCKS = (
    b"\xc6\x8c\xdd\x84&5\xdd\x976l]_$/\xcf\xabw2)*i\xec\x8b\xb9the same",
    b"&-\xdb\xa6\xca\xa82`u_\xe6\xb1\xa71>vw2)*\xec\x9e\xbd6the same",
)


@pytest.fixture
def crafted() -> tuple[str, str]:
    for before, after in ((b"", b""), (b"", TAIL.encode()), (b'"' + 15 * b"x", b'"')):
        texts = [before + block + after for block in BLOCKS]
        assert texts[0] != texts[1]
        assert len({mmh3.hash128(text, seed=7) for text in texts}) == 1
        found = murmur128(b"".join(texts), ends_of(texts))
        assert np.array_equal(found[0], found[1])
    return BLOCKS[0].decode(), BLOCKS[1].decode()


@pytest.mark.parametrize("verify", ["exact", "signature"])
@pytest.mark.parametrize("compare_with", ["kept", "all"])
def test_texts_that_collide_under_murmur_are_two_documents(
    tmp_path: Path, crafted: tuple[str, str], verify: str, compare_with: str
) -> None:

    def settings(threshold: float) -> Settings:
        return Settings(threshold=threshold, verify=verify, compare_with=compare_with)

    documents = [Document(i, text) for i, text in enumerate(crafted)]
    assert [v["kind"] for v in once(documents, settings(0.8), tmp_path / "alone")] == ["unique", "unique"]
    longer = [Document(i, text + TAIL) for i, text in enumerate(crafted)]
    near = once(longer, settings(0.3), tmp_path / "similar")[1]
    assert near["kind"] == "near_duplicate" and near["similarity"] < 1


def test_ids_that_collide_under_murmur_are_two_ids(tmp_path: Path, crafted: tuple[str, str]) -> None:
    """Neither redelivered nor reused, though one shard gets both of them."""
    ids = [15 * "x" + block for block in crafted]
    settings = Settings(compare_with="all", shards=4)
    documents = [Document(ids[0], "a text of a few words"), Document(ids[1], "another one of other words")]
    assert [v["kind"] for v in once(documents, settings, tmp_path)] == ["unique", "unique"]
    with opened(settings, tmp_path) as index:
        assert [v["kind"] for v in fed(index, documents[::-1], 2, 2)] == ["redelivered", "redelivered"]


@pytest.mark.parametrize("compare_with", ["kept", "all"])
def test_texts_made_for_a_known_key_are_compared_all_the_same(tmp_path: Path, compare_with: str) -> None:
    """With `verify = "exact"` equal hashes are also equal sets."""
    base = [f"w{i}" for i in range(60)]
    texts = [base, [f"v{i}" for i in range(60)], [*base[:-1], "x"], base, ["only", "three", "words"]]
    with opened(Settings(compare_with=compare_with), tmp_path) as index:
        # Verdicts of documents whose texts all have the same keyed hash. Without the key such texts cannot be made.
        documents = [Document(i, " ".join(text)) for i, text in enumerate(texts)]
        signed = index.sign(columns(documents))
        batch = signed.documents
        batch.words[:, TEXT : TEXT + 2] = batch.words[0, TEXT : TEXT + 2]
        batch.keys[batch.starts[1:] - 2] = posting_key(batch.words[0, TEXT])
        seqs = np.arange(len(documents))
        judgement = judge(index.match(signed, seqs), signed.ids, seqs, index.settings.max_matches, index)
        found = [orjson.loads(line + b"}") for line in verdicts(judgement)]
    assert [v["kind"] for v in found] == ["unique", "unique", "near_duplicate", "exact_duplicate", "unique"]
    for verdict in found[2:4]:
        assert verdict["duplicate_of"] == 0
        assert len({match["seq"] for match in verdict["matches"]}) == len(verdict["matches"])
    assert found[2]["similarity"] < 1
