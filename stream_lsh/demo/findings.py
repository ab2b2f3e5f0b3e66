"""What the demo on Kafka has found so far, counted and in lines."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Mapping
from typing import Any

import orjson

from stream_lsh.wording import count, duration

OUTPUTS = ("pairs", "alerts", "verdicts", "groups")
"""The topics that are read, pairs and alerts first."""
TITLES = 10_000  # of the latest documents, which pairs and alerts name


class Findings:
    """Takes the lines of the outputs, and says what they mean.

    Attributes:
        sent: documents that Kafka has acknowledged. first_pair: seconds from the start, None before there is one.
    """

    def __init__(self, pairs: int) -> None:
        """pairs: how many are shown between two calls of `counts`."""
        self.sent = 0
        self.first_pair: float | None = None
        self._most = self._left = pairs
        self._totals: Counter[str] = Counter()
        self._kinds: Counter[str] = Counter()
        self._groups: dict[int, tuple[int, int]] = {}
        self._titles: OrderedDict[str, str] = OrderedDict()
        self._said = ""

    def send(self, id: str | None, title: str) -> None:
        """A document is about to be sent."""
        if id is not None and title:
            self._titles[id] = title
            if len(self._titles) > TITLES:
                self._titles.popitem(last=False)

    def take(self, output: str, line: bytes, seconds: float) -> str | None:
        """What to show of a line of an output, if anything. seconds: since the start."""
        found = orjson.loads(line)
        self._totals[output] += 1
        if output == "verdicts":
            self._kinds[found["kind"]] += 1
        elif output == "groups":
            self._groups[found["group"]] = found["total_members"], found["sources"]
        elif output == "alerts":
            return self._alert(found)
        elif output == "pairs":
            if self.first_pair is None:
                self.first_pair = seconds
            if self._left:
                self._left -= 1
                newer = found["newer"]
                return f"pair   {found['similarity']:.2f}  {newer} is like {found['older']}" + self._title(newer)
        return None

    def counts(self) -> str | None:
        """All that was found, in a line; None if nothing is new."""
        self._left = self._most
        if not self._totals:
            return None
        text = (
            f"{count(self._totals['verdicts'], 'verdict')}, {count(self._totals['pairs'], 'pair')}, "
            f"{count(len(self._groups), 'group')}, {count(self._totals['alerts'], 'alert')}"
        )
        if text == self._said:
            return None
        self._said = text
        return text

    def summary(self, seconds: float) -> str:
        """What the demo has done. seconds: from its start to its end."""
        kinds = ", ".join(f"{number:,} {kind.replace('_', ' ')}" for kind, number in self._kinds.most_common())
        largest = max(self._groups.values(), default=(0, 0))
        first = "none" if self.first_pair is None else f"{duration(self.first_pair)} after the start"
        rows = (
            ("documents", f"{self.sent:,} sent in {duration(seconds)}"),
            ("verdicts", f"{self._totals['verdicts']:,}" + (f": {kinds}" if kinds else "")),
            ("pairs", f"{self._totals['pairs']:,}; the first {first}"),
            ("groups", f"{len(self._groups):,}" + _of(", the largest with {} from {}", largest)),
            ("alerts", f"{self._totals['alerts']:,}"),
        )
        return "\n".join(f"{name:<11}{text}" for name, text in rows)

    def _alert(self, alert: Mapping[str, Any]) -> str:
        row = alert["group"]
        members = _of("{} from {}", (row["total_members"], row["sources"]))
        return f"alert  {alert['rule']}: {members} in group {row['group']}" + self._title(row["representative"]["id"])

    def _title(self, id: str) -> str:
        title = self._titles.get(id)
        return f": {title}" if title else ""


def _of(text: str, group: tuple[int, int]) -> str:
    """`10 documents`, `7 sources` in a text; nothing of an empty group."""
    members, sources = group
    return text.format(count(members, "document"), count(sources, "source")) if members else ""
