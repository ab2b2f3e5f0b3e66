"""A week of stories: write its feed, run the real job on it, compare the stories that it found with the events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from stream_lsh.demo.edits import PARAGRAPH
from stream_lsh.demo.feed import TEXT_FIELDS, Entry
from stream_lsh.demo.run import write_labels
from stream_lsh.demo.spread import read_lines
from stream_lsh.demo.week import DAY, DAYS, SINGLE, START, Week, make_week
from stream_lsh.embedded.job import Job
from stream_lsh.embedded.report import Progress
from stream_lsh.evaluation.clusters import Agreement, agreement
from stream_lsh.settings.model import Settings

SETTINGS: Mapping[str, Any] = {
    "measure": "tf-idf", "text_field": TEXT_FIELDS, "time_field": "ts", "source_field": "source",
    "match_within": ("lang",),
}  # fmt: skip
OUTPUTS = ("verdicts", "groups")
TERMS = 6  # named of a story


@dataclass(frozen=True)
class Story:
    """A story that was found.

    members: places in the feed, the first member first. days: articles of each day of the week. sources: how many.
    terms: those that decided for most articles, most often first. event: the one that most of its articles tell of;
    others: articles that tell of another; missed: articles of the event that are not in this story.
    """

    members: tuple[int, ...]
    days: tuple[int, ...]
    sources: int
    terms: tuple[str, ...]
    event: int
    others: int
    missed: int


@dataclass(frozen=True)
class Twin:
    """An event under the names of one before: the first articles of both (places in the feed), how many articles the
    second has, and how many of them were taken for the first."""

    before: int
    first: int
    articles: int
    mistaken: int


@dataclass(frozen=True)
class Singles:
    """Reports that only one paper has, and how many of them are in a story whose first member is of another event."""

    articles: int
    misplaced: int


@dataclass(frozen=True)
class Diary:
    """The week, what the job said of it, and how right that is.

    stories: those of several articles, the largest first. events: which several papers reported; whole: of these, those
    whose articles are all in one story; pure: of these, those with nothing else in their story. singles: in English,
    and in other languages.
    """

    week: Week
    verdicts: Sequence[Mapping[str, Any]]
    stories: tuple[Story, ...]
    twins: tuple[Twin, ...]
    quality: Agreement
    events: int
    whole: int
    pure: int
    singles: tuple[Singles, Singles]
    folder: Path | None  # where it was kept

    @property
    def entries(self) -> Sequence[Entry]:
        """The articles, in the order of the feed."""
        return self.week.feed.entries


def run_week(folder: Path, documents: int, seed: int, progress: Callable[[Progress], None], *, kept: bool) -> Diary:
    """Write feed.jsonl, labels.jsonl and article.txt to `folder`, and what the job makes of the feed.

    Raises what the job does."""
    week = make_week(documents, seed)
    (folder / "feed.jsonl").write_bytes(b"".join(week.feed.lines()))
    write_labels(folder / "labels.jsonl", week.feed)
    outputs = {name: str(folder / f"{name}.jsonl") for name in OUTPUTS}
    Job(Settings.model_validate(SETTINGS), [str(folder / "feed.jsonl")], outputs, folder / "index").run(progress)
    diary = judged(week, read_lines(outputs["verdicts"]), folder if kept else None)
    (folder / "article.txt").write_text(_article(diary), encoding="utf-8")
    return diary


def judged(week: Week, verdicts: Sequence[Mapping[str, Any]], folder: Path | None = None) -> Diary:
    """Compare verdicts, one for each article, as the job writes them, with the truth."""
    entries = week.feed.entries
    first_member = [int(verdict["group"]) for verdict in verdicts]  # a story has the number of its first member
    event_of = [entry.story for entry in entries]
    members, articles = _places(first_member), _places(event_of)
    stories = [_story(places, week, verdicts, articles) for places in members.values() if len(places) > 1]
    stories.sort(key=lambda story: (-len(story.members), story.members))
    reported = [event for event, places in articles.items() if entries[places[0]].kind != SINGLE]
    whole = [event for event in reported if len({first_member[place] for place in articles[event]}) == 1]
    pure = [event for event in whole if len(members[first_member[articles[event][0]]]) == len(articles[event])]
    singles = [place for place, entry in enumerate(entries) if entry.kind == SINGLE]
    misplaced = [place for place in singles if event_of[first_member[place]] != event_of[place]]
    english = {place for place in singles if entries[place].document["lang"] == "en"}
    wrong = len(english.intersection(misplaced))
    twins = [_twin(articles[before], articles[twin], first_member) for twin, before in week.twins.items()]
    return Diary(
        week, verdicts, tuple(stories), tuple(twins),
        agreement(np.array(first_member, np.int64), np.array(event_of, np.int64)),
        len(reported), len(whole), len(pure),
        (Singles(len(english), wrong), Singles(len(singles) - len(english), len(misplaced) - wrong)), folder,
    )  # fmt: skip


def _places(numbers: Sequence[int]) -> dict[int, list[int]]:
    """Of every number the places that have it, in order."""
    places: dict[int, list[int]] = {}
    for place, number in enumerate(numbers):
        places.setdefault(number, []).append(place)
    return places


def _story(
    places: Sequence[int], week: Week, verdicts: Sequence[Mapping[str, Any]], articles: Mapping[int, Sequence[int]]
) -> Story:
    entries = [week.feed.entries[place] for place in places]
    days = Counter((entry.document["ts"] - START) // DAY for entry in entries)
    terms = Counter(term for place in places for term in terms_of(verdicts[place]))
    ((event, largest),) = Counter(entry.story for entry in entries).most_common(1)
    return Story(
        members=tuple(places),
        days=tuple(days[day] for day in range(len(DAYS))),
        sources=len({entry.document["source"] for entry in entries}),
        terms=tuple(term for term, _ in terms.most_common(TERMS)),
        event=event,
        others=len(places) - largest,
        missed=len(articles[event]) - largest,
    )


def terms_of(verdict: Mapping[str, Any]) -> list[str]:
    """What decided: the terms of all its matches, each once."""
    return list(dict.fromkeys(term for match in verdict["matches"] for term in match["terms"]))


def _twin(before: Sequence[int], twin: Sequence[int], first_member: Sequence[int]) -> Twin:
    own = {first_member[place] for place in before}
    return Twin(before[0], twin[0], len(twin), sum(first_member[place] in own for place in twin))


def _article(diary: Diary) -> str:
    """Headline and lead of an article of the largest story, to query the index with."""
    document = diary.entries[diary.stories[0].members[-1]].document
    return f"{document['title']}\n{document['text'].split(PARAGRAPH)[0]}\n"
