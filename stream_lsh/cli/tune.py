"""`stream-lsh tune`: K, b and r for a threshold and a recall, what they cost on a sample, and whether k is right."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import click

from stream_lsh.cli import tune_bands, tune_containment
from stream_lsh.cli.curve import terminal_plot, write_plot
from stream_lsh.cli.group import Command
from stream_lsh.cli.image import check_plot
from stream_lsh.cli.options import FILE, NAME, config_of, json_option, load_settings, option, settings_options
from stream_lsh.cli.tune_sample import draw
from stream_lsh.embedded.output_paths import check_outputs
from stream_lsh.errors import OutputError, UsageError
from stream_lsh.families.measure import unused
from stream_lsh.settings.model import Settings

EXAMPLES = """
stream-lsh tune --threshold 0.8 --target-recall 0.999
stream-lsh tune feed.jsonl --threshold 0.8 --write stream-lsh.toml
stream-lsh tune feed.jsonl.gz --threshold 0.5 --expected-docs 5000000 --plot curve.png
stream-lsh tune feed.jsonl --text-field title --text-field body --shingles chars:9
stream-lsh tune --measure cosine --dimensions 384 --threshold 0.9
stream-lsh tune --measure containment --threshold 0.5 --min-shingles 20
"""
SETTINGS = (
    "measure", "threshold", "max_distance", "dimensions", "target_recall", "signature_size", "bands", "rows",
    "min_shingles", "sampling", "shingles", "bag", "normalize", "tokens",
    "verify", "id_field", "text_field", "set_field", "vector_field", "bits_field", "max_document_bytes",
)  # fmt: skip
USUAL_DOCUMENTS = 1_000_000
SAMPLE, OUTPUT = "Sample", "Output"  # sections of the help


@click.command(
    cls=Command,
    examples=EXAMPLES,
    help="""Choose the signature size K, bands b and rows r (MMDS 3.4) for a threshold and a recall at it.

The command prints the curve P(candidate | s) = 1 - (1 - s^r)^b, the alternatives, and the settings as TOML for
--config. With INPUT (JSON lines, also compressed, a folder, or -) it also measures a sample: false candidates among
--expected-docs documents, and whether the shingles have the right length.

With --measure cosine, euclidean or weighted-jaccard the curve is over the cosine, the distance or the similarity. It
also shows (d1, d2, p1, p2) of one component, before and after amplification (MMDS 3.6). With hamming and levenshtein
it shows the keys that find every pair within the distance, and their false candidates. Such a sample has at most 4,000
documents. With cosine, and with euclidean and INPUT, K is larger for more documents, if their number is given.""",
    params=[
        option(
            SAMPLE, "--expected-docs N",
            "documents that the index will hold  [those of INPUT; 1000000 without]", click.IntRange(min=1),
        ),
        option(
            SAMPLE, "--sample N", "documents of INPUT to measure, drawn evenly; at most 32 MiB of text",
            click.IntRange(min=2), default=10_000, show_default=True,
        ),
        option(SAMPLE, "--limit N", "read only the first N documents of INPUT", click.IntRange(min=1)),
        option(OUTPUT, "--plot FILE.png|.svg", "write the curve as an image", FILE),
        option(OUTPUT, "--write FILE", "write the settings as TOML to a new file, such as stream-lsh.toml", FILE),
        json_option(OUTPUT, "write the figures as one JSON object"),
        *settings_options(SETTINGS),
    ],
)  # fmt: skip
@click.argument("inputs", nargs=-1, metavar="[INPUT ...]", type=NAME)
@click.pass_context
def tune(
    context: click.Context,
    /,
    inputs: tuple[str, ...],
    expected_docs: int | None,
    sample: int,
    limit: int | None,
    plot: Path | None,
    write: Path | None,
    as_json: bool,
    **_: Any,
) -> None:
    settings = load_settings(context)
    if write is not None:
        _check_new(write)
    named = {flag: str(path) for flag, path in (("--plot", plot), ("--write", write)) if path is not None}
    check_outputs(named, inputs, read={"--config": config_of(context)})
    if settings.measure == "tf-idf":
        _tune_stories(settings, inputs, plot, write, as_json)
    else:
        settings = _tune(settings, inputs, expected_docs, sample, limit, plot, write, as_json)
    if as_json:
        return
    if write is not None:
        click.echo(f"\nThe settings are in {write}.")
    else:
        click.echo("\nAs a file for --config:\n")
        for line in toml_lines(settings):
            click.echo(line)


def _tune(
    settings: Settings, inputs: tuple[str, ...], expected_docs: int | None, sample: int, limit: int | None,
    plot: Path | None, write: Path | None, as_json: bool,
) -> Settings:  # fmt: skip
    """The keys of a measure that has a curve. Returns the settings with what was chosen."""
    if plot is not None:
        check_plot(plot)
    module: ModuleType = tune_containment if settings.measure == "containment" else tune_bands
    rejected: Counter[str] = Counter()
    drawn = found = None
    if inputs:
        most = sample if settings.measure in ("jaccard", "containment") else min(sample, tune_bands.MOST)
        drawn = draw(settings, inputs, most, limit, rejected)
        found = module.background_of(drawn, settings)
    documents = expected_docs or (drawn.seen if drawn is not None and drawn.seen else 0)
    settings = tune_bands.sized(settings, found, documents)
    documents = documents or USUAL_DOCUMENTS
    others = module.others_of(settings)
    if plot is not None:
        write_plot(plot, settings.curve, others, found)
    if write is not None:
        _write(settings, write)  # before anything is printed: the reader of a pipe may leave at any line
    if as_json:
        click.echo(json.dumps(module.as_object(settings, others, drawn, found, documents)))
        return settings
    unicode = "utf" in (getattr(sys.stdout, "encoding", None) or "").lower()

    def lines() -> Iterator[str]:
        yield from (*module.choice(settings), "", *module.table(settings, found))
        yield from ("", f"P(candidate) over {module.over(settings)}", *terminal_plot(settings.curve, unicode=unicode))
        yield from ("", *module.beside(settings, others, found, documents))
        if drawn is not None:
            yield from module.sampled(settings, drawn, found, documents, rejected)

    for line in lines():
        click.echo(line if unicode else line.replace("±", "+-"))
    if plot is not None:
        click.echo(f"\nThe curve is in {plot}.")
    return settings


def _tune_stories(
    settings: Settings, inputs: tuple[str, ...], plot: Path | None, write: Path | None, as_json: bool
) -> None:
    """The threshold of tf-idf, which has no bands."""
    for given, what in ((inputs, "INPUT"), (plot, "--plot")):
        if given:
            raise UsageError(f"measure = tf-idf has no curve, and a sample measures nothing: leave out {what}")
    if write is not None:
        _write(settings, write)
    if as_json:
        click.echo(json.dumps({"measure": settings.measure, "threshold": settings.threshold}))
        return
    click.echo(f"Threshold {settings.threshold:g} (tf-idf): there is nothing else to tune. Measure it with labels:")
    click.echo("stream-lsh evaluate --measure tf-idf --labels FIELD")


def _check_new(path: Path) -> None:
    try:
        there = path.exists()
    except OSError as error:
        raise _refused(path, error) from None
    if there:
        raise OutputError(f"--write {path}: this file exists; name a new one")


def _refused(path: Path, error: OSError) -> OutputError:
    return OutputError(f"--write {path}: {error.strerror}; name another file")


def _write(settings: Settings, path: Path) -> None:
    """The settings as a TOML file that was not there."""
    try:
        with path.open("x", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in toml_lines(settings))
    except OSError as error:
        raise _refused(path, error) from None


def toml_lines(settings: Settings) -> Iterator[str]:
    """The settings chosen, and all others that are not the default."""
    size_, bands, rows = settings.banding
    chosen: dict[str, Any] = {
        "threshold": settings.threshold, "target_recall": settings.target_recall,
        "signature_size": size_, "bands": bands, "rows": rows, "shingles": settings.shingles,
    }  # fmt: skip
    if settings.measure != "jaccard":
        chosen = {"measure": settings.measure} | {
            name: value for name, value in chosen.items() if name not in unused(settings.measure)
        }
    if settings.measure == "containment":
        chosen |= {"min_shingles": settings.min_shingles, "sampling": settings.sampled}
    for name, field in Settings.model_fields.items():
        value = getattr(settings, name)
        if name not in chosen and value != field.default:
            chosen[name] = list(value) if isinstance(value, tuple) else value
    for name, value in chosen.items():
        # A JSON string without escaped surrogates is a TOML string; numbers, booleans and lists are the same in both.
        yield f"{name} = {json.dumps(value, ensure_ascii=False)}"
