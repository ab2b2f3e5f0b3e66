"""Why the defaults are what they are: k, and K, b and r, measured on real texts. Writes Markdown.

    python -m bench.defaults > defaults.md          (half a minute, 2 GB of memory)

All similarities are exact Jaccard of shingle sets, found by exhaustive comparison; no hashing but that of the shingles.
"""

from __future__ import annotations

import argparse
import json
import lzma
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.corpora import default_data
from stream_lsh.evaluation.advice import background_of
from stream_lsh.evaluation.exact import AllPairs, Ranked
from stream_lsh.evaluation.sample import Sample, draw
from stream_lsh.families.curve import Curve
from stream_lsh.families.signer import Signed, Signer
from stream_lsh.families.tuning import alternatives, choose, component_bytes
from stream_lsh.settings.model import Settings
from stream_lsh.wording import few, percent

DOCUMENTS = 1_000_000
THRESHOLDS = (0.5, 0.8)
WORDS = ("words:1/3", "words:2/5", "words:3/8", "words:4/11")
CHARACTERS = ("words:3/2", "words:3/4", "words:3/6", "words:3/8", "words:3/10")
Record = dict[str, Any]
IsPair = Callable[[Record, Record], bool]


@dataclass(frozen=True)
class Texts:
    """A collection: its documents as records, and one text each."""

    name: str
    records: list[Record]
    fields: tuple[str, ...]

    def sample(self, documents: int | None = None) -> Sample:
        texts = [" ".join(r[field] for field in self.fields).encode("utf-8", "surrogatepass") for r in self.records]
        return draw(texts, documents or len(texts), 1 << 40)

    def sign(self, settings: Settings) -> Signed:
        sample = self.sample()
        return Signer(settings.signing).sign(sample.texts, sample.ends, want_shingles=True)


def read(path: Path, fields: tuple[str, ...], limit: int | None = None) -> Texts:
    """The first documents of a file of JSON lines."""
    records: list[Record] = []
    with lzma.open(path, "rb") if path.suffix == ".xz" else path.open("rb") as lines:
        for line in lines:
            if len(records) == limit:
                break
            records.append(json.loads(line))
    return Texts(path.name.split(".")[0], records, fields)


def table(head: list[str], rows: Iterator[list[str]]) -> Iterator[str]:
    """A Markdown table; the first column to the left, the others to the right."""
    yield "| " + " | ".join(head) + " |"
    yield "|---" + "|---:" * (len(head) - 1) + "|"
    for row in rows:
        yield "| " + " | ".join(row) + " |"
    yield ""


def lengths_of_shingles(texts: Texts, shingles: tuple[str, ...]) -> Iterator[list[str]]:
    """How much documents share at each k, and what that costs with the bands chosen for a threshold."""
    for name in shingles:
        found = background_of(texts.sample(10_000), Settings(shingles=name).signing)
        row = [f"{texts.name} {name}", percent(found.typical_chance()), f"{found.mean(0.5):.5f}"]
        for threshold in THRESHOLDS:
            curve = Curve("jaccard", choose(threshold, 0.999), threshold)
            cost = curve.false_candidates(DOCUMENTS, found.histogram())
            row += [f"{found.alike(threshold):,}", few(cost)]
        yield row


def labelled(texts: Texts, shingles: tuple[str, ...], considered: IsPair, same: IsPair) -> Iterator[list[str]]:
    """How well a threshold on Jaccard tells the pairs that people say belong together."""
    records = texts.records
    pairs = [(i, j) for j in range(len(records)) for i in range(j) if considered(records[i], records[j])]
    truth = np.array([same(records[i], records[j]) for i, j in pairs])
    places = {pair: number for number, pair in enumerate(pairs)}
    for name in shingles:
        signed = texts.sign(Settings(shingles=name))
        every = AllPairs(Ranked.of(signed.shingles, signed.offsets), 0.02).run()
        similarity = np.zeros(len(pairs))
        for i, j, jaccard in zip(every.first.tolist(), every.second.tolist(), every.similarity.tolist(), strict=True):
            if (i, j) in places:
                similarity[places[i, j]] = jaccard
        row = [f"{texts.name} {name}", f"{truth.sum():,}"]
        for threshold in THRESHOLDS:
            row += [*_recall_precision(truth, similarity >= threshold)]
        best = max((step / 100 for step in range(2, 96)), key=lambda t: _f1(truth, similarity >= t))
        yield [*row, f"{best:.2f}", *_recall_precision(truth, similarity >= best)]


def _recall_precision(truth: NDArray[np.bool_], found: NDArray[np.bool_]) -> tuple[str, str]:
    correct = int((truth & found).sum())
    return percent(correct / truth.sum()), percent(correct / found.sum()) if found.any() else "-"


def _f1(truth: NDArray[np.bool_], found: NDArray[np.bool_]) -> float:
    return float(2 * (truth & found).sum() / (truth.sum() + found.sum()))


def rewritten(texts: Texts, shingles: tuple[str, ...]) -> Iterator[list[str]]:
    """Median similarity of an original to what was made of it, by how far it was changed."""
    originals = {r["task"]: i for i, r in enumerate(texts.records) if r["category"] == "orig"}
    for name in shingles:
        signed = texts.sign(Settings(shingles=name))
        every = AllPairs(Ranked.of(signed.shingles, signed.offsets), 0.001).run()
        known = {
            (i, j): s
            for i, j, s in zip(every.first.tolist(), every.second.tolist(), every.similarity.tolist(), strict=True)
        }
        row = [name]
        for category in ("cut", "light", "heavy", "non"):
            pairs = [(originals[r["task"]], i) for i, r in enumerate(texts.records) if r["category"] == category]
            row.append(f"{np.median([known.get((min(pair), max(pair)), 0.0) for pair in pairs]):.3f}")
        yield row


def bands_and_rows(texts: Texts) -> Iterator[list[str]]:
    """The bands and rows around the chosen ones, at both thresholds."""
    found = background_of(texts.sample(10_000), Settings().signing)
    for threshold in THRESHOLDS:
        chosen = choose(threshold, 0.999)
        for banding in alternatives(threshold, 0.999, chosen):
            cost = few(Curve("jaccard", banding, threshold).false_candidates(DOCUMENTS, found.histogram()))
            octets = banding.signature_size * component_bytes(banding.rows)
            mark = " **chosen**" if banding == chosen else ""
            shape = f"{threshold}: {banding.bands} x {banding.rows}{mark}"
            yield [shape, f"{banding.signature_size}", f"{octets}", percent(1 - banding.probability(threshold)), cost]


def sizes_of_signatures(texts: Texts) -> Iterator[list[str]]:
    """What `--verify signature` makes of the pairs, by K: the estimate against the true similarity."""
    signed = texts.sign(Settings())
    pairs = AllPairs(Ranked.of(signed.shingles, signed.offsets), 0.3, workers=2).run()
    places, ends = np.unique(np.concatenate([pairs.first, pairs.second]), return_inverse=True)
    older, newer = ends.reshape(2, -1)
    involved = Texts(texts.name, [texts.records[place] for place in places.tolist()], texts.fields)
    for size in (64, 128, 256, 512, 1024, 1600):
        draws = []
        for other in range(size, size + 64, 8):
            signatures = involved.sign(Settings(signature_size=other, bands=10, rows=3)).signatures
            agree = (signatures[older] == signatures[newer]).mean(axis=1)
            figures = [np.abs(agree - pairs.similarity).mean()]
            for threshold in THRESHOLDS:
                truth, found = pairs.similarity >= threshold, agree >= threshold
                figures += [(truth & found).sum() / truth.sum(), (truth & found).sum() / found.sum()]
            draws.append(figures)
        mean = np.mean(draws, axis=0)
        lowest = np.min(draws, axis=0)
        cells = [f"{percent(m)} ({percent(low)})" for m, low in zip(mean[1:], lowest[1:], strict=True)]
        yield [str(size), f"{mean[0]:.3f}", *cells]


def report(data: Path) -> Iterator[str]:
    """The whole text, line by line."""
    posts = read(data / "posts-120k.jsonl.xz", ("title", "text"), 40_000)
    terms = read(data / "terms-3k.jsonl.xz", ("text",), 1000)
    news = read(data / "news-zh.jsonl.xz", ("text",))
    stories = read(data / "stories.jsonl", ("title", "text"))
    rewrites = read(data / "rewrites.jsonl", ("text",))
    products = read(data / "products.jsonl", ("title",))
    given = {(p["older"], p["newer"]) for p in map(json.loads, (data / "products.pairs.jsonl").open())}

    yield "## Length of the shingles\n"
    yield "`chance`: share of a document's shingles that a typical other document has (least similar 90 % of pairs;"
    yield "MMDS 3.2.2). `mean`: similarity of pairs below 0.5. `false`: expected false candidates a document among"
    yield "1,000,000, with the bands chosen for the threshold at recall 0.999. Up to 10,000 documents, all pairs.\n"
    head = ["texts, shingles", "chance", "mean", "pairs >= 0.5", "false at 0.5", "pairs >= 0.8", "false at 0.8"]

    def by_length() -> Iterator[list[str]]:
        for texts in (posts, terms, stories, rewrites, products):
            yield from lengths_of_shingles(texts, WORDS)
        yield from lengths_of_shingles(news, CHARACTERS)

    yield from table(head, by_length())
    yield "## What people say belongs together\n"
    yield "Recall and precision of a threshold on exact Jaccard; at the end the threshold with the best F1. stories:"
    yield "the same story. rewrites: original and `cut` or `light` rewriting. products: one product in two shops.\n"
    head = [
        "texts, shingles",
        "pairs",
        "recall 0.5",
        "precision",
        "recall 0.8",
        "precision",
        "best at",
        "recall",
        "precision",
    ]

    def by_label() -> Iterator[list[str]]:
        yield from labelled(stories, WORDS, lambda a, b: True, lambda a, b: bool(a["story"] == b["story"]))
        yield from labelled(rewrites, WORDS, _with_original, _lightly_rewritten)
        yield from labelled(
            products, WORDS, lambda a, b: a["source"] != b["source"],
            lambda a, b: (a["id"], b["id"]) in given or (b["id"], a["id"]) in given,
        )  # fmt: skip

    yield from table(head, by_label())
    yield "Median similarity of an original to its rewritings:\n"
    yield from table(["shingles", "cut", "light", "heavy", "non"], rewritten(rewrites, WORDS))
    yield "## Bands and rows\n"
    yield "On posts, words:3/8; recall 0.999 at the threshold. `octets`: of a signature.\n"
    yield from table(["threshold: bands x rows", "K", "octets", "missed", "false candidates"], bands_and_rows(posts))
    yield "## Size of the signature\n"
    yield "The estimate from K components for all pairs of 40,000 posts with Jaccard >= 0.3, as `--verify signature`"
    yield "uses it: the mean, and in brackets the lowest, of 8 signatures of K to K + 56 components. 474 pairs are"
    yield ">= 0.5, 167 are >= 0.8: a pair is 0.2 % or 0.6 %.\n"
    head = ["K", "mean error", "recall 0.5", "precision", "recall 0.8", "precision"]
    yield from table(head, sizes_of_signatures(posts))


def _with_original(a: Record, b: Record) -> bool:
    return "orig" in (a["category"], b["category"]) and a["category"] != b["category"]


def _lightly_rewritten(a: Record, b: Record) -> bool:
    return bool(a["task"] == b["task"]) and bool({a["category"], b["category"]} & {"cut", "light"})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, default=default_data(), help="folder of the real data")
    for line in report(parser.parse_args().data):
        print(line, flush=True)


if __name__ == "__main__":
    main()
