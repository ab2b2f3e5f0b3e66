"""What happens to a story on its way through the papers. Each edit makes a new copy; the one before stays as it is."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from stream_lsh.demo import outlets
from stream_lsh.demo.outlets import Outlet
from stream_lsh.demo.story import Fact, Story, write

PARAGRAPH = "\n\n"  # between paragraphs


@dataclass
class Copy:
    """A story as one outlet prints it. `number` is the story's, `parent` the id of the copy that it was made from."""

    story: Story
    title: str
    paragraphs: list[str]
    outlet: Outlet
    number: int
    parent: str | None = None
    id: str = ""
    added: int = 0  # paragraphs that later versions have added


def printed(
    story: Story, outlet: Outlet, number: int, parent: str | None = None, added: int = 0, note: str = ""
) -> Copy:
    """The copy of a story by the outlet that wrote it. added: of its extras. note: below the text."""
    below = [line for line in (note, outlet.credit) if line]
    return Copy(story, story.title(), [*story.body(added), *below], outlet, number, parent, added=added)


class Newsroom:
    """Numbers the copies of each outlet, and makes documents of them."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self._numbers: dict[str, int] = {}

    def document(self, copy: Copy, ts: int) -> dict[str, Any]:
        """The document of a copy, which gets its id; ts: event time, ms since 1970."""
        key = copy.outlet.key
        number = self._numbers.get(key, self.random.randint(1000, 8000)) + self.random.randint(1, 4)
        self._numbers[key] = number
        return {
            "id": f"{key}-{number}",
            "ts": ts,
            "source": key,
            "lang": copy.story.desk.language,
            "title": copy.title,
            "text": PARAGRAPH.join(copy.paragraphs),
        }


_NOTES = {
    "en": "Correction: an earlier version of this story had a wrong detail in it.",
    "de": "Berichtigung: In einer früheren Fassung stand eine falsche Angabe.",
    "fr": "Rectificatif : une précédente version contenait une erreur.",
    "es": "Corrección: una versión anterior contenía un error.",
    "zh": "更正：此前报道有误。",
    "ja": "訂正：以前の記事に誤りがありました。",
    "ar": "تصحيح: ورد خطأ في نسخة سابقة من الخبر.",
    "hi": "सुधार: पहले की खबर में एक त्रुटि थी।",
}
Edit = Callable[[Random, Copy], Copy | None]


def _made_from(copy: Copy, title: str, paragraphs: list[str], outlet: Outlet | None = None) -> Copy:
    return Copy(copy.story, title, paragraphs, outlet or copy.outlet, copy.number, copy.id, added=copy.added)


def _new_version(copy: Copy, story: Story, added: int, note: str = "") -> Copy:
    return printed(story, copy.outlet, copy.number, copy.id, added, note)


def _elsewhere(random: Random, copy: Copy) -> Outlet:
    known = (*outlets.ENGLISH, *outlets.OTHERS)
    return random.choice(
        [outlet for outlet in known if outlet.language == copy.outlet.language and outlet is not copy.outlet]
    )


def wire_copy(random: Random, copy: Copy) -> Copy:
    """Word for word in another outlet, now and then with other white space or a headline in capitals."""
    paragraphs = list(copy.paragraphs)
    if random.random() < 0.3:
        paragraphs = [paragraph.replace(". ", ".  ") + " " for paragraph in paragraphs]
    title = copy.title.upper() if random.random() < 0.2 and copy.title.isascii() else copy.title
    return _made_from(copy, title, paragraphs, _elsewhere(random, copy))


def headline_changed(random: Random, copy: Copy) -> Copy:
    """Another headline over the same text."""
    return _made_from(copy, copy.story.other_title(), list(copy.paragraphs))


def correction(random: Random, copy: Copy) -> Copy:
    """One name, place or word that was wrong is put right; half of the papers say so."""
    facts = copy.story.facts
    words = [name for name in copy.story.used() if isinstance(facts[name], str)]
    story = copy.story.with_another(random, random.choice(words))
    note = _NOTES[story.desk.language] if random.random() < 0.5 else ""
    return _new_version(copy, story, copy.added, note)


def newer_figures(random: Random, copy: Copy) -> Copy | None:
    """One to three numbers are a little higher."""
    numbers = [(name, fact) for name in copy.story.used() if isinstance(fact := copy.story.facts[name], int)]
    if not numbers:
        return None
    chosen = random.sample(numbers, min(len(numbers), random.randint(1, 3)))
    changed: dict[str, Fact] = {name: fact + random.randint(1, max(1, fact // 8)) for name, fact in chosen}
    return _new_version(copy, copy.story.with_facts(changed), copy.added)


def paragraph_added(random: Random, copy: Copy) -> Copy:
    """A paragraph with what has become known since."""
    return _new_version(copy, copy.story, copy.added + 1)


def live_update(random: Random, copy: Copy) -> Copy | None:
    """The next version of a story that is still going on: newer figures, or a paragraph while there are any."""
    if copy.added < len(copy.story.extras) and random.random() < 0.6:
        return paragraph_added(random, copy)
    return newer_figures(random, copy)


_STYLE = (
    (r"\bper cent\b", "percent"),
    (r"\bmillion euros\b", "m euros"),
    (r"\bkilometres\b", "km"),
    (r"\bcentimetres\b", "cm"),
    (r"\btook over\b", "took charge"),
    (r"\bSome (\d)", r"About \1"),
    (r"\bput the\b", "estimated the"),
    (r"\bon (Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day\b", r"\1day"),
    (r"\bsaid that\b", "said"),
    (r"\bmeasured\b", "recorded"),
    (r"\bhalf of\b", "half"),
)


def house_style(random: Random, copy: Copy) -> Copy | None:
    """Units, spelling and small words as another paper writes them; None where there is nothing to change."""
    if copy.outlet.language != "en":
        return None
    paragraphs = list(copy.paragraphs)
    for pattern, replacement in _STYLE:
        paragraphs = [re.sub(pattern, replacement, paragraph) for paragraph in paragraphs]
    if paragraphs == copy.paragraphs:
        return None
    return _made_from(copy, copy.title, paragraphs, _elsewhere(random, copy))


def reprint(random: Random, copy: Copy) -> Copy:
    """The whole story between the header and the footer of another site."""
    site = _elsewhere(random, copy)
    around = ([site.header] if site.header else [], [text for text in (site.credit, site.footer) if text])
    return _made_from(copy, copy.title, [*around[0], *copy.paragraphs, *around[1]], site)


def cut_short(random: Random, copy: Copy) -> Copy:
    """The first paragraphs only: from the lead alone to nearly all of it."""
    body = len(copy.story.paragraphs)
    kept = copy.paragraphs[: random.randint(max(1, body // 2), max(1, body - 1))]
    return _made_from(copy, copy.title, [*kept, "[...]"], _elsewhere(random, copy))


def same_event(random: Random, copy: Copy) -> Copy:
    """The same event, written independently: most facts agree, few sentences do. Not a near-duplicate."""
    fresh = write(random, copy.story.desk, copy.story.topic)
    story = fresh.with_facts({name: fact for name, fact in copy.story.facts.items() if name in fresh.facts})
    outlet = _elsewhere(random, copy)
    return Copy(story, story.title(), [*story.body(), outlet.credit], outlet, copy.number, copy.id)


EDITS: Mapping[str, Edit] = {
    "wire copy": wire_copy,
    "headline changed": headline_changed,
    "correction": correction,
    "newer figures": newer_figures,
    "paragraph added": paragraph_added,
    "house style": house_style,
    "reprint": reprint,
    "cut short": cut_short,
    "live update": live_update,
    "same event": same_event,
}
