"""The examples in the pages of the measures, run: what stands behind a command is what it says."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.pages import Page


@pytest.mark.parametrize("page", ["bit-vectors", "levenshtein", "containment", "weighted-jaccard", "tf-idf", "vectors"])
def test_the_examples_of_a_page(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run = Page(page, tmp_path, capfd)
    run.run()
    assert run.commands > 0
