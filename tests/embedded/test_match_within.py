"""`match_within`: documents match only where the values of some fields are equal, as if each had its own index."""

import json
import random
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.jobs import run

from stream_lsh import Deduplicator, Document, Settings, Verdict
from stream_lsh.documents.builder import columns
from stream_lsh.documents.fields import Fields
from stream_lsh.errors import UsageError
from stream_lsh.hashing.murmur import murmur128
from stream_lsh.hashing.siphash import KEY_BYTES, key_words

VALUES = ["en", "de", "null", None, 17, "17", True, "true", "", "en,de"]  # all of them different
FORGED = "another companyNP&7 >|K}UKxr+]"
TEXT = "the council has voted for the new bridge over the river and work begins in spring"


def feed(n: int = 300, seed: int = 1) -> list[Document]:
    """Copies and edits of a few texts, with random values."""
    chance = random.Random(seed)
    texts = [[f"w{chance.randrange(300)}" for _ in range(40)] for _ in range(12)]
    found = []
    for number in range(n):
        words = list(chance.choice(texts))
        for _ in range(chance.choice((0, 0, 1, 2, 3))):
            words[chance.randrange(40)] = f"w{chance.randrange(300)}"
        found.append(Document(number, " ".join(words), within={"lang": chance.choice(VALUES), "else": "ignored"}))
    return found


def value_of(document: Document) -> tuple[type, object]:
    assert document.within is not None
    return type(document.within["lang"]), document.within["lang"]


def verdicts(documents: Sequence[Document], **given: Any) -> list[Verdict]:
    with Deduplicator(Settings(**given)) as deduplicator:
        return list(deduplicator.process(documents, batch=64))


def said(verdict: Verdict, numbers: Sequence[int]) -> tuple[Any, ...]:
    """A verdict with numbers of the whole feed; numbers: of the documents of its index."""
    group = None if verdict.group is None else numbers[verdict.group]
    matches = [(match.id, numbers[match.seq], match.similarity) for match in verdict.matches]
    return verdict.id, verdict.kind, verdict.duplicate_of, verdict.similarity, group, matches


ANY = {"compare_with": "all", "max_verified_matches": 0, "max_matches": 0}
KEPT = {"compare_with": "kept", "decision_lag": 64, "max_candidates": 128}
QUICK = (("kept", 1, "exact"), ("all", 3, "signature"))


@pytest.mark.parametrize(
    ("compare_with", "shards", "verify"),
    [
        pytest.param(*case, marks=[] if case in QUICK else pytest.mark.long)
        for case in product(("kept", "all"), (1, 3), ("exact", "signature"))
    ],
)
def test_each_value_is_as_an_index_of_its_own(compare_with: str, shards: int, verify: str) -> None:
    """To the last match; with several shards that keep these depend on where blocks begin, but the verdict does not."""
    given = {**(ANY if compare_with == "all" else KEPT), "shards": shards, "verify": verify, "threshold": 0.7}
    documents = feed()
    expected: list[tuple[Any, ...]] = []
    for value in {value_of(document) for document in documents}:
        part = [document for document in documents if value_of(document) == value]
        numbers = [int(document.id) for document in part]
        expected += [said(verdict, numbers) for verdict in verdicts(part, **given)]
    found = [said(verdict, range(len(documents))) for verdict in verdicts(documents, match_within=["lang"], **given)]
    columns = 5 if Settings(**given).late else 6
    assert [said[:columns] for said in found] == [said[:columns] for said in sorted(expected)]
    kept = sum(kind == "unique" for _, kind, *_ in found)
    assert len(documents) - kept > 100
    assert sum(verdict.kind == "unique" for verdict in verdicts(documents, **given)) < 0.8 * kept


def test_a_scope_is_not_forged() -> None:
    """`FORGED` has the murmur3 hash of `acme`. Without the key of the index no such value can be found."""
    documents = [Document(customer, TEXT, within={"customer": customer}) for customer in ("acme", FORGED)]
    raw = [json.dumps(document.id).encode() for document in documents]
    assert len({int(hashed) for hashed in murmur128(b"".join(raw), np.cumsum(list(map(len, raw))))[:, 0]}) == 1
    assert [verdict.kind for verdict in verdicts(documents, match_within=["customer"])] == ["unique", "unique"]
    found = columns(documents, Fields(match_within=("customer",)))
    hashes = [found.scope_hashes(key_words(bytes([key] * KEY_BYTES))).tolist() for key in (1, 2)]
    assert len({*hashes[0], *hashes[1]}) == 4


def test_a_folder_has_no_fields(tmp_path: Path) -> None:
    (tmp_path / "one.txt").write_text(TEXT)
    with pytest.raises(UsageError, match=r"no fields to match within \(lang\): feed it into an index without"):
        run(tmp_path / "job", [tmp_path], Settings(match_within=("lang",)), [])
