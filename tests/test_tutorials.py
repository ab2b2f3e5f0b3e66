"""The examples in the pages, run: each command prints what the page shows; drawings show what the code computes."""

import re
from pathlib import Path

import numpy as np
import pytest
from support.pages import DOCS, Page

from stream_lsh.families.signer import Signer
from stream_lsh.families.tuning import choose
from stream_lsh.settings.model import Settings


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
        "how-to/test-your-consumers",
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


TEXTS = [f"The council votes on Tuesday for a new bridge over the {last}".encode() for last in ("river", "canal")]


def drawing(name: str) -> str:
    return (DOCS / "images" / f"{name}.svg").read_text(encoding="utf-8")


def signatures() -> np.ndarray:
    ends = np.cumsum([len(text) for text in TEXTS])
    return Signer(Settings().signing).sign(b"".join(TEXTS), ends, want_shingles=False).signatures


def test_signatures_drawn_are_those_of_the_texts() -> None:
    first, second = signatures()
    shown = [int(number) for number in re.findall(r'class="c m">(\d+)<', drawing("text-to-signature"))]
    assert shown == [*first[:10], *second[:10]]
    assert f"{(first == second).sum()} of {len(first)} numbers are equal" in drawing("text-to-signature")


def test_bands_drawn_are_those_of_the_signature() -> None:
    banding = choose(0.8, 0.999)
    first, second = (row[: banding.bands * banding.rows].reshape(banding.bands, banding.rows) for row in signatures())
    equal = (first == second).all(axis=1)
    shown = re.findall(r'class="c m">(\d+)<', drawing("bands-and-buckets"))
    bands = [int(number) - 1 for number in re.findall(r">band (\d+)</text>", drawing("bands-and-buckets"))]
    assert [int(number) for number in shown] == second[bands].ravel().tolist()
    assert re.findall(r">band (\d+) of a1 is equal<", drawing("bands-and-buckets")) == [
        str(band + 1) for band in bands if equal[band]
    ]
    assert f"{equal.sum()} of the {banding.bands} buckets hold a1" in drawing("bands-and-buckets")


def test_curve_drawn_is_that_of_the_defaults() -> None:
    banding, svg = choose(0.8, 0.999), drawing("s-curve")
    found = re.search(r'class="curve" d="M([^"]*)"', svg)
    assert found
    points = np.array([[float(number) for number in point.split()] for point in found[1].split("L")])
    (left, bottom), (right, top) = points[0], points[-1]
    similarities = (points[:, 0] - left) / (right - left)
    expected = [banding.probability(float(s)) for s in similarities]
    assert (points[:, 1] - bottom) / (top - bottom) == pytest.approx(expected, abs=2e-3)
    said = f"{100 * banding.probability(0.8):.3f} %"
    assert f">{said}<" in svg
    assert said in (DOCS / "explanation/how-matching-works.md").read_text(encoding="utf-8")
