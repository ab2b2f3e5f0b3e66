"""What the demo shows of a week of stories: the large ones day by day, why the articles of one are together, and how
right that is."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from stream_lsh.demo.display import NARROW, to_try
from stream_lsh.demo.stories import Diary, Story, Twin, terms_of
from stream_lsh.demo.week import DAY, DAYS, HOUR, START
from stream_lsh.wording import count, plain_table

LARGEST, ARTICLES = 12, 9  # stories in the table, and articles of the one that is looked into
NAMED = 4  # terms that are named of an article
BARS = "▁▂▃▄▅▆▇█"
LEGEND = (
    "A bar is a day of the story, the highest its busiest one. Under each headline: the words that decided for most of "
    "its articles. others: articles of another event; missed: articles of this event that are not in this story"
)


def show(console: Console, diary: Diary) -> None:
    """Print all of it."""
    for block in (
        week_table(diary, console.width), article_table(diary, looked_into(diary), console.width), quality(diary),
    ):  # fmt: skip
        console.print(block)
        console.print()
    console.print(go_on(diary), soft_wrap=True)  # a command stays on one line, so that it can be copied


def week_table(diary: Diary, width: int) -> Group:
    """The largest stories: how each begins, swells and ends, and how much of it is right."""
    gap = " " if width >= NARROW else ""
    shown = diary.stories[:LARGEST]
    table = plain_table(f"The largest of {count(len(diary.stories), 'story', 'stories')} of the week", "first member")
    table.add_column(gap.join(day[0] for day in DAYS), no_wrap=True)
    for name in ("articles", "sources", "others", "missed"):
        table.add_column(name, justify="right")
    for story in shown:
        title = Text(diary.entries[story.members[0]].document["title"])
        table.add_row(
            title.append("\n").append(", ".join(story.terms), "dim"),
            Text(gap.join(bars(story.days)), "cyan"), str(len(story.members)), str(story.sources),
            Text(str(story.others), "yellow" if story.others else ""),
            Text(str(story.missed), "yellow" if story.missed else ""),
        )  # fmt: skip
    return Group(table, Text(LEGEND, "dim"))


def bars(days: Sequence[int]) -> list[str]:
    """A bar for each day, the highest for the busiest; a dot where there is nothing."""
    most = max(days)
    return [BARS[-(-number * len(BARS) // most) - 1] if number else "·" for number in days]


def looked_into(diary: Diary) -> Story:
    """The story to look into: of the largest ones that which lasts longest, in English, and nearly all of one event if
    there is such a one."""

    def fitness(story: Story) -> tuple[bool, bool, int, int]:
        english = diary.entries[story.members[0]].document["lang"] == "en"
        clear = story.others <= len(story.members) // 10
        return english, clear, sum(map(bool, story.days)), len(story.members)

    return max(diary.stories[:LARGEST], key=fitness)


def article_table(diary: Diary, story: Story, width: int) -> Table:
    """Some articles of a story from its beginning to its end, with what decided for each."""
    places = _spread(story.members, ARTICLES)
    wide = width >= NARROW
    title = f"Why they are one story: {len(places)} of its {count(len(story.members), 'article')}"
    what = "article, and what it shares with earlier ones"
    table = plain_table(title, "when", *(["source"] if wide else []), ">similarity", what)
    for place in places:
        entry, verdict = diary.entries[place], diary.verdicts[place]
        founds = verdict["similarity"] is None
        text = Text(entry.document["title"])
        if entry.story != story.event:
            text.append("  (another event)", "yellow")
        reason = "founds the story" if founds else ", ".join(terms_of(verdict)[:NAMED])
        if verdict["kind"] == "exact_duplicate":
            reason = f"the same text; {reason}"
        text.append("\n").append(reason, "dim")
        source = [entry.document["source"]] if wide else []
        table.add_row(_when(entry.document["ts"]), *source, "" if founds else f"{verdict['similarity']:.2f}", text)
    return table


def _spread(members: Sequence[int], wanted: int) -> list[int]:
    """The first, the last, and as many as wanted from in between, at equal distances."""
    if len(members) <= wanted:
        return list(members)
    return [members[number * (len(members) - 1) // (wanted - 1)] for number in range(wanted)]


def _when(ts: int) -> str:
    day, rest = divmod(ts - START, DAY)
    return f"{DAYS[day][:3]} {rest // HOUR}:{rest % HOUR // 60_000:02}"


def quality(diary: Diary) -> Group:
    """How right it is, in words."""
    q, stories = diary.quality, count(diary.quality.groups, "story", "stories")
    english, others = diary.singles
    alone = 2 * q.labels / (q.labels + q.documents)  # precision 1, recall the labels by the documents
    facts = (
        ("Truth", f"{count(q.documents, 'article')} tell of {count(q.labels, 'event')}, {diary.events} of which "
         f"several papers report. Found: {stories}, of one article or more"),
        ("B-cubed F1", f"{q.f1:.3f}: of an article's story {q.precision:.3f} is of its event, and of its event "
         f"{q.recall:.3f} is in its story. If each article were a story of its own: {alone:.3f}"),
        ("Adjusted Rand", f"{q.adjusted_rand:.3f}; both are 1 if all is right"),
        ("Events", f"{diary.whole} of the {diary.events} are in one story with all of their articles, {diary.pure} of "
         "these with nothing else in it"),
        ("Single reports", f"put into a story of another event: {english.misplaced} of {english.articles} in English, "
         f"{others.misplaced} of {others.articles} in other languages. Made-up news has few sentences for each sort of "
         "event; and of the common words of another language a few articles say little"),
        *(("A twin", _twin(diary, twin)) for twin in diary.twins),
    )  # fmt: skip
    return Group(*(Text.assemble((f"{what} ", "bold"), said) for what, said in facts))


def _twin(diary: Diary, twin: Twin) -> str:
    first, before = diary.entries[twin.first].document, diary.entries[twin.before].document
    days = [DAYS[(document["ts"] - START) // DAY] for document in (before, first)]
    return (
        f'{days[1]}: "{first["title"]}" comes back to the names of {days[0]}: "{before["title"]}". '
        f"{twin.mistaken} of its {count(twin.articles, 'article')} were taken for that story"
    )


def go_on(diary: Diary) -> Text:
    """Commands to try next, with the paths of this run if it was kept."""
    settings = "--measure tf-idf --text-field title --text-field text --time-field ts --match-within lang"
    own = ("your own news", f"stream-lsh dedup news.jsonl {settings} --index stories --verdicts verdicts.jsonl")
    if diary.folder is None:
        return to_try([("keep the week, its truth and the index", "stream-lsh demo --stories --keep week"), own])
    folder = shlex.quote(str(diary.folder))
    language = diary.entries[diary.stories[0].members[-1]].document["lang"]  # that of article.txt
    query = f"stream-lsh query {folder}/article.txt --within lang={language} --index {folder}/index"
    return to_try(
        [
            ("the stories of the week", f"stream-lsh groups --index {folder}/index"),
            ("one of them", f"stream-lsh groups {diary.stories[0].members[0]} --index {folder}/index"),
            ("what tells of the same as an article", query),
            (
                "another threshold, against the truth",
                f"stream-lsh evaluate {folder}/feed.jsonl {settings} --labels story --threshold 0.3",
            ),
            own,
        ]
    )
