"""What the demo shows: pairs side by side, verdicts, what was found of each edit, and how to go on."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from stream_lsh.demo.differences import Piece, differences
from stream_lsh.demo.feed import DESCRIPTIONS, Feed
from stream_lsh.demo.score import NO_DOCUMENT, KindScore, Score, Truth, is_edit
from stream_lsh.demo.spread import Spreading
from stream_lsh.demo.timeline import timeline
from stream_lsh.wording import count, duration, per_second, plain_table, share

NARROW = 84  # columns below which two texts are shown one below the other
WIDEST = 132
EXAMPLES = (
    "correction", "newer figures", "reprint", "house style", "paragraph added", "live update", "headline changed",
)  # fmt: skip
# Right-to-left and Indic text shifts the columns of many terminals; it is in the feed all the same.
ALIGNED = ("zh", "ja", "de", "fr", "es")
LEGEND = (
    "similar: at the threshold or above to one kept before, by comparing with all of these; mistakes: reported for "
    "what they are not; similarity: lowest, middle and highest with what they were made from"
)
STORIES = "stream-lsh demo --stories"
VERDICTS = {
    "unique": "nothing like it was kept before; kept and passed on",
    "near_duplicate": "similar to one that was kept; dropped",
    "exact_duplicate": "the same text as one that was kept, but for white space and capitals; dropped",
    "redelivered": "the same id with the same text again",
    "rejected": "not a document; kept with the reason as a dead letter",
}


@dataclass(frozen=True)
class Run:
    """What the demo has done: the feed, what the job wrote about it, and how long each took."""

    feed: Feed
    verdicts: Sequence[Mapping[str, Any]]
    truth: Truth
    score: Score
    threshold: float
    seconds: float  # of the job
    folder: Path | None  # where it was kept
    spread: Spreading


def show(console: Console, run: Run, examples: int = 4) -> None:
    """Print all of it."""
    for newer, older in choose_examples(run, examples):
        console.print(side_by_side(run, older, newer, console.width))
        console.print()
    story = timeline(run.spread, console.width, NARROW)
    for block in (verdict_table(run), kind_table(run, console.width), quality(run), story):
        console.print(block)
        console.print()
    console.print(go_on(run), soft_wrap=True)  # a command stays on one line, so that it can be copied


def choose_examples(run: Run, wanted: int) -> list[tuple[int, int]]:
    """Found pairs to show, positions of the newer and the older: each another edit, the last in another language."""
    found: list[tuple[str, str, int, tuple[int, int]]] = []  # language, kind, story, positions
    for place, (entry, verdict) in enumerate(zip(run.feed.entries, run.verdicts, strict=True)):
        if entry.kind in EXAMPLES and verdict["kind"] == "near_duplicate":
            parents = [match["seq"] for match in verdict["matches"] if match["id"] == entry.parent]
            found += [(entry.document["lang"], entry.kind, entry.story, (place, parent)) for parent in parents]
    chosen: dict[str, tuple[int, int]] = {}
    stories: set[int] = set()

    def take(languages: Sequence[str], most: int) -> None:
        for kind in EXAMPLES:
            for language, its_kind, story, positions in found:
                fits = language in languages and its_kind == kind and kind not in chosen and story not in stories
                if fits and len(chosen) < most:
                    chosen[kind] = positions
                    stories.add(story)

    take(("en",), wanted - 1)
    take(ALIGNED, wanted)
    take(("en",), wanted)
    return list(chosen.values())


def side_by_side(run: Run, older: int, newer: int, width: int) -> RenderableType:
    """Two documents beside each other (one above the other where the terminal is narrow), what differs marked."""
    first, second = run.feed.entries[older], run.feed.entries[newer]
    similarity = next(match["similarity"] for match in run.verdicts[newer]["matches"] if match["seq"] == older)
    titles = differences(first.document["title"], second.document["title"], opening=200)
    bodies = differences(first.document["text"], second.document["text"])
    sides = [
        Group(_marked(title, f"bold {colour}", "bold"), _marked(body, f"bold {colour}"))
        for title, body, colour in zip(titles, bodies, ("red", "green"), strict=True)
    ]
    heading = Text.assemble((f"{similarity:.2f}", "bold"), f"  {second.kind}: {DESCRIPTIONS[second.kind]}")
    narrow = width < NARROW
    table = Table(
        title=heading, title_justify="left", title_style="", padding=(0, 1), show_lines=narrow, show_header=not narrow,
        width=min(width, WIDEST),
    )  # fmt: skip
    if narrow:
        table.add_column(overflow="fold")
        for entry, side in zip((first, second), sides, strict=True):
            table.add_row(Group(_heading(entry.document), side))
    else:
        for entry in (first, second):
            table.add_column(_heading(entry.document), ratio=1, overflow="fold")
        table.add_row(*sides)
    return table


def _heading(document: Mapping[str, Any]) -> Text:
    return Text.assemble((str(document["id"]), "cyan"), (f" ({document['lang']})", "dim"))


def _marked(pieces: Sequence[Piece], style: str, base: str = "") -> Text:
    text = Text(style=base, overflow="fold")
    for piece in pieces:
        if piece.changed:
            # The brackets are for readers that do not see the colour: a file, a printout, a colour-blind reader.
            lead = piece.text[: len(piece.text) - len(piece.text.lstrip())]
            text.append(lead)
            text.append(f"[{piece.text.lstrip()}]", style)
        else:
            text.append(piece.text, "dim" if not piece.text.strip(" …") else "")
    return text


def verdict_table(run: Run) -> Table:
    """How many of each verdict."""
    title = f"Verdicts on {count(len(run.feed.entries), 'document')}"
    table = plain_table(title, "verdict", ">documents", ">", "")
    kinds = Counter(verdict["kind"] for verdict in run.verdicts)
    for kind, meaning in VERDICTS.items():
        part = share(kinds[kind], len(run.verdicts))
        table.add_row(kind.replace("_", " "), f"{kinds[kind]:,}", part, Text(meaning, "dim"))
    return table


def kind_table(run: Run, width: int) -> Group:
    """For each thing that was done to documents, how many there are, should be found, and were."""
    wide = width >= NARROW
    title = f"What was done to them, and what was found (similarity {run.threshold:g} and above)"
    names = ("edit", ">documents", ">similar", ">found", ">mistakes", ">similarity")
    table = plain_table(title, *names, *([""] if wide else []))
    groups = (
        [row for row in run.score.kinds if is_edit(row.kind)],
        [row for row in run.score.kinds if row.kind in NO_DOCUMENT],
        [row for row in run.score.kinds if not is_edit(row.kind) and row.kind not in NO_DOCUMENT],
    )
    for rows in groups:
        for row in rows:
            table.add_row(*_kind_cells(row), *([Text(DESCRIPTIONS[row.kind], "dim")] if wide else []))
        table.add_section()
    return Group(table, Text(LEGEND, "dim"))


def _kind_cells(row: KindScore) -> Iterator[str | Text]:
    yield row.kind
    yield f"{row.documents:,}"
    document = row.kind not in NO_DOCUMENT
    yield f"{row.expected:,}" if document else "-"
    yield Text(f"{row.right:,}", "green" if row.right == row.expected else "yellow")
    yield Text(f"{row.mistaken:,}", "red" if row.mistaken else "")
    values = row.similarities
    yield f"{min(values):.2f} {median(values):.2f} {max(values):.2f}" if values else ""


def quality(run: Run) -> Group:
    """How many were rightly dropped, and speed, in words."""
    dropped = run.score.dropped
    rate = len(run.feed.entries) / run.seconds if run.seconds else 0.0
    lines = [
        Text.assemble(
            ("Recall ", "bold"), _percent(dropped.recall), f": dropped {dropped.correct:,} of the "
            f"{count(dropped.truth, 'document')} that are similar to one kept before, by comparing with all of these",
        ),
        Text.assemble(
            ("Precision ", "bold"), _percent(dropped.precision), f": {dropped.correct:,} of the "
            f"{count(dropped.found, 'document')} dropped are similar to the one named for it, and that one was kept",
        ),
        Text.assemble(
            ("Speed ", "bold"), f"{per_second(rate)}: {count(len(run.feed.entries), 'document')} in "
            f"{duration(run.seconds)}, opening and closing a new index on disk included",
        ),
    ]  # fmt: skip
    return Group(*lines)


def _percent(ratio: float | None) -> str:
    if ratio is None:
        return "(none)"
    # Never 100 where one is missing.
    return "100 %" if ratio == 1 else f"{min(100 * ratio, 99.99):.2f} %"


def go_on(run: Run) -> Text:
    """Commands to try next, with the paths of this run if it was kept."""
    fields = "--text-field title --text-field text"
    if run.folder is None:
        commands = [
            ("keep the feed, its truth and the index", "stream-lsh demo --keep demo"),
            ("the same events in other words", STORIES),
            ("your own documents", "stream-lsh dedup your.jsonl --index index --unique unique.jsonl"),
            ("what the settings mean", "stream-lsh tune --threshold 0.8"),
        ]
    else:
        folder = shlex.quote(str(run.folder))
        commands = [
            ("what the index holds", f"stream-lsh info --index {folder}/index"),
            ("what is like one of its texts", f"stream-lsh query {folder}/article.txt --index {folder}/index"),
            ("the same with a lower threshold", f"stream-lsh pairs {folder}/feed.jsonl {fields} --threshold 0.5"),
            ("how good that is", f"stream-lsh evaluate {folder}/feed.jsonl {fields} --threshold 0.5"),
            ("which papers have the story that spreads", f"stream-lsh groups 0 --index {folder}/spread/index"),
            ("the same events in other words", STORIES),
            ("your own documents", "stream-lsh dedup your.jsonl --index index --unique unique.jsonl"),
        ]
    return to_try(commands)


def to_try(commands: Sequence[tuple[str, str]]) -> Text:
    """Commands, each under what it is good for."""
    lines = Text()
    lines.append("To go on", "bold")
    for what, command in commands:
        lines.append(f"\n  {what}\n", "dim")
        lines.append(f"    {command}", "cyan")
    return lines
