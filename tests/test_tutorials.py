"""The examples in tutorials, how-to guides and explanations, run: each command prints what the page shows."""

from pathlib import Path

import pytest
from support.pages import DOCS, Page


@pytest.mark.parametrize(
    "page",
    [
        "../README",
        "tutorials/first-dedup",
        "tutorials/chapter-3-by-hand",
        "how-to/choose-a-threshold",
        "how-to/forget",
        "how-to/update-and-delete",
        "how-to/spread-and-alerts",
        "how-to/embed-in-python",
        "how-to/run-on-a-pipe",
        "explanation/how-matching-works",
        *(f"explanation/measures/{path.stem}" for path in (DOCS / "explanation/measures").glob("*.md")),
    ],
)
def test_the_examples_of_a_page(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run = Page(page, tmp_path, capfd)
    run.run()
    assert run.examples > 0


def test_modules_and_tests_in_the_map_of_the_chapter_exist() -> None:
    """docs/tutorials/chapter-3-by-hand.md leads from sections of the book to files."""
    root = Path(__file__).parents[1]
    table = (root / "docs/tutorials/chapter-3-by-hand.md").read_text(encoding="utf-8").partition("## Map")[2]
    rows = [line.split("|") for line in table.splitlines() if line.startswith("| 3.")]
    assert len(rows) > 15
    for row in rows:
        for folder, cell in (("stream_lsh", row[3]), ("tests", row[4])):
            for name in cell.replace("`", "").split(","):
                path = root / folder / name.strip()
                assert path.exists() or path.with_suffix(".py").exists(), name
