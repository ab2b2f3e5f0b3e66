"""What became of the story that spreads, as a table: what papers did, and what that made of its group."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from rich.console import Group
from rich.text import Text

from stream_lsh.demo.spread import START, Entry, Spreading
from stream_lsh.wording import count, plain_table

SECONDS = 1000
MEANINGS = {
    "": "kept; a group begins with its second member",
    "created": "the first copy, dropped for it: now there is a group",
    "joined": "copies, dropped for it",
    "updated": "new versions of members, in their places",
    "left": "deleted; the others stay",
    "representative_changed": "the kept one was deleted; the oldest of the others is the representative",
    "ended": "the last one was deleted",
}


@dataclass(frozen=True)
class Row:
    """Some records in a row with which the same happened: the first and the last, of how many papers, the event of the
    last one, and the alert with it."""

    first: Entry
    last: Entry
    papers: int
    event: Mapping[str, Any]
    alert: Mapping[str, Any] | None


def rows(spreading: Spreading) -> Iterator[Row]:
    """All records, together as far as the same happened with them; an alert ends a row."""
    events = {event["seq"]: event for event in spreading.events}
    alerts = {alert["seq"]: alert for alert in spreading.alerts}
    fired = 0

    def key(item: tuple[int, Entry]) -> tuple[str, str, int]:
        nonlocal fired
        fired += item[0] - 1 in alerts
        return item[1].what, events.get(item[0], {}).get("event", ""), fired

    for _, items in groupby(enumerate(spreading.entries), key):
        some = list(items)
        last, entry = some[-1]
        papers = len({entry.source for _, entry in some})
        yield Row(some[0][1], entry, papers, events.get(last, {}), alerts.get(last))


def timeline(spreading: Spreading, width: int, narrow: int) -> Group:
    """The table, and the final representative."""
    wide = width >= narrow
    names = ("after", "what papers do", "event", ">members", ">live", ">sources", *([""] if wide else []))
    table = plain_table("A story that spreads, is corrected and withdrawn", *names)
    for row in rows(spreading):
        event = row.event
        cells = [str(event.get(name, "")) for name in ("total_members", "live_members", "sources")]
        meaning = [Text(MEANINGS[event.get("event", "")], "dim")] if wide else []
        table.add_row(_when(row), _who(row), Text(event.get("event", ""), "bold"), *cells, *meaning)
        if (alert := row.alert) is not None:
            said = f"{alert['members']} members of {alert['group']['sources']} sources within an hour"
            why: list[str | Text] = ["", "", "", "", Text(said, "yellow")] if wide else []
            table.add_row(_clock(row.last.ts), Text(f"alert: {alert['rule']}", "yellow"), *why)
    return Group(table, Text(_end(spreading.events), "dim"))


def _when(row: Row) -> str:
    first, last = _clock(row.first.ts), _clock(row.last.ts)
    return first if first == last else f"{first} - {last}"


def _clock(time: int) -> str:
    minutes = (time - START) // (60 * SECONDS)
    return f"{minutes // 60}:{minutes % 60:02}"


def _who(row: Row) -> str:
    if row.papers == 1:
        return f"{row.last.source} {row.last.what}s it"
    return f"{row.papers} papers {row.last.what} it"


def _end(events: Sequence[Mapping[str, Any]]) -> str:
    last = events[-1]
    return (
        f"{count(last['sources'], 'source')}, 1 origin. What still has it: {count(last['live_members'], 'document')}; "
        f"{last['representative']['id']} is the representative."
    )
