"""Vectors and rows of bits over HTTP: taken, checked, refused, shown and compared as texts are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from serving import JSON, Serving

VECTORS = ("--likeness", "cosine", "--dimensions", "3", "--threshold", "0.9")
BITS = ("--likeness", "hamming", "--dimensions", "16", "--distance", "2", "--bits-field", "phash")


@pytest.mark.parametrize(
    ("options", "field", "values", "similarity"),
    [(VECTORS, "vector", ([1, 2, 2], [1, 2, 2.5], [-1, 0, 0]), 10 / (9 * 11.25) ** 0.5),
     (BITS, "phash", ("00ff", "00fe", "ff00"), 15 / 16)],
    ids=["vectors", "bits"],
)  # fmt: skip
def test_a_service_takes_items(
    tmp_path: Path, options: tuple[str, ...], field: str, values: tuple[Any, ...], similarity: float
) -> None:
    with Serving(tmp_path / "index", *options) as service:
        documents = [{"id": name, field: value} for name, value in zip("abc", values, strict=True)]
        first, second, third = (service.add(document) for document in documents)
        assert [verdict["kind"] for verdict in (first, second, third)] == ["unique", "near_duplicate", "unique"]
        assert second["of"] == "a"
        assert second["similarity"] == pytest.approx(similarity, abs=1e-6)
        checked = service.client.post(
            "/v1/check", headers=JSON, content=json.dumps({"id": "d", field: values[1]})
        ).json()
        assert (checked["kind"], checked["of"]) == ("near_duplicate", "a")
        refused = service.client.post("/v1/documents", headers=JSON, content=json.dumps({"id": "e", field: "x"}))
        assert refused.status_code == 422
        assert "base64" in refused.text
        assert service.client.get("/v1/documents/a", params={"text": "true"}).json()["text"]
        compared = service.client.get("/v1/compare", params={"a": "a", "b": "b"}).json()
        assert compared["match"]
        assert compared["similarity"] == pytest.approx(similarity, abs=1e-6)
        apart = service.client.get("/v1/compare", params={"a": "a", "b": "c"}).json()
        assert not apart["match"]
        assert "below the threshold" in apart["why"]
