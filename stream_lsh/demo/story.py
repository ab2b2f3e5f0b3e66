"""A made-up news story: sentence templates with open slots, and the facts that fill them.

A story keeps its templates and facts apart, so that an edit (a corrected name, newer figures) is the same story with
other facts, as in a newsroom.

Templates know two marks: `[a|b|c]` is one of the alternatives, chosen once when the story is written; `{slot}` is a
fact, the same in all places. The kind of a fact is its name without digits at the end (`town2` is a town).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random

_ALTERNATIVES = re.compile(r"\[([^\[\]]*\|[^\[\]]*)\]")
_SLOT = re.compile(r"\{([a-z]+\d*)(\.last)?\}")
_START = re.compile(r"(?:^|(?<=[.] )|(?<=[.]\" )|(?<=\"[.] ))[a-zà-ÿ]")
Fact = str | int


@dataclass(frozen=True)
class Topic:
    """What stories of one sort are made of.

    `parts` are in the order of the story; one sentence is taken of each, two where `doubles` says that any two of a
    part go together. `extras` are paragraphs that a later version adds. `pools` fill slots with words, `ranges` with
    whole numbers.
    """

    headlines: tuple[str, ...]
    leads: tuple[str, ...]
    parts: tuple[tuple[str, ...], ...]
    extras: tuple[str, ...]
    doubles: tuple[int, ...] = (0, 4, 5)
    pools: Mapping[str, Sequence[str]] = field(default_factory=dict)
    ranges: Mapping[str, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class Desk:
    """Topics of one section and language, what they share, and how that language joins sentences and names."""

    name: str
    topics: tuple[Topic, ...]
    pools: Mapping[str, Sequence[str]]
    language: str = "en"
    sentence_gap: str = " "
    name_order: str = "{first} {last}"


@dataclass(frozen=True)
class Story:
    """Templates with their alternatives chosen, and the facts of every slot in them and in the extras."""

    desk: Desk
    topic: Topic
    headline: str
    other_headline: str
    paragraphs: tuple[str, ...]
    extras: tuple[str, ...]
    facts: Mapping[str, Fact]

    def title(self) -> str:
        """The headline as it is printed."""
        return fill(self.headline, self.facts)

    def other_title(self) -> str:
        """Another headline for the same story."""
        return fill(self.other_headline, self.facts)

    def body(self, added: int = 0) -> list[str]:
        """The paragraphs as they are printed, and the first `added` of the extras."""
        return [fill(paragraph, self.facts) for paragraph in (*self.paragraphs, *self.extras[:added])]

    def used(self) -> list[str]:
        """The facts that the body names, in order, each once."""
        return list(dict.fromkeys(slot.removesuffix(".last") for text in self.paragraphs for slot in slots(text)))

    def with_facts(self, changed: Mapping[str, Fact]) -> Story:
        """The same story with some facts changed."""
        return replace(self, facts={**self.facts, **changed})

    def with_another(self, random: Random, name: str) -> Story:
        """The same story with another person, place, word or number under this name."""
        facts = dict(self.facts)
        before = facts.pop(name), facts.pop(name + ".last", None)
        while name not in facts or facts[name] == before[0]:
            facts.pop(name, None)
            facts.pop(name + ".last", None)
            find_fact(random, self.desk, self.topic, name, facts)
        return self.with_facts(facts)


def fill(template: str, facts: Mapping[str, Fact]) -> str:
    """The template with its facts, each sentence beginning with a large letter."""

    def value(match: re.Match[str]) -> str:
        fact = facts[match[1] + (match[2] or "")]
        return f"{fact:,}" if isinstance(fact, int) else fact

    return _START.sub(lambda match: match[0].upper(), _SLOT.sub(value, template))


def slots(template: str) -> list[str]:
    """The facts that a template asks for, in order."""
    return [match[1] + (match[2] or "") for match in _SLOT.finditer(template)]


def write(random: Random, desk: Desk, topic: Topic) -> Story:
    """Write a story of this topic."""

    def choose(template: str) -> str:
        return _ALTERNATIVES.sub(lambda match: random.choice(match[1].split("|")), template)

    headline, other = random.sample(topic.headlines, 2)
    sentences = [choose(random.choice(topic.leads))]
    for number, part in enumerate(topic.parts):
        amount = random.choice((1, 2, 2)) if number in topic.doubles else 1
        sentences += [choose(sentence) for sentence in random.sample(part, amount)]
    paragraphs, rest = [sentences[0]], sentences[1:]
    while rest:  # paragraphs of one or two sentences, as news is set
        size = random.choice((1, 2, 2))
        paragraphs.append(desk.sentence_gap.join(rest[:size]))
        rest = rest[size:]
    extras = tuple(choose(extra) for extra in random.sample(topic.extras, len(topic.extras)))
    headline, other = choose(headline), choose(other)
    facts: dict[str, Fact] = {}
    for template in (headline, other, *paragraphs, *extras):
        for slot in slots(template):
            find_fact(random, desk, topic, slot, facts)
    return Story(desk, topic, headline, other, tuple(paragraphs), extras, facts)


def find_fact(random: Random, desk: Desk, topic: Topic, slot: str, facts: dict[str, Fact]) -> None:
    """Add the fact of this slot to `facts`, different from its siblings' (`town` and `town2`)."""
    if slot in facts:
        return
    name = slot.removesuffix(".last")
    kind = name.rstrip("0123456789")
    for key in dict.fromkeys((name, kind)):
        if key in topic.ranges:
            facts[name] = random.randint(*topic.ranges[key])
            return
        pool = topic.pools.get(key) or desk.pools.get(key)
        if pool:
            taken = {facts[other] for other in facts if other.rstrip("0123456789") == kind}
            facts[name] = random.choice([word for word in pool if word not in taken])
            return
    # A slot that is neither a range nor a pool is a person, named in full and by the last name.
    first = random.choice(desk.pools.get(f"{kind}.first") or desk.pools["firstname"])
    last = random.choice(desk.pools["lastname"])
    facts[name] = desk.name_order.format(first=first, last=last)
    facts[name + ".last"] = last
