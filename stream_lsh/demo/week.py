"""A week of news in which papers tell of the same events in their own words, with its truth.

Everything follows from the seed. Documents are JSON lines with `id`, `ts`, `source`, `lang`, `title`, `text`, and
`story`, the number of the event: the truth, which is not part of the text.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random

from stream_lsh.demo import desks, edits, outlets
from stream_lsh.demo.desks import TOWNS
from stream_lsh.demo.edits import Copy, Newsroom, printed
from stream_lsh.demo.feed import LEAST, Entry, Feed
from stream_lsh.demo.outlets import Outlet
from stream_lsh.demo.story import Desk, Fact, Story, Topic, find_fact, slots, write

OWN_PERSON, OWN_NUMBER = 0.35, 0.25  # how often a paper asks others than its rivals, and counts for itself
MOVING = 3  # numbers that go up from day to day
LEAST_PARAGRAPHS = 3


@dataclass(frozen=True)
class Event:
    """What there is to know of an event. own: the facts that each paper finds for itself; moving: those that grow with
    every day; extras: what becomes known, a paragraph a day."""

    desk: Desk
    topic: Topic
    facts: Mapping[str, Fact]
    own: frozenset[str]
    moving: tuple[str, ...]
    extras: tuple[str, ...]


def happen(random: Random, desk: Desk, topic: Topic, weekday: str) -> Event:
    """An event of this topic, on this day of the week (in English)."""
    facts: dict[str, Fact] = {"weekday": weekday} if weekday in desk.pools["weekday"] else {}
    templates = (*topic.headlines, *topic.leads, *(one for part in topic.parts for one in part), *topic.extras)
    for template in templates:
        for slot in slots(template):
            find_fact(random, desk, topic, slot, facts)
    agreed = {slot.removesuffix(".last") for template in (*topic.headlines, *topic.leads) for slot in slots(template)}
    names = [name for name in facts if not name.endswith(".last") and name not in agreed]
    numbers = [name for name in names if isinstance(facts[name], int)]
    own = {name for name in names if f"{name}.last" in facts and random.random() < OWN_PERSON}
    own |= {name for name in numbers if random.random() < OWN_NUMBER}
    moving = [name for name in numbers if name not in own]
    chosen = random.sample(moving, min(MOVING, len(moving)))
    return Event(
        desk, topic, facts, frozenset(own), tuple(chosen), tuple(random.sample(topic.extras, len(topic.extras)))
    )


def again(random: Random, event: Event, weekday: str) -> Event:
    """Another event of the same topic, in the same places and with the same people: a twin."""
    twin = happen(random, event.desk, event.topic, weekday)
    names = {name: fact for name, fact in event.facts.items() if name != "weekday" and not _of_topic(event.topic, name)}
    return replace(twin, facts={**twin.facts, **names})


def _of_topic(topic: Topic, name: str) -> bool:
    """Whether a fact is a word or number of the topic; else it is a person, a place or a time."""
    return any(key in topic.pools or key in topic.ranges for key in (name, name.rstrip("0123456789")))


def report(random: Random, event: Event, day: int) -> Story:
    """A report by a paper that writes itself, `day` days after the event: other sentences in another order, some left
    out, and from the second day on what has become known."""
    fresh = write(random, event.desk, event.topic)
    facts: dict[str, Fact] = dict(event.facts)
    for name in event.moving:
        number = int(facts[name])
        facts[name] = number + day * max(1, number // 8)
    for name in event.own & fresh.facts.keys():
        facts |= {key: fresh.facts[key] for key in (name, f"{name}.last") if key in fresh.facts}
    lead, *rest = fresh.paragraphs
    random.shuffle(rest)
    rest = rest[: random.randint(min(LEAST_PARAGRAPHS, len(rest)), len(rest))]
    known = event.extras[:day]
    news = random.sample(known, random.randint(1, len(known))) if known else []
    return replace(fresh, paragraphs=(lead, *news, *rest), extras=event.extras, facts=facts)


DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
SECOND = 1000
HOUR = 3600 * SECOND
DAY = 24 * HOUR
START = 1_700_438_400_000  # ms; a Monday, at midnight UTC
END = START + 7 * DAY
# What a week consists of, as parts of a hundred; the rest are events of which one paper reports.
REPORTED, COPIED = 55, 12
AN_EVENT = 24  # so many articles of the week for each event of which several report
LEAST_EVENTS = 6
LEAST_REPORTS = 3
OTHER_LANGUAGE = 6  # the smallest events: papers of another language report them
PACES = (3, 10, 24)  # hours after which most is written of an event
TWINS = ((3, 5), (8, 9))  # events that come back, as ranks by size; the second of each is the twin
COPIES = ("wire copy", "headline changed", "reprint", "correction", "cut short")
PAPERS = ("Gazette", "Herald", "Courier", "Post", "Echo", "Observer")
TOWN_PAPERS = 30
# What an entry can be: a single report, one of several, one on a later day, or a copy of another.
SINGLE, REPORT, FOLLOW_UP = "single", "report", "follow-up"


@dataclass(frozen=True)
class Week:
    """The feed, in order of time; and of every twin the number of the event before it under the same names."""

    feed: Feed
    twins: Mapping[int, int]


@dataclass
class _Article:
    """An article to be written. event: its event, None if no other article covers it. parent: the article that it
    copies."""

    ts: int
    kind: str
    story: int
    event: Event | None = None
    outlet: Outlet | None = None
    day: int = 0
    parent: _Article | None = None
    copy: Copy | None = None


def make_week(documents: int = 1200, seed: int = 1) -> Week:
    """The week of this size and seed, the same on every machine.

    Raises:
        ValueError: fewer than LEAST documents; each kind needs room.
    """
    if documents < LEAST:
        raise ValueError(f"{documents} documents are too few for a week; take at least {LEAST}")
    return _Newsroom(Random(f"stream_lsh demo week {seed}")).run(documents)


class _Newsroom(Newsroom):
    """Plans the week event by event, then writes it in order of time."""

    def __init__(self, random: Random) -> None:
        super().__init__(random)
        towns = random.sample(TOWNS, TOWN_PAPERS)
        names = [f"{town} {random.choice(PAPERS)}" for town in towns]
        papers = (Outlet(name.lower().replace(" ", "-"), "en", f"{name}, own report") for name in names)
        self.papers = [*outlets.ENGLISH, *papers]

    def run(self, documents: int) -> Week:
        events = max(LEAST_EVENTS, documents // AN_EVENT)
        copies = documents * COPIED // 100
        sizes = _sizes(documents * REPORTED // 100, events)
        planned, twins = self._events(sizes)
        for story in range(events, events + documents - len(planned) - copies):
            planned.append(_Article(self._daytime(self.random.randrange(START, END)), SINGLE, story))
        planned += [self._copied(self.random.choice(planned)) for _ in range(copies)]
        planned.sort(key=lambda article: article.ts)
        return Week(Feed(tuple(self._entry(article) for article in planned)), twins)

    def _events(self, sizes: Sequence[int]) -> tuple[list[_Article], dict[int, int]]:
        """The reports of events of these sizes, which are numbered by size."""
        random = self.random
        first = {twin: rank for rank, twin in TWINS if twin < len(sizes)}
        begins, events, planned = dict[int, int](), dict[int, Event](), list[_Article]()
        topics, others = (
            _dealt(random, [(desk, topic) for desk in some for topic in desk.topics])
            for some in (desks.ENGLISH, desks.OTHERS)
        )
        for story, size in enumerate(sizes):
            pace = random.choice(PACES)
            if story in first:  # when all has been said of the one before
                begins[story] = self._daytime(begins[first[story]] + random.randint(75 * HOUR, 90 * HOUR))
                events[story] = again(random, events[first[story]], _weekday(begins[story]))
            elif story in first.values():
                pace = PACES[0]
                begins[story] = self._daytime(START + random.randrange(40 * HOUR))
            else:
                last = 4 if size > AN_EVENT else 5  # days, after which no such event begins
                begins[story] = self._daytime(START + random.randrange(last * DAY))
            if story not in events:
                other = story >= len(sizes) - OTHER_LANGUAGE and story > max(max(pair) for pair in TWINS)
                desk, topic = next(others if other else topics)
                events[story] = happen(random, desk, topic, _weekday(begins[story]))
            planned += self._reports(story, events[story], begins[story], size, pace)
        return planned, first

    def _reports(self, story: int, event: Event, begin: int, size: int, pace: int) -> Iterator[_Article]:
        """The reports of an event with their times: slowly, then many, then fewer and fewer."""
        random, language = self.random, event.desk.language
        known = self.papers if language == "en" else [one for one in outlets.OTHERS if one.language == language]
        outlet = None
        for number in range(size):
            ts = begin
            if number:
                ts = self._daytime(begin + int(random.gammavariate(2, pace) * HOUR))
                if ts >= END:
                    ts = self._daytime(random.randrange(begin, END))
            day = (ts - START) // DAY - (begin - START) // DAY
            by_agency = number == 0 and language == "en" and random.random() < 0.6
            outlet = outlets.AGENCY if by_agency else random.choice([one for one in known if one is not outlet])
            yield _Article(ts, FOLLOW_UP if day else REPORT, story, event, outlet, day)

    def _copied(self, parent: _Article) -> _Article:
        ts = parent.ts + self.random.randint(600 * SECOND, 8 * HOUR)
        if ts >= END:
            ts = self.random.randrange(parent.ts, END)
        return _Article(ts, self.random.choice(COPIES), parent.story, parent=parent)

    def _daytime(self, ts: int) -> int:
        """A time of the night becomes one of the morning, when papers are made."""
        night = 6 * HOUR - (ts - START) % DAY
        return ts if night <= 0 else ts + night + self.random.randrange(2 * HOUR)

    def _entry(self, article: _Article) -> Entry:
        copy = article.copy = self._written(article)
        document = {**self.document(copy, article.ts), "story": article.story}
        copy.id = document["id"]
        line = json.dumps(document, ensure_ascii=False).encode()
        return Entry(line, copy.id, article.kind, copy.parent, article.story, document)

    def _written(self, article: _Article) -> Copy:
        random, outlet = self.random, article.outlet
        if article.parent is not None:
            assert article.parent.copy is not None, "a copy comes after what it is a copy of"
            copy = edits.EDITS[article.kind](random, article.parent.copy)
            assert copy is not None, "every article takes these edits"
            return copy
        if article.event is not None and outlet is not None:
            story = report(random, article.event, article.day)
        else:
            desk = random.choice(desks.OTHERS if random.random() < 0.1 else desks.ENGLISH)
            known = self.papers if desk.language == "en" else outlets.OTHERS
            outlet = random.choice([one for one in known if one.language == desk.language])
            story = write(random, desk, random.choice(desk.topics))
        return printed(story, outlet, article.story)


def _weekday(ts: int) -> str:
    return DAYS[(ts - START) // DAY % 7]


def _dealt(random: Random, cards: Sequence[tuple[Desk, Topic]]) -> Iterator[tuple[Desk, Topic]]:
    """All of them, shuffled, then all again, without an end: the large events of a week are of different sorts."""
    while True:
        yield from random.sample(cards, len(cards))


def _sizes(articles: int, events: int) -> list[int]:
    """So many reports in so many events, few large ones and many small ones, the largest first."""
    weights = [1 / (rank + 4) for rank in range(events)]
    spare = max(0, articles - LEAST_REPORTS * events)
    return [LEAST_REPORTS + int(spare * weight / sum(weights)) for weight in weights]
