"""`stream-lsh evaluate`: what the engine finds, against exhaustive comparison or given pairs."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stream_lsh.cli.failures import complain
from stream_lsh.cli.group import Command
from stream_lsh.cli.limit import asked_of, excluded, limit_of
from stream_lsh.cli.options import NAME, json_option, load_settings, option, quiet_option, settings_options
from stream_lsh.cli.progress import progress_display
from stream_lsh.cli.running import chosen_inputs
from stream_lsh.embedded.temporary import temporary_folder
from stream_lsh.errors import UsageError
from stream_lsh.families.measure import CERTAIN
from stream_lsh.settings.model import Settings
from stream_lsh.wording import count, duration, ratio

if TYPE_CHECKING:
    from stream_lsh.evaluation.collection import Collection
    from stream_lsh.evaluation.exact import Pairs
    from stream_lsh.evaluation.report import Report

EXAMPLES = """
stream-lsh evaluate feed.jsonl --threshold 0.8
stream-lsh evaluate feed.jsonl.xz --limit 40000 --text-field title --text-field text --verify signature
stream-lsh evaluate products.jsonl --truth products.pairs.jsonl --threshold 0.3 --shingles words:1
stream-lsh evaluate stories.jsonl --labels story --threshold 0.5
stream-lsh evaluate stories.jsonl --labels story --measure tf-idf --time-field published
stream-lsh evaluate vectors.jsonl --measure cosine --dimensions 384 --threshold 0.9
"""
SETTINGS = (
    "measure", "threshold", "max_distance", "dimensions", "target_recall", "signature_size", "bands", "rows",
    "min_shingles", "sampling", "shingles", "bag", "normalize", "tokens", "verify",
    "id_field", "text_field", "time_field", "match_within", "set_field", "vector_field", "bits_field",
    "max_document_bytes", "shards", "max_bucket_rows", "memtable_documents",
)  # fmt: skip
LONG = 3.0  # seconds of comparing that are announced
WORKERS = 2
TRUTH, OUTPUT = "Truth", "Output"  # sections of the help


@click.command(
    cls=Command,
    examples=EXAMPLES,
    help="""Run the engine on INPUT, and compare the pairs that it reports with the true pairs.

The true pairs are all pairs at or above the threshold, found by comparing every document with every other one, with the
similarity of --measure. All earlier documents are compared, and all matches reported (--compare-with all,
--max-matches 0).

With --truth the true pairs are those of a file. It has tab-separated lines: id, id, and optionally the similarity. A
.jsonl file has lists of two ids, or objects with "older" and "newer" or "a" and "b". Pairs with a similarity below the
threshold do not count.

With --labels the groups of `dedup` (--compare-with kept) are compared with the labels in a field of the documents:
B-cubed precision and recall, and the adjusted Rand index. --measure tf-idf needs --labels, and uses --time-field if it
is given.""",
    params=[
        option(TRUTH, "--truth FILE", "file with the true pairs; also .gz, .xz, .zst"),
        option(TRUTH, "--labels FIELD", "field with the label of a document; groups are compared instead of pairs"),
        option(
            TRUTH, "--limit N", "read only the first N documents; the time grows with the square of N",
            click.IntRange(min=1),
        ),
        option(
            OUTPUT, "--show N", "missed and false pairs that are shown", click.IntRange(min=0), default=5,
            show_default=True,
        ),
        json_option(OUTPUT, "write the figures as one JSON object"),
        *settings_options(SETTINGS),
        quiet_option(),
    ],
)  # fmt: skip
@click.argument("inputs", nargs=-1, metavar="INPUT ...", type=NAME)
@click.pass_context
def evaluate(
    context: click.Context,
    /,
    inputs: tuple[str, ...],
    truth: str | None,
    labels: str | None,
    limit: int | None,
    show: int,
    as_json: bool,
    quiet: bool,
    **_: Any,
) -> None:
    if truth is not None and labels is not None:
        raise UsageError("--truth is for pairs, --labels for groups: give one of them")
    if labels is None and context.params.get("measure") == "tf-idf":
        raise UsageError("measure = tf-idf is measured by groups: give --labels FIELD, which names the true story")
    if context.params.get("measure") != "tf-idf" and context.params.get("time_field") is not None:
        raise UsageError("--time-field is for --measure tf-idf: times decide about nothing else that is measured here")
    settings = load_settings(context, defaults={"compare_with": "all" if labels is None else "kept"})
    names = chosen_inputs(inputs, "stream-lsh evaluate feed.jsonl")
    if labels is not None:
        from stream_lsh.cli.labelled import evaluate_groups

        evaluate_groups(settings, names, labels, limit, as_json)
        return
    # Here, because they take numba and RocksDB with them.
    from stream_lsh.evaluation.collection import collect, copied_settings
    from stream_lsh.evaluation.report import edges_of_distance, report

    with temporary_folder() as folder:
        copy = Path(folder) / "documents.jsonl"
        with copy.open("wb") as target:
            collection = collect(settings, names, limit, target)
        true, notes = (
            _given(truth, collection, settings) if truth is not None else _exhaustive(collection, settings, quiet)
        )
        found, seconds = _run(copied_settings(settings), copy, Path(folder) / "pairs.jsonl", quiet)
    inner = edges_of_distance(settings.curve) if settings.curve.by_distance else None
    figures = report(collection.compared, found, true, settings.curve, settings.least, inner)
    if as_json:
        click.echo(json.dumps(as_object(settings, collection, figures, notes, seconds, show), ensure_ascii=False))
        return
    for line in as_text(settings, collection, figures, notes, seconds, show, compare_with="given" if truth else "true"):
        click.echo(line)


def _exhaustive(collection: Collection, settings: Settings, quiet: bool) -> tuple[Pairs, dict[str, Any]]:
    from stream_lsh.evaluation.contained import Contained, EveryShare
    from stream_lsh.evaluation.exact import AllPairs, Exhaustive, Ranked
    from stream_lsh.evaluation.items import EveryPair
    from stream_lsh.evaluation.lists import EveryList, Lists

    workers = min(WORKERS, os.cpu_count() or 1)
    every: Exhaustive
    if isinstance(collection.compared, Ranked):
        every = AllPairs(collection.compared, settings.threshold, workers)
    elif isinstance(collection.compared, Lists):
        every = EveryList(collection.compared, settings.least)
    elif isinstance(collection.compared, Contained):
        every = EveryShare(collection.compared, settings.threshold)
    else:
        every = EveryPair(collection.compared, settings.least)
    expected = every.seconds()
    began = time.perf_counter()
    due = began + LONG

    def progress(done: int, total: int) -> None:
        nonlocal due
        now = time.perf_counter()
        if now > due and done < total and not quiet:
            due = now + 10
            left = (now - began) * (total - done) / done
            complain(f"compared {done:,} of {count(total, 'document')}, about {duration(left)} left")

    if expected > LONG and not quiet:
        hint = "; --limit N takes the first N" if expected > 60 else ""
        complain(f"comparing {count(len(collection), 'document')} exhaustively: about {duration(expected)}{hint}")
    pairs = every.run(progress)
    return pairs, {"truth": "exhaustive", "truth_seconds": round(time.perf_counter() - began, 3)}


def _given(name: str, collection: Collection, settings: Settings) -> tuple[Pairs, dict[str, Any]]:
    import numpy as np

    from stream_lsh.evaluation.exact import Pairs
    from stream_lsh.evaluation.truth import read_pairs

    given, unknown = read_pairs(name, collection.ids)
    true = collection.compared.similarities(given.first, given.second)
    apart = collection.scopes[given.first] != collection.scopes[given.second]
    differ = ~apart & (np.abs(given.similarity - true) > 1e-6)  # false where none is given: NaN compares so
    # A pair without a similarity is a label: the two belong together, however similar the texts are.
    low = given.similarity < settings.least
    kept = np.flatnonzero(~low & ~apart)
    notes = {
        "truth": name,
        "unknown_documents": unknown,
        "below_threshold_in_file": int(low.sum()),
        "not_to_match": int((apart & ~low).sum()),
        "different_similarity": int(differ.sum()),
    }
    return Pairs(given.first[kept], given.second[kept], true[kept]), notes


def _run(settings: Settings, copy: Path, target: Path, quiet: bool) -> tuple[Pairs, float]:
    """The pairs that the engine reports for the copied documents, and the seconds it took."""
    import numpy as np
    import orjson

    from stream_lsh.embedded.job import Job
    from stream_lsh.evaluation.exact import Pairs

    job = Job(settings, [str(copy)], {"pairs": str(target)}, None)
    began = time.perf_counter()
    with progress_display(quiet=quiet, writes_standard_output=False) as progress:
        job.run(progress)
    seconds = time.perf_counter() - began
    first, second, similarities = [], [], []
    with target.open("rb") as lines:
        for line in lines:
            pair = orjson.loads(line)
            first.append(pair["older"])
            second.append(pair["newer"])
            similarities.append(pair["similarity"])
    return Pairs(np.array(first, np.int64), np.array(second, np.int64), np.array(similarities, np.float64)), seconds


def as_object(
    settings: Settings, collection: Collection, report: Report, notes: dict[str, Any], seconds: float, show: int
) -> dict[str, Any]:
    """The report for machines; a ratio without anything to take it of is null."""
    quality = report.quality
    return {
        "documents": len(collection),
        "rejected": dict(collection.rejected),
        "repeated_ids": collection.repeated,
        **asked_of(settings),
        **(settings.banding._asdict() if settings.measure != "containment" else {}),
        **({"shingles": settings.shingles} if settings.measure in ("jaccard", "containment") else {}),
        "verify": settings.verify,
        **notes,
        "true_pairs": quality.truth,
        "found_pairs": quality.found,
        "correct_pairs": quality.correct,
        "recall": quality.recall,
        "precision": quality.precision,
        "f1": quality.f1,
        "expected_recall": report.expected_recall,
        "true_pairs_below_threshold": report.below_threshold,
        "mean_similarity_error": report.mean_error,
        "largest_similarity_error": report.largest_error,
        "buckets": [
            {
                "from": bucket.low, "to": bucket.high,
                "true_pairs": bucket.quality.truth, "found_pairs": bucket.quality.found,
                "correct_pairs": bucket.quality.correct,
                "recall": bucket.quality.recall, "precision": bucket.quality.precision, "expected_recall": expected,
            }
            for bucket, expected in zip(report.buckets, report.expected, strict=True)
        ],
        "missed": list(_named(collection, report.missed, show)),
        "false": list(_named(collection, report.false, show)),
        "engine_seconds": round(seconds, 3),
    }  # fmt: skip


def _named(collection: Collection, pairs: Pairs, show: int) -> Iterator[dict[str, Any]]:
    for place in range(min(show, len(pairs))):
        older, newer = sorted((int(pairs.first[place]), int(pairs.second[place])))
        yield {
            "older": collection.name(older),
            "newer": collection.name(newer),
            "similarity": round(float(pairs.similarity[place]), 6),
        }


def as_text(
    settings: Settings,
    collection: Collection,
    report: Report,
    notes: dict[str, Any],
    seconds: float,
    show: int,
    *,
    compare_with: str,
) -> Iterator[str]:
    """The report for people."""
    quality = report.quality
    rate = f", {len(collection) / seconds:,.0f} a second" if seconds > 0 else ""
    yield f"{count(len(collection), 'document')}, compared by the engine in {duration(seconds)}{rate}"
    yield from excluded(collection.rejected, collection.repeated)
    within = ", ".join(settings.match_within)
    for name, what in (
        ("unknown_documents", "left out because a document is missing"),
        ("below_threshold_in_file", "left out because they are below the threshold"),
        ("not_to_match", f"left out because they differ in a field to match within ({within})"),
        ("different_similarity", "with another similarity than by these shingles"),
    ):
        if notes.get(name):
            yield f"pairs of the truth {what}: {notes[name]:,}"
    yield ""
    parts = {"hamming": "keys of {} blocks", "levenshtein": "pieces"}.get(settings.measure, "bands of {} rows")
    keys = f"{settings.banding.bands} {parts.format(settings.banding.rows)}"
    if settings.measure == "containment":
        keys = f"one shingle in {settings.sampled} is a key"
    yield f"{limit_of(settings)}, {keys}"
    yield f"  recall     {ratio(quality.recall)}   {quality.correct:,} of {quality.truth:,} {compare_with} pairs found"
    yield f"  precision  {ratio(quality.precision)}   {quality.false:,} of {quality.found:,} pairs reported are false"
    yield f"  F1         {ratio(quality.f1)}"
    at_least = f", of {settings.min_shingles} shingles" if settings.measure == "containment" else ""
    if report.expected_recall is not None:
        yield f"  expected   {ratio(report.expected_recall)}   recall that the curve predicts for these pairs{at_least}"
    if report.below_threshold:
        yield f"  {report.below_threshold:,} of the {compare_with} pairs are less similar than the threshold: a lower"
        yield "  threshold or other shingles can find them"
    if report.largest_error is not None and report.largest_error > 1e-6:
        errors = f"{report.mean_error:.4f} on average, {report.largest_error:.4f} at most"
        yield f"  the reported similarities have an error of {errors};"
        yield "  it changes the result for pairs near the threshold; --verify exact has none"
    yield ""
    curve = settings.curve
    title = "distance" if curve.by_distance else "true similarity"
    yield f"  {title:<15}  {'pairs':>9}  {'found':>9}  {'recall':>8}  {'expected':>8}  {'precision':>9}"
    for bucket, expected in zip(report.buckets, report.expected, strict=True):
        part = bucket.quality
        name = f"{bucket.low:.4g} to {bucket.high:.4g}"
        if curve.measure in CERTAIN:
            low, high = (round(curve.apart(similarity), 9) for similarity in (bucket.high, bucket.low))
            name = " to ".join(str(steps) for steps in sorted({math.ceil(low), math.floor(high)}))
        elif curve.by_distance:
            name = " to ".join(f"{curve.value_of(similarity):.4g}" for similarity in (bucket.high, bucket.low))
        yield (
            f"  {name:<15}  {part.truth:>9,}  {part.found:>9,}  {ratio(part.recall):>8}  {ratio(expected):>8}"
            f"  {ratio(part.precision):>9}"
        )
    for title, pairs in (("missed, most similar first", report.missed), ("false, least similar first", report.false)):
        if len(pairs) and show:
            yield ""
            yield f"{title} ({min(show, len(pairs)):,} of {len(pairs):,})"
            for named in _named(collection, pairs, show):
                yield f"  {named['similarity']:.4f}  {named['older']}  {named['newer']}"
