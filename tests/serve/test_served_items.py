"""Vectors, bit vectors and short texts over HTTP."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from support.serving import JSON, Serving

DIMENSIONS = 32
VECTORS = ("--measure", "euclidean", "--dimensions", "32", "--max-distance", "0.5", "--vector-field", "where.at")
BITS = ("--measure", "hamming", "--dimensions", "64", "--max-distance", "3", "--match-within", "lang")


@pytest.fixture(scope="module")
def vectors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with Serving(tmp_path_factory.mktemp("vectors") / "index", *VECTORS) as it:
        yield it


@pytest.fixture(scope="module")
def bits(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with Serving(tmp_path_factory.mktemp("bits") / "index", *BITS) as it:
        yield it


def at(seed: int, apart: float = 0.0) -> list[float]:
    """A place of one test, and so far from it; float32 has all of it."""
    found = np.random.default_rng(seed).integers(-128, 128, DIMENSIONS) / 64
    found[0] += apart
    return [float(number) for number in found]


def text_of(vector: list[float]) -> str:
    return base64.b64encode(np.array(vector, "<f4").tobytes()).decode()


def near(id: str, vector: Any) -> dict[str, Any]:
    return {"id": id, "where": {"at": vector}}


def test_vectors_are_judged_and_shown(vectors: Serving) -> None:
    assert vectors.add(near("a", at(1)))["kind"] == "unique"
    said = vectors.add(near("b", text_of(at(1, 0.25))))
    assert (said["kind"], said["duplicate_of"]) == ("near_duplicate", "a")
    assert said["similarity"] == 1 / 1.25
    assert [line["kind"] for line in vectors.add_all([near("c", text_of(at(1))), near("d", at(1, 2.0))])] == [
        "exact_duplicate", "unique"
    ]  # fmt: skip
    (checked,) = vectors.add_all([near("e", at(1, 0.4))], "/v1/check")
    assert (checked["kind"], checked["duplicate_of"], checked["seq"]) == ("near_duplicate", "a", None)
    found = vectors.client.get("/v1/documents/b", params={"text": "true"}).json()
    assert (found["text"], found["duplicate_of"]) == (text_of(at(1, 0.25)), "a")


@pytest.mark.parametrize(
    ("vector", "reason", "detail"),
    [
        ([1.0] * 31, "bad_vector", "has 31 numbers, not 32"),
        ({"x": 1}, "wrong_type", "is an object, not a list of numbers or their base64"),
    ],
)
def test_a_bad_vector_is_a_problem_that_says_why(vectors: Serving, vector: Any, reason: str, detail: str) -> None:
    answer = vectors.client.post("/v1/documents", headers=JSON, content=json.dumps(near("bad", vector)))
    found = answer.json()
    assert (answer.status_code, found["verdict"]["reason"], found["verdict"]["id"]) == (422, reason, "bad")
    assert 'the field "where.at"' in found["detail"] and detail in found["detail"]
    (line,) = vectors.add_all([near("bad", vector)])
    assert (line["kind"], line["reason"], line["detail"]) == ("rejected", reason, found["detail"])


def test_rows_of_bits_match_within_a_field(bits: Serving) -> None:
    row = 0x0123456789ABCDEF
    assert bits.add({"id": "a", "bits": f"{row:016x}", "lang": "en"})["kind"] == "unique"
    said = bits.add({"id": "b", "bits": row ^ 0b111, "lang": "en"})
    assert (said["kind"], said["duplicate_of"], said["similarity"]) == ("near_duplicate", "a", 1 - 3 / 64)
    assert bits.add({"id": "c", "bits": row, "lang": "de"})["kind"] == "unique"
    data = base64.b64encode((row ^ 0b1111).to_bytes(8, "big")).decode()
    assert bits.add({"id": "d", "bits": data, "lang": "en"})["kind"] == "unique"
    assert bits.client.get("/v1/documents/b", params={"text": "true"}).json()["text"] == f"{row ^ 0b111:016x}"
    why = {
        other: bits.client.get("/v1/compare", params={"a": "a", "b": other}).json()["why"] for other in ("b", "c", "d")
    }
    assert why == {
        "b": "a distance of 3 bits is not above that of 3",
        "c": "their values of lang differ (match_within)",
        "d": "a distance of 4 bits is above that of 3",
    }
    wrong = [{"id": "w", "bits": "12 3"}, {"id": "x", "bits": "0123"}, {"id": "y"}]
    assert [line["reason"] for line in bits.add_all(wrong)] == ["bad_bits", "bad_bits", "missing_field"]


def test_what_an_index_holds_is_said(vectors: Serving, bits: Serving) -> None:
    held = [service.client.get("/v1/stats").json()["index"]["settings"] for service in (vectors, bits)]
    assert [(one["measure"], one["max_distance"], one["vector_field"], one["bits_field"]) for one in held] == [
        ("euclidean", 0.5, "where.at", None), ("hamming", 3.0, None, "bits")
    ]  # fmt: skip
