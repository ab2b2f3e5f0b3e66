"""Crawls beside what a user would write: CPU time a page of `dedup crawl.warc.gz`, and of a program of warcio,
resiliparse and datasketch.

The pages are posts, each in a page with menus and scripts; every fifth comes again with another line. Both read the
same compressed file, find the main text, and write the texts without near-duplicates as JSON lines. They take turns in
one run. A WET file has the texts themselves. The peer hashes with mmh3, in memory; stream_lsh makes a temporary index.
It needs `pip install '.[bench,crawl]'`.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import Any

import orjson

from bench import report
from bench.corpora import corpus, unpack
from bench.systems import datasketch
from stream_lsh import Settings, prepare
from stream_lsh.embedded.job import Job

EXAMPLE = "python -m bench.crawls --documents 5000 --rounds 5 --out results"
COLUMNS = {
    "input": "input", "system": "system", "processor": "CPU µs/page", "ratio": "stream_lsh = 1", "kept": "kept",
}  # fmt: skip
OURS, PEER = "stream_lsh", "warcio, resiliparse, datasketch"
MENU = "".join(f"<li><a href='/section/{i}'>Section number {i}</a></li>" for i in range(120))
SCRIPT = "".join(f"window.data[{i}] = {{'name': 'entry {i}', 'value': {i * i}}};\n" for i in range(300))


def page(title: str, text: str) -> bytes:
    """A page of 25 KB and a text."""
    paragraphs = "".join(f"<p>{part}</p>" for part in text.split("\n") if part)
    return (
        f"<html><head><title>{title}</title><script>{SCRIPT}</script></head><body><nav><ul>{MENU}</ul></nav>"
        f"<article><h1>{title}</h1>{paragraphs}</article><footer>Subscribe to our newsletter</footer></body></html>"
    ).encode("utf-8", "replace")


def write_crawls(folder: Path, posts: list[dict[str, Any]]) -> dict[str, Path]:
    """The posts as a WARC file and as a WET file. Returns their paths by the names of the inputs."""
    from warcio.statusandheaders import StatusAndHeaders
    from warcio.warcwriter import WARCWriter

    found = {"WARC": folder / "crawls.warc.gz", "WET": folder / "crawls.warc.wet.gz"}
    with found["WARC"].open("wb") as pages, found["WET"].open("wb") as texts:
        warc, wet = WARCWriter(pages, gzip=True), WARCWriter(texts, gzip=True)
        for i, post in enumerate(copy for n, one in enumerate(posts) for copy in [one] * (1 + (n % 5 == 0))):
            title, text, url = post["title"], f"{post['text']}\nRead {i} times", f"https://news.example/{i}"
            head = StatusAndHeaders("200 OK", [("Content-Type", "text/html; charset=utf-8")], protocol="HTTP/1.1")
            warc.write_record(
                warc.create_warc_record(url, "response", payload=BytesIO(page(title, text)), http_headers=head)
            )
            content = BytesIO(f"{title}\n{text}".encode("utf-8", "replace"))
            wet.write_record(wet.create_warc_record(url, "conversion", payload=content, warc_content_type="text/plain"))
    return found


def texts_of(path: Path) -> Iterator[str]:
    """The main texts in a crawl, as a user would read them."""
    from resiliparse.extract.html2text import extract_plain_text
    from warcio.archiveiterator import ArchiveIterator

    with path.open("rb") as crawl:
        for record in ArchiveIterator(crawl):
            if record.rec_type in ("response", "conversion"):
                text = record.content_stream().read().decode("utf-8", "replace")
                yield extract_plain_text(text, main_content=True) if record.rec_type == "response" else text


def by_peer(path: Path, unique: Path) -> int:
    """Write the unique texts. Returns their number."""
    seen: list[str] = []

    def noted() -> Iterator[str]:
        for text in texts_of(path):
            seen.append(text)
            yield text

    find = datasketch(Settings().threshold, "regex", unique=True, goes=lambda newer: None, fast_hash=True)
    dropped = {newer for _, newer in find(noted())}
    kept = [text for newer, text in enumerate(seen) if newer not in dropped]
    unique.write_bytes(b"".join(orjson.dumps({"text": text}) + b"\n" for text in kept))
    return len(kept)


def by_ours(path: Path, unique: Path) -> int:
    """As `by_peer`."""
    unique.unlink(missing_ok=True)
    Job(Settings(), [str(path)], {"unique": str(unique)}).run()
    return unique.read_bytes().count(b"\n")


def main() -> None:
    parser = report.parser("crawls", __doc__.splitlines()[0], EXAMPLE)
    parser.add_argument("--documents", type=int, default=5_000, help="posts, without the copies (%(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each system (%(default)s)")
    given = parser.parse_args()
    where = report.environment(("warcio", "resiliparse", "datasketch", "mmh3"))
    with unpack(corpus("posts-120k"), given.data, given.work).open("rb") as lines:
        posts = [orjson.loads(line) for line in islice(lines, given.documents)]
    crawls, pages = write_crawls(given.work, posts), len(posts) + -(-len(posts) // 5)
    prepare()
    systems: dict[str, Callable[[Path, Path], int]] = {OURS: by_ours, PEER: by_peer}
    rows: list[dict[str, Any]] = []
    for name, path in crawls.items():
        times: dict[str, list[float]] = {system: [] for system in systems}
        kept = dict[str, int]()
        for number in range(given.rounds + 1):  # the first one compiles what is not compiled, and does not count
            for system, run in systems.items():
                begin = time.process_time()
                kept[system] = run(path, given.work / "crawls-unique.jsonl")
                times[system] += [1e6 * (time.process_time() - begin) / pages] if number else []
        ours = statistics.median(times[OURS])
        for system, taken in times.items():
            rows.append(
                {
                    "kind": "crawls", "input": name, "system": system, "processor": statistics.median(taken),
                    "ratio": statistics.median(taken) / ours, "kept": kept[system],
                }
            )  # fmt: skip
    print(report.table(COLUMNS, rows))
    report.write(given.out, "crawls", where, rows, report.table(COLUMNS, rows, markdown=True))


if __name__ == "__main__":
    main()
