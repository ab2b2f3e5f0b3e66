"""`stream-lsh tune`: K, b and r for a threshold and a recall, what they cost on a sample, and whether k is right."""

from __future__ import annotations

import json
import math
import sys
import textwrap
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stream_lsh.cli import tune_items, tune_quotations
from stream_lsh.cli.curve import measured_plot, terminal_plot, write_measured_plot, write_plot
from stream_lsh.cli.group import Command, Option
from stream_lsh.cli.image import check_plot
from stream_lsh.cli.options import load_settings, settings_options, with_options
from stream_lsh.errors import UsageError
from stream_lsh.families.likeness import unused
from stream_lsh.families.tuning import Banding, alternatives, component_bytes, false_candidates
from stream_lsh.settings.model import Settings
from stream_lsh.wording import count, size

if TYPE_CHECKING:
    from stream_lsh.evaluation.advice import Length
    from stream_lsh.evaluation.sample import Background, Sample

EXAMPLES = """
stream-lsh tune --threshold 0.8 --recall 0.999
stream-lsh tune feed.jsonl.gz --threshold 0.5 --expected-docs 5000000 --plot curve.png
stream-lsh tune feed.jsonl --text-field title --text-field body --shingles chars:9
stream-lsh tune --likeness cosine --dimensions 384 --threshold 0.9
stream-lsh tune --likeness quotations --threshold 0.5 --least-shingles 20
"""
SETTINGS = (
    "likeness", "threshold", "distance", "dimensions", "recall", "signature_size", "bands", "rows",
    "least_shingles", "sampling", "shingles", "bag", "normalize", "tokens",
    "verify", "id_field", "text_field", "set_field", "vector_field", "bits_field", "max_document_bytes",
)  # fmt: skip
SIMILARITIES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
USUAL_DOCUMENTS = 1_000_000
SAMPLE_BYTES = 32 * 2**20
ADVICE_DOCUMENTS = 2000
"""Shingle lengths are compared on so many documents: two million pairs tell them apart, and it takes a second."""


@click.command(
    cls=Command,
    examples=EXAMPLES,
    help="""Choose the signature size K, bands b and rows r (MMDS 3.4) for a threshold and the recall wanted at it.

Prints the curve P(candidate | s) = 1 - (1 - s^r)^b, what lies beside the choice, and the settings as TOML
for --config. With INPUT (JSON lines, also compressed, a folder, or -) also what a sample of it says: false candidates a
document among --expected-docs documents, and whether the shingles have the right length.

With --likeness cosine, euclidean or sets the curve is over the cosine, the distance or the similarity of weights, with
what one component distinguishes, (d1, d2, p1, p2), before and after amplification (MMDS 3.6). Of rows of bits (hamming)
and short texts (edit) it says which keys find all within the distance, and whom else they meet. A sample has at most
4,000 of them.""",
)
@click.argument("inputs", nargs=-1, metavar="[INPUT ...]")
@with_options(
    [
        Option(
            ["--expected-docs"], type=click.IntRange(min=1), metavar="N", section="Sample",
            help="documents the index will hold [default: those of the INPUT; 1,000,000 without]",
        ),
        Option(
            ["--sample"], type=click.IntRange(min=2), default=10_000, metavar="N", section="Sample", show_default=True,
            help="documents of the INPUT to measure, drawn evenly; at most 32 MiB of text",
        ),
        Option(
            ["--limit"], type=click.IntRange(min=1), metavar="N", section="Sample",
            help="read only the first N documents of the INPUT",
        ),
        Option(
            ["--plot"], type=click.Path(path_type=Path, dir_okay=False), metavar="FILE.png|.svg", section="Output",
            help="write the curve as an image",
        ),
        Option(
            ["--json", "as_json"], is_flag=True, section="Output",
            help="of a likeness other than copies: write the figures as one JSON object",
        ),
        *settings_options(SETTINGS),
    ]
)  # fmt: skip
@click.pass_context
def tune(
    context: click.Context,
    /,
    inputs: tuple[str, ...],
    expected_docs: int | None,
    sample: int,
    limit: int | None,
    plot: Path | None,
    as_json: bool,
    **_: Any,
) -> None:
    settings = load_settings(context)
    if plot is not None:
        check_plot(plot)
    if settings.likeness == "quotations":
        _tune_quotations(settings, inputs, sample, limit, plot, as_json)
        return
    if settings.likeness == "stories":
        raise UsageError(
            "likeness = stories has nothing to tune but its threshold, and no curve: stream-lsh evaluate --likeness "
            "stories --labels FIELD measures it on labelled documents"
        )
    if settings.likeness != "copies":
        _tune_items(settings, inputs, expected_docs, min(sample, tune_items.MOST_ITEMS), limit, plot, as_json)
        return
    if as_json:
        raise UsageError("--json is for another likeness than copies; leave it out")
    drawn = found = None
    rejected: Counter[str] = Counter()
    if inputs:
        # Here, because it takes numba with it.
        from stream_lsh.evaluation.advice import measure

        drawn = _draw(settings, inputs, sample, limit, rejected)
        found = measure(drawn, settings.signing)
    documents = expected_docs or (drawn.seen if drawn is not None and drawn.seen else USUAL_DOCUMENTS)
    unicode = "utf" in (getattr(sys.stdout, "encoding", None) or "").lower()
    others = _others(settings)
    lines = [
        *_choice(settings),
        "",
        *_table(settings, found),
        "",
        "P(candidate) over similarity",
        *terminal_plot(settings.banding, settings.threshold, unicode=unicode),
        "",
        *_beside(settings, others, found, documents),
    ]
    for line in lines:
        click.echo(line if unicode else line.replace("±", "+-"))
    if drawn is not None and found is not None:
        for line in _sampled(settings, drawn, found, documents, rejected):
            click.echo(line)
    if plot is not None:
        write_plot(plot, settings.banding, settings.threshold, others, found)
        click.echo(f"\nThe curve is in {plot}.")
    click.echo("\nAs a file for --config:\n")
    for line in toml_lines(settings):
        click.echo(line)


def _tune_items(
    settings: Settings,
    inputs: tuple[str, ...],
    expected_docs: int | None,
    sample: int,
    limit: int | None,
    plot: Path | None,
    as_json: bool,
) -> None:
    """The same for vectors and rows of bits."""
    drawn = found = None
    rejected: Counter[str] = Counter()
    if inputs:
        drawn = _draw(settings, inputs, sample, limit, rejected)
        found = tune_items.measure(drawn, settings)
    documents = expected_docs or (drawn.seen if drawn is not None and drawn.seen else USUAL_DOCUMENTS)
    others = tune_items.others_of(settings)
    if plot is not None:
        write_measured_plot(plot, settings.curve, others, found)
    if as_json:
        click.echo(json.dumps(tune_items.as_object(settings, others, drawn, found, documents)))
        return
    unicode = "utf" in (getattr(sys.stdout, "encoding", None) or "").lower()
    lines = [
        *tune_items.choice(settings),
        "",
        *tune_items.table(settings.curve, found),
        "",
        f"P(candidate) over {'distance' if settings.curve.by_distance else 'cosine'}",
        *measured_plot(settings.curve, unicode=unicode),
        "",
        *tune_items.beside(settings.curve, others, found, documents),
    ]
    if drawn is not None and found is not None:
        lines += tune_items.sampled(settings, drawn, found, documents, rejected)
    if plot is not None:
        lines += ["", f"The curve is in {plot}."]
    for line in [*lines, "", "As a file for --config:", "", *toml_lines(settings)]:
        click.echo(line)


def _tune_quotations(
    settings: Settings, inputs: tuple[str, ...], sample: int, limit: int | None, plot: Path | None, as_json: bool
) -> None:
    """The same for quotations."""
    drawn, sizes = None, list[int]()
    rejected: Counter[str] = Counter()
    if inputs:
        drawn = _draw(settings, inputs, sample, limit, rejected)
        sizes = tune_quotations.sizes_of(drawn, settings)
    if plot is not None:
        others = [replace(settings.curve, shingles=n) for n in tune_quotations.lengths_of(settings)]
        write_measured_plot(plot, settings.curve, others, None)
    if as_json:
        click.echo(json.dumps(tune_quotations.as_object(settings, drawn, sizes)))
        return
    unicode = "utf" in (getattr(sys.stdout, "encoding", None) or "").lower()
    lines = [
        *tune_quotations.choice(settings),
        "",
        *tune_quotations.table(settings),
        "",
        f"P(candidate) over the share, of {settings.least_shingles} shingles",
        *measured_plot(settings.curve, unicode=unicode),
        "",
        *tune_quotations.beside(settings),
    ]
    if drawn is not None:
        lines += tune_quotations.sampled(settings, drawn, sizes, rejected)
    if plot is not None:
        lines += ["", f"The curve is in {plot}."]
    for line in [*lines, "", "As a file for --config:", "", *toml_lines(settings)]:
        click.echo(line)


def _draw(
    settings: Settings, inputs: tuple[str, ...], documents: int, limit: int | None, rejected: Counter[str]
) -> Sample:
    from stream_lsh.evaluation.reading import read_batches, texts_of
    from stream_lsh.evaluation.sample import draw

    def texts() -> Iterator[bytes]:
        number = 0
        for batch in read_batches(settings, inputs):
            rejected.update(rejection.reason for rejection in batch.rejected.values())
            for _, text in texts_of(batch):
                if number == limit:
                    return
                number += 1
                yield text

    return draw(texts(), documents, SAMPLE_BYTES)


def _others(settings: Settings) -> list[Banding]:
    """What the choice can be compared with: nothing, if bands and rows are both given."""
    return alternatives(settings.threshold, settings.recall, settings.banding)


def _choice(settings: Settings) -> list[str]:
    from stream_lsh.evaluation.shares import percent

    size_, bands, rows = settings.banding
    found = settings.banding.probability(settings.threshold)
    missed = 1 - found
    odds = f", 1 pair in {1 / missed:,.0f}" if missed > 1e-12 else ""
    error = math.sqrt(settings.threshold * (1 - settings.threshold) / size_)
    lines = [
        f"Threshold {settings.threshold:g}, recall {settings.recall:g}:",
        f"  K = {size_} components, of which b = {bands} bands of r = {rows} rows use {bands * rows}",
        f"  found at the threshold   {percent(found)}",
        f"  missed at the threshold  {percent(missed)}{odds}",
        f"  (1/b)^(1/r)              {settings.banding.halfway:.3f}  (the curve is steepest around it)",
        f"  estimated similarity     ± {error:.3f} at the threshold (standard error)",
    ]
    if found < settings.recall - 1e-12:
        lines.append(
            f"  The bands and rows given miss the recall of {settings.recall:g}; leave one of them out to meet it."
        )
    return lines


def _table(settings: Settings, found: Background | None) -> list[str]:
    from stream_lsh.evaluation.shares import odds, percent

    head = f"  {'similarity':>10}  {'found':>10}  {'missed':>10}"
    lines = [head + (f"  {'pairs of sample >=':>18}" if found is not None else "")]
    for similarity in sorted({*SIMILARITIES, settings.threshold}):
        probability = settings.banding.probability(similarity)
        line = f"  {similarity:>10.4g}  {percent(probability):>10}  {percent(1 - probability):>10}"
        if found is not None:
            line += f"  {odds(found.above(similarity), found.pairs):>18}"
        lines.append(line + ("  <- threshold" if similarity == settings.threshold else ""))
    return lines


def _beside(settings: Settings, others: list[Banding], found: Background | None, documents: int) -> list[str]:
    from stream_lsh.evaluation.shares import few, percent

    head = f"  {'rows':>4}  {'bands':>5}  {'K':>4}  {'signature':>9}  {'found':>8}  {'at s=0.3':>8}"
    lines = [
        f"Alternatives{f' (false candidates a document among {documents:,})' if found is not None else ''}",
        head + (f"  {'false candidates':>16}" if found is not None else ""),
    ]
    for banding in others:
        octets = banding.signature_size * component_bytes(banding.rows)
        line = (
            f"  {banding.rows:>4}  {banding.bands:>5}  {banding.signature_size:>4}  {size(octets):>9}"
            f"  {percent(banding.probability(settings.threshold)):>8}  {percent(banding.probability(0.3)):>8}"
        )
        if found is not None:
            line += f"  {few(false_candidates(banding, documents, found.histogram(), settings.threshold)):>16}"
        lines.append(line + ("  <- chosen" if banding == settings.banding else ""))
    return lines


def _sampled(
    settings: Settings, drawn: Sample, found: Background, documents: int, rejected: Counter[str]
) -> Iterator[str]:
    """What the sample says: false candidates, and the length of the shingles."""
    from stream_lsh.evaluation.advice import advise, continuous_share, current_length, measure_lengths
    from stream_lsh.evaluation.shares import few, percent

    yield ""
    yield f"Sample: {count(len(drawn), 'document')} of {drawn.seen:,}, {count(found.pairs, 'pair')}"
    if rejected:
        reasons = ", ".join(f"{number:,} {reason}" for reason, number in rejected.most_common())
        yield f"  left out because they cannot be used: {reasons}"
    if settings.match_within:
        yield f"  as if all could match: fewer can within {', '.join(settings.match_within)}"
    if found.pairs == 0:
        yield "  Too few documents to say anything about false candidates."
        return
    cost = false_candidates(settings.banding, documents, found.histogram(), settings.threshold)
    yield f"  mean similarity below the threshold  {found.mean(settings.threshold):.5f}"
    yield f"  false candidates a document          {few(cost)}  (among {documents:,} documents)"
    # A rate that no pair of the sample shows can still be 3 / pairs (the rule of three, 95 %).
    unseen = 3 / found.pairs * documents
    if unseen >= 1:
        yield f"  pairs too rare for this sample could add {few(unseen)} (95 %): see a larger --sample"
    part = drawn.first(ADVICE_DOCUMENTS)
    share = continuous_share(part)
    lengths: list[Length] = []
    for length in measure_lengths(part, settings, documents):
        if not lengths:
            yield ""
            yield f"Length of the shingles, on {count(len(part), 'document')}"
            yield (f"  {'shingles':<11}  {'in another':>10}  {'mean similarity':>15}  {'false candidates':>16}")
        lengths.append(length)
        here = "  <- set" if length.shingles == current_length(settings, share) else ""
        yield (
            f"  {length.shingles:<11}  {percent(length.chance):>10}  {length.mean:>15.5f}  "
            f"{few(length.candidates):>16}{here}"
        )
    if lengths:
        yield "  in another: share of a document's shingles that a typical other one has"
        text = advise(lengths, current_length(settings, share))
        yield textwrap.fill(text, 78, initial_indent="  ", subsequent_indent="  ")


def toml_lines(settings: Settings) -> Iterator[str]:
    """The settings chosen, and all others that are not the default."""
    size_, bands, rows = settings.banding
    chosen: dict[str, Any] = {
        "threshold": settings.threshold, "recall": settings.recall,
        "signature_size": size_, "bands": bands, "rows": rows, "shingles": settings.shingles,
    }  # fmt: skip
    if settings.likeness != "copies":
        chosen = {"likeness": settings.likeness} | {
            name: value for name, value in chosen.items() if name not in unused(settings.likeness)
        }
    if settings.likeness == "quotations":
        chosen |= {"least_shingles": settings.least_shingles, "sampling": settings.sampled}
    for name, field in Settings.model_fields.items():
        value = getattr(settings, name)
        if name not in chosen and value != field.default:
            chosen[name] = list(value) if isinstance(value, tuple) else value
    for name, value in chosen.items():
        # A JSON string without escaped surrogates is a TOML string; numbers, booleans and lists are the same in both.
        yield f"{name} = {json.dumps(value, ensure_ascii=False)}"
