"""How a group has grown, as a picture."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stream_lsh.cli.image import image
from stream_lsh.documents.times import NO_TIME

if TYPE_CHECKING:
    from stream_lsh.embedded.group_store import Member
    from stream_lsh.judging.groups import Group


@dataclass(frozen=True, slots=True)
class Growth:
    """Steps of a group, ascending: one at each event time, or at each `seq` where there are no event times.

    Each has the members so far, the live members, their sources, and the new versions of members at that step."""

    timed: bool
    at: Sequence[int]
    members: Sequence[int]
    live: Sequence[int]
    sources: Sequence[int]
    updates: Sequence[int]


def growth(members: Iterable[Member]) -> Growth:
    """The growth of a group whose versions are given in the order of the log. A version without a time counts at the
    step of the one before it."""
    versions = list(members)
    seqs, latest = [member.seq for member in versions], list(accumulate((member.time for member in versions), max))
    timed = any(member.time != NO_TIME for member in versions)
    changes: list[tuple[int, int, int, bytes, int]] = []  # when; members and live members more; source; new versions
    now = min((member.time for member in versions if member.time != NO_TIME), default=NO_TIME)
    for member in versions:
        now = member.time if member.time != NO_TIME else now
        came = now if timed else member.seq
        changes.append((came, not member.update, 1, member.source, member.update))
        if member.removed_by is not None:
            until = (
                member.removed_at if member.removed_at != NO_TIME else latest[bisect_left(seqs, member.removed_by) - 1]
            )
            removed = max(came, until) if timed else member.removed_by
            changes.append((removed, 0, -1, b"", 0))
    total = live = 0
    sources = {b""}
    steps: dict[int, tuple[int, int, int, int]] = {}
    for at, more, more_live, source, update in sorted(changes, key=lambda change: change[0]):
        total, live = total + more, live + more_live
        sources.add(source)
        steps[at] = total, live, len(sources) - 1, update + steps.get(at, (0, 0, 0, 0))[3]
    columns = list(zip(*steps.values(), strict=True))
    return Growth(timed, list(steps), *map(list, columns))


def draw_growth(path: Path, group: Group, members: Iterable[Member]) -> None:
    """Write the picture as PNG or SVG; the same group gives the same bytes.

    Raises:
        OutputError: the file cannot be written.
    """
    found = growth(members)
    with image(path) as axes:
        at = [datetime.fromtimestamp(time / 1000, UTC) for time in found.at] if found.timed else list(found.at)
        axes.fill_between(at, found.live, step="post", color="tab:blue", alpha=0.15)
        axes.step(at, found.live, where="post", color="tab:blue", linewidth=1, label=f"live: {group.live_members:,}")
        axes.step(
            at, found.members, where="post", color="black", linewidth=2, label=f"members: {group.total_members:,}"
        )
        axes.step(
            at, found.sources, where="post", color="tab:red", linewidth=1, linestyle="--",
            label=f"sources: {group.sources:,}",
        )  # fmt: skip
        if any(found.updates):
            places = [place for place, count in enumerate(found.updates) if count]
            axes.plot(
                [at[place] for place in places], [found.live[place] for place in places], "o", color="tab:blue",
                markersize=4, label=f"new versions: {sum(found.updates):,}",
            )  # fmt: skip
        axes.set_ylim(bottom=0)
        axes.yaxis.get_major_locator().set_params(integer=True)
        axes.set(
            xlabel="event time (UTC)" if found.timed else "seq", ylabel="documents, and sources",
            title=f"group {group.group}, representative {_name(group)}",
        )  # fmt: skip
        if found.timed:
            from matplotlib.dates import ConciseDateFormatter

            formatter: Any = ConciseDateFormatter
            axes.xaxis.set_major_formatter(formatter(axes.xaxis.get_major_locator(), tz=UTC))
        axes.legend(loc="upper left", fontsize=8)


def _name(group: Group) -> str:
    """The name of a group's representative."""
    found = json.loads(group.id)
    return "none" if found is None else str(found)
