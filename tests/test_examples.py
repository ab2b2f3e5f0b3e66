"""The examples in the pages under docs/explanation, run: each command prints what the page shows."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.pages import DOCS, Page

PAGES = [
    "explanation/how-matching-works",
    *(f"explanation/measures/{p.stem}" for p in (DOCS / "explanation/measures").glob("*.md")),
]


@pytest.mark.parametrize("page", PAGES)
def test_the_examples_of_a_page(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run = Page(page, tmp_path, capfd)
    run.run()
    assert run.commands > 0
