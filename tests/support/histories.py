"""Feeds in which documents are changed and withdrawn, come again, or late: the same ones, whatever documents are."""

import random
from typing import Any


class Changing:
    """Documents that `value` makes, in `field`; chance: what is drawn from."""

    chance: random.Random
    field = "text"

    def value(self) -> Any:
        """One more, as JSON has it."""
        raise NotImplementedError

    def plain(self, n: int) -> list[dict[str, Any]]:
        """Each under an id of its own."""
        return [{"id": i, self.field: self.value(), "ts": 1000 + i} for i in range(n)]

    def history(self, n: int) -> list[dict[str, Any]]:
        """Many of which are changed and withdrawn, or late; of two languages."""
        out: list[dict[str, Any]] = []
        for i in range(n):
            what, old = self.chance.random(), self.chance.choice(out[-80:])["id"] if out else "begin"
            ts = 1000 + i - 40 * (self.chance.random() < 0.1)
            if what < 0.15:
                out.append({"id": old, "deleted": True, **({"ts": ts} if what < 0.08 else {})})
            elif what > 0.9 and out:
                out.append(self.chance.choice(out[-20:]))
            else:
                id = old if what < 0.35 else i if i % 2 else f"d{i}"
                out.append({"id": id, self.field: self.value(), "ts": ts, "lang": self.chance.choice(("en", "de"))})
        return out
