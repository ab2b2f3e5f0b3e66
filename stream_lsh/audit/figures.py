"""The figures that `--fail-if` compares, and its conditions."""

from __future__ import annotations

import difflib
import operator
import re
from collections.abc import Callable, Mapping
from typing import NamedTuple, Self

from stream_lsh.errors import UsageError

FIGURES = {
    "dropped_share": "the index has no live document",
    "dropped_share_of_source": "the index has no source_field, or no source with 20 documents",
    "group_share": "the index keeps no groups, or has no live document",
    "group_share_of_source": "the index has no source_field, or no source with 20 documents",
    "not_compared_share": "give the verdicts with --verdicts FILE",
    "wrong_drop_share": "not every stratum of the report has a label; give labels with --labels FILE",
    "wrong_drop_share_high": "give labels with --labels FILE",
}
"""What is wrong if a figure is not known."""
_OPERATORS: Mapping[str, Callable[[float, float], bool]] = {
    ">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt
}  # fmt: skip
_CONDITION = re.compile(r"\s*(\w+)\s*(>=|<=|>|<)\s*(\d+(?:\.\d*)?|\.\d+)\s*(%?)\s*")


class Condition(NamedTuple):
    """A condition on a figure."""

    text: str
    figure: str
    compare: Callable[[float, float], bool]
    limit: float

    @classmethod
    def of(cls, text: str) -> Self:
        """The condition of a text such as `dropped_share>0.5` or `dropped_share > 50%`.

        Raises:
            UsageError: it is none, or its figure is unknown.
        """
        found = _CONDITION.fullmatch(text)
        if found is None:
            raise UsageError(f"--fail-if {text}: give FIGURE>NUMBER, for example dropped_share_of_source>0.5")
        figure, name, limit, percent = found.groups()
        if figure not in FIGURES:
            near = difflib.get_close_matches(figure, FIGURES, 1, 0.4)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise UsageError(
                f"--fail-if {text}: there is no figure {figure}{hint or '; give one of ' + ', '.join(FIGURES)}"
            )
        return cls(text, figure, _OPERATORS[name], float(limit) / (100 if percent else 1))

    def holds(self, figures: Mapping[str, float | None]) -> bool:
        """Whether it holds.

        Raises:
            UsageError: the figure is not known.
        """
        value = figures[self.figure]
        if value is None:
            raise UsageError(f"--fail-if {self.text}: {self.figure} is not known: {FIGURES[self.figure]}")
        return self.compare(value, self.limit)
