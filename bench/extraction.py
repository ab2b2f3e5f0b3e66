"""The main text of real news pages, by two libraries: what is kept of the article, and pages per second.

FOLDER has pages, html/NAME.html, and the article of each, txt/NAME.txt: as tests/data in the source of newspaper4k.
It needs `pip install '.[crawl]' trafilatura lxml_html_clean`.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path


def grams(text: str) -> Counter[str]:
    """Sequences of five visible characters, so that languages without blanks count, too."""
    packed = "".join(text.split())
    return Counter(packed[i : i + 5] for i in range(len(packed) - 4))


def by_resiliparse(page: str) -> str:
    from resiliparse.extract.html2text import extract_plain_text

    return str(extract_plain_text(page, main_content=True, alt_texts=False))


def by_trafilatura(page: str) -> str:
    import trafilatura

    return trafilatura.extract(page) or ""


def by_trafilatura_fast(page: str) -> str:
    import trafilatura

    return trafilatura.extract(page, fast=True) or ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    pages = {
        path.stem: (path.read_bytes().decode("utf-8", "replace"), (folder / "txt" / f"{path.stem}.txt"))
        for path in sorted((folder / "html").glob("*.html"))
    }
    pages = {name: pair for name, pair in pages.items() if pair[1].exists()}
    size = sum(len(page) for page, _ in pages.values())
    print(f"{len(pages)} pages, {size / len(pages) / 1000:.0f} KB each")
    print("| library | precision | recall | F1, mean | F1, worst | pages without text | pages/s |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    libraries: list[Callable[[str], str]] = [by_resiliparse, by_trafilatura, by_trafilatura_fast]
    for library in libraries:
        library(next(iter(pages.values()))[0])
        scores, empty, seconds = [], 0, 0.0
        for page, article in pages.values():
            began = time.process_time()
            text = library(page)
            seconds += time.process_time() - began
            found, wanted = grams(text), grams(article.read_text(encoding="utf-8"))
            common = (found & wanted).total()
            empty += not found
            precision, recall = common / max(found.total(), 1), common / max(wanted.total(), 1)
            scores.append((precision, recall, 2 * precision * recall / max(precision + recall, 1e-9)))
        means = [sum(column) / len(scores) for column in zip(*scores, strict=True)]
        name = library.__name__.removeprefix("by_")
        print(
            f"| {name} | {means[0]:.2f} | {means[1]:.2f} | {means[2]:.2f} | {min(s[2] for s in scores):.2f} "
            f"| {empty} | {len(pages) / seconds:.0f} |"
        )


if __name__ == "__main__":
    main()
