"""The demo: write feeds, run the real job on them, compare what it found with the truth."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

from stream_lsh.demo.display import Run
from stream_lsh.demo.feed import TEXT_FIELDS, Feed, make_feed
from stream_lsh.demo.score import Truth, find_truth, score
from stream_lsh.demo.spread import read_lines, run_spread, spread_settings
from stream_lsh.embedded.job import Job
from stream_lsh.embedded.report import Progress
from stream_lsh.index.kernel import compiling
from stream_lsh.settings.model import Settings

WARM_UP = 300  # documents
OUTPUTS = ("unique", "pairs", "verdicts", "dead_letters")


def run_demo(folder: Path, documents: int, seed: int, progress: Callable[[Progress], None], *, kept: bool) -> Run:
    """Write feed.jsonl, labels.jsonl, truth.tsv and article.txt to `folder`, and what the job makes of the feed; and to
    `folder`/spread a story that spreads. Raises what the job does."""
    settings = Settings.model_validate({"text_field": TEXT_FIELDS})
    compiling.begin(spread_settings(settings))
    feed = make_feed(documents, seed)
    with (folder / "feed.jsonl").open("wb") as file:
        file.writelines(feed.lines())
    write_labels(folder / "labels.jsonl", feed)
    # Before the first job: the kernels for it are compiled while another process compiles those of the index.
    truth = find_truth(feed, settings)
    # The first run of the program compiles; a job with some documents of each kind keeps that out of the speed shown.
    _warm_up(folder, feed, settings)
    outputs = {name: str(folder / f"{name.replace('_', '-')}.jsonl") for name in OUTPUTS}
    summary = Job(settings, [str(folder / "feed.jsonl")], outputs, folder / "index").run(progress)
    _write_truth(folder / "truth.tsv", feed, truth)
    (folder / "article.txt").write_text(_article(feed), encoding="utf-8")
    verdicts = read_lines(outputs["verdicts"])
    return Run(
        feed, verdicts, truth, score(feed, truth, verdicts), settings.threshold, summary.seconds,
        folder if kept else None, run_spread(folder / "spread", seed, settings),
    )  # fmt: skip


def _warm_up(folder: Path, feed: Feed, settings: Settings) -> None:
    few, state = folder / "warm-up.jsonl", folder / "warm-up"
    few.write_bytes(b"".join(list(feed.lines())[:WARM_UP]))
    try:
        Job(settings, [str(few)], {}, state).run(lambda _: None)
    finally:
        few.unlink()
        shutil.rmtree(state, ignore_errors=True)


def write_labels(path: Path, feed: Feed) -> None:
    """The truth of a feed: of every line what was done to it, and of which story it is."""
    with path.open("w", encoding="utf-8") as file:
        for number, entry in enumerate(feed.entries, 1):
            label = {"line": number, "id": entry.id, "kind": entry.kind, "parent": entry.parent, "story": entry.story}
            file.write(json.dumps(label) + "\n")


def _write_truth(path: Path, feed: Feed, truth: Truth) -> None:
    with path.open("w", encoding="utf-8") as file:
        for old, new, jaccard in zip(truth.older.tolist(), truth.newer.tolist(), truth.jaccard.tolist(), strict=True):
            file.write(f"{feed.entries[old].id}\t{feed.entries[new].id}\t{jaccard:.6f}\n")


def _article(feed: Feed) -> str:
    """The text of a document that has near-duplicates in the feed, to query the index with."""
    parents = {entry.parent for entry in feed.entries if entry.kind in ("reprint", "newer figures")}
    document = next(entry.document for entry in feed.entries if entry.id in parents)
    return f"{document['title']}\n{document['text']}\n"
