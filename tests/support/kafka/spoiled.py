"""How a feed of JSON lines for the pipeline under test is spoiled: deletions, repeated and reused ids, and what is no
document."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

NO_TEXTS: tuple[Mapping[str, Any], ...] = tuple({"text": value} for value in (None, 7, "", " ? "))


class Spoiled:
    """Lines, written one document after the other; all chances are from one generator.

    changes: a share of deletions, and as many under an id that was there. wrong: what makes a document none, a share of
    `bad` of them.
    """

    def __init__(
        self, chance: np.random.Generator, changes: float, wrong: Sequence[Mapping[str, Any]], bad: float = 0.02
    ) -> None:
        self.lines: list[bytes] = []
        self._chance, self._changes, self._wrong, self._bad = chance, changes, wrong, bad
        self._dice = 0.0

    def delete(self, i: int, **more: Any) -> None:
        """Perhaps, before the i-th document, an earlier one; more: fields of the record."""
        if i and self._chance.random() < self._changes:
            self.add({"id": f"d{self._chance.integers(i)}", "deleted": True, **more})

    def spoil(self, i: int, document: dict[str, Any]) -> None:
        """Perhaps give the i-th document another one's id, or what makes it none."""
        self._dice = self._chance.random()
        if self._dice < 0.02 + self._changes and i:
            document["id"] = f"d{int(self._chance.integers(i))}"
        elif self._dice < 0.02 + self._bad + self._changes:
            document |= self._wrong[int(self._chance.integers(len(self._wrong)))]

    def add(self, document: Mapping[str, Any]) -> None:
        """Write it."""
        self.lines.append(json.dumps(document).encode())

    def again(self) -> None:
        """Perhaps an earlier line once more, or the last one cut off."""
        if self._dice > 0.97:
            self.lines.append(self.lines[int(self._chance.integers(len(self.lines)))])
        elif self._dice > 0.965:
            self.lines.append(self.lines[-1][:-7])
