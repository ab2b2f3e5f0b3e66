"""One story of the demo: it spreads, is corrected, and is withdrawn by all papers except the first.

A feed of its own, in which a corrected document is another text under its id and a withdrawn one a record that deletes.
Everything follows from the seed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from stream_lsh.alerts.rules import read_rules
from stream_lsh.demo import desks
from stream_lsh.demo.desks import TOWNS
from stream_lsh.demo.outlets import AGENCY
from stream_lsh.demo.story import Story, write
from stream_lsh.settings.model import Settings

PAPERS = ("gazette", "herald", "courier", "post", "echo", "observer")
# Papers that print it, those of them that do so twice, that correct it, and others that print the correction.
PRINTED, TWICE, CORRECTED, LATE = 24, 8, 9, 4
START, MINUTE = 1_700_000_000_000, 60_000
NOTE = "Correction: an earlier version of this story had a wrong detail in it."
RULES = """[[rule]]
name = "spreads"
kind = "spread"
members = 10
sources = 5
within = "1h"
"""
WRITES, PRINTS, CORRECTS, WITHDRAWS = "write", "print", "correct", "withdraw"


@dataclass(frozen=True)
class Entry:
    """A record of the feed: its time, its source, and what that source does with the story."""

    ts: int
    source: str
    what: str
    record: Mapping[str, Any]


@dataclass(frozen=True)
class Spreading:
    """The feed, and what the job said of it: the events of groups, and the alerts."""

    entries: Sequence[Entry]
    events: Sequence[Mapping[str, Any]]
    alerts: Sequence[Mapping[str, Any]]


def make_spread(seed: int) -> list[Entry]:
    """The feed of this seed, the same on every machine."""
    random = Random(f"stream_lsh demo spread {seed}")
    desk = random.choice(desks.ENGLISH)
    story = write(random, desk, random.choice(desk.topics))
    corrected = _corrected(random, story)
    papers = [f"{town}-{random.choice(PAPERS)}" for town in random.sample(TOWNS, PRINTED + LATE)]
    first, late = papers[:PRINTED], papers[PRINTED:]
    old, new = [story.title(), *story.body()], [corrected.title(), *corrected.body(), NOTE]
    found: list[tuple[int, str, int, str, Sequence[str]]] = [(0, AGENCY.key, 1, WRITES, old)]

    def do(minute: float, paper: str, what: str, text: Sequence[str], edition: int = 1) -> None:
        found.append((round(minute), paper, edition, what, text))

    # Slowly, then all at once, then the rest.
    for at, paper in zip(sorted(min(110, random.gauss(60, 30)) for _ in first), first, strict=True):
        do(max(4, at), paper, PRINTS, _by(paper, old))
    for paper in random.sample(first[1:], TWICE):
        do(random.randint(115, 150), paper, PRINTS, _by(paper, old), 2)
    do(160, AGENCY.key, CORRECTS, new)
    for n, paper in enumerate(late):
        do(170 + 7 * n, paper, PRINTS, _by(paper, new))
    for n, paper in enumerate(random.sample(first[1:], CORRECTED)):
        do(200 + 6 * n, paper, CORRECTS, _by(paper, new))
    do(270, AGENCY.key, WITHDRAWS, ())
    withdrawn = [(paper, edition) for _, paper, edition, what, _ in found if what == PRINTS and paper != papers[0]]
    random.shuffle(withdrawn)
    for n, (paper, edition) in enumerate(withdrawn):
        do(280 + 150 * (n / len(withdrawn)) ** 2, paper, WITHDRAWS, (), edition)
    return [
        _entry(START + at * MINUTE, paper.lower(), edition, what, text)
        for at, paper, edition, what, text in sorted(found, key=lambda step: step[0])
    ]


def _corrected(random: Random, story: Story) -> Story:
    """The story with a wrong name or word corrected, one that occurs in few places."""
    body = "\n".join(story.paragraphs)
    words = [name for name in story.used() if isinstance(story.facts[name], str)]
    return story.with_another(random, min(words, key=lambda name: body.count(f"{{{name}")))


def _by(paper: str, text: Sequence[str]) -> list[str]:
    """A text as a paper prints it."""
    town, _, name = paper.partition("-")
    return [*text, f"Printed by the {town} {name.capitalize()}."]


def _entry(ts: int, source: str, edition: int, what: str, text: Sequence[str]) -> Entry:
    record: dict[str, Any] = {"id": f"{source}-{edition}", "ts": ts, "source": source}
    more = {"title": text[0], "text": "\n\n".join(text[1:])} if text else {"deleted": True}
    return Entry(ts, source, what, record | more)


def lines(entries: Sequence[Entry]) -> Iterator[bytes]:
    """The feed as JSON lines."""
    for entry in entries:
        yield json.dumps(entry.record, ensure_ascii=False).encode() + b"\n"


def run_spread(folder: Path, seed: int, settings: Settings) -> Spreading:
    """Write feed and rules to `folder`, and what the job makes of them. Raises what the job does."""
    from stream_lsh.embedded.job import Job  # here, because it takes numba with it

    folder.mkdir()
    entries = make_spread(seed)
    (folder / "feed.jsonl").write_bytes(b"".join(lines(entries)))
    (folder / "rules.toml").write_text(RULES, encoding="utf-8")
    outputs = {name: str(folder / f"{name}.jsonl") for name in ("unique", "verdicts", "groups", "alerts")}
    settings = spread_settings(settings)
    rules = read_rules(folder / "rules.toml")
    Job(settings, [str(folder / "feed.jsonl")], outputs, folder / "index", rules=rules).run()
    return Spreading(entries, read_lines(outputs["groups"]), read_lines(outputs["alerts"]))


def spread_settings(settings: Settings) -> Settings:
    """With corrections, withdrawals, sources and times."""
    return Settings.model_validate(
        settings.model_dump(exclude_unset=True)
        | {"on_conflict": "update", "deleted_field": "deleted", "source_field": "source", "time_field": "ts"}
    )


def read_lines(path: str) -> list[dict[str, Any]]:
    """The records of an output."""
    return [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]
