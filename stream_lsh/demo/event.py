"""An event as papers report it: the same facts in other words, and later developments.

All papers agree on what happened and where: their headlines and leads say so. Quotations and counts differ from paper
to paper.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from random import Random

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
