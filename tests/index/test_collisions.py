"""Who knows the hash functions, but not the index's key, makes no two documents one."""

from pathlib import Path
from typing import Any

import mmh3
import numpy as np
import orjson
import pytest
from support.indexes import fed, once, opened

from stream_lsh.documents.builder import columns
from stream_lsh.documents.document import Document
from stream_lsh.hashing.murmur import murmur128
from stream_lsh.index.index import Index
from stream_lsh.index.rows.keys import ends_of, posting_key
from stream_lsh.index.rows.layout import TEXT
from stream_lsh.judging.verdicts import judge, verdicts
from stream_lsh.settings.model import Settings

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


def with_one_hash(index: Index, documents: list[Document]) -> list[dict[str, Any]]:
    """What is said of documents whose texts all have the same keyed hash, as only who knows the key could make them."""
    signed = index.sign(columns(documents))
    batch = signed.documents
    batch.words[:, TEXT : TEXT + 2] = batch.words[0, TEXT : TEXT + 2]
    batch.keys[batch.starts[1:] - 2] = posting_key(batch.words[0, TEXT])
    seqs = np.arange(len(documents))
    found = judge(index.match(signed, seqs), signed.ids, seqs, index.settings.max_matches, index)
    return [orjson.loads(line + b"}") for line in verdicts(found)]


@pytest.mark.parametrize("compare_with", ["kept", "all"])
def test_who_knows_the_key_is_compared_all_the_same(tmp_path: Path, compare_with: str) -> None:
    """With `verify = "exact"` equal hashes are also equal sets."""
    base = [f"w{i}" for i in range(60)]
    texts = [base, [f"v{i}" for i in range(60)], [*base[:-1], "x"], base, ["only", "three", "words"]]
    with opened(Settings(compare_with=compare_with), tmp_path) as index:
        found = with_one_hash(index, [Document(i, " ".join(text)) for i, text in enumerate(texts)])
    assert [v["kind"] for v in found] == ["unique", "unique", "near_duplicate", "exact_duplicate", "unique"]
    for verdict in found[2:4]:
        assert verdict["duplicate_of"] == 0
        assert len({match["seq"] for match in verdict["matches"]}) == len(verdict["matches"])
    assert found[2]["similarity"] < 1
