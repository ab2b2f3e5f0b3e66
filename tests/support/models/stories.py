"""What stories mean, in plain Python: every document is compared with all that share one of their heaviest terms.

Nothing of the index is used: no buckets, no limits, no tables. Terms are those of the signer, which has tests of its
own, and the logarithm is the engine's, whose rounding is part of the answers.
"""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from stream_lsh.families.measure import STORY_KEYS, STORY_TERMS
from stream_lsh.families.terms import NAME_BIT, TERM_SHIFT, UNIT, WEIGHT_MASK, TermSigner, log2
from stream_lsh.index.kernel.document_frequency import BEFORE, SLOTS
from stream_lsh.index.kernel.tf_idf import LOST, MEMBERS, PAD, QUIET, TELLERS
from stream_lsh.settings.model import Settings
from support.models.changes import Model, Seen, Verdict


class Term(NamedTuple):
    """weight: by what the text says of it. entry: the number that it is, which decides among equals."""

    term: int
    name: bool
    weight: float
    entry: int


def _power(logarithm: float) -> float:
    """Its power 0.8, in steps."""
    return float(np.round((int(64 * logarithm) / 64) ** 0.8 * 2.0**20) / 2.0**20)


class Stories(Model):
    """A model of an index with measure = tf-idf, whose segments end after so many documents, and where there is a
    window with every minute."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(
            settings.window_ms, settings.least, unique=True, update=settings.updates, compare=self._resembles
        )
        self._signer = TermSigner(settings.signing)
        self._part, self._first, self._records = 0, -1, 0
        self._most = settings.documents_of_a_segment
        self._counts = Counter[int]()  # 16 a document
        self._among = 0.0  # documents that the one at hand may match, and some
        self._tellers = 0  # members of its story that the last document met
        self._rows: dict[int, list[Term]] = {}  # by number, of the version with it
        self._all: dict[int, list[Term]] = {}

    def judge(self, seq: int, id: Any, text: str, time: int | None, stamp: int | None = None) -> Verdict:
        self._all[seq] = self._terms(text)
        before = len(self.stored)
        verdict = super().judge(seq, id, text, time, stamp)
        if len(self.stored) > before and self._tellers < TELLERS:
            self._counts.update({slot: 16 * n for slot, n in Counter(t.term % SLOTS for t in self._all[seq]).items()})
        return verdict

    def _go_on(self, time: int | None) -> None:
        super()._go_on(time)
        part, self._records = self._records // self._most, self._records + 1
        if self.window and self._first >= 0 and (part != self._part or self.log // 60_000 > self._first // 60_000):
            self._counts = Counter({slot: n - ((n + 7) >> 3) for slot, n in self._counts.items()})
            self._first = -1
        if self._first < 0:
            self._part, self._first = part, self.log

    def _terms(self, text: str) -> list[Term]:
        said = text.encode()
        found, _ = self._signer.shingle(said, np.array([len(said)]))
        return [
            Term(int(entry >> TERM_SHIFT), bool(entry & NAME_BIT), float(entry & WEIGHT_MASK) / UNIT, int(entry))
            for entry in found
        ]

    def _rare(self, term: int, own: bool) -> float:
        ratio = max(1.0, self._among / (self._counts[term % SLOTS] / 16 + own + 0.5))
        return _power(log2(ratio))

    def _weighed(self, seq: int) -> list[Term]:
        """The heaviest terms of a version that comes now."""
        *terms, every = self._all[seq]
        self._among = self._counts[every.term % SLOTS] / 16 + 2 + BEFORE
        order = [(int(t.weight * self._rare(t.term, True) * 65536), t.entry, t) for t in terms]
        return [term for _, _, term in sorted(order, reverse=True)[:STORY_TERMS]]

    def _cosine(self, mine: list[Term], other: list[Term], *, names: bool = False) -> float | None:
        own = {t.term for t in mine}
        a = {t.term: t.weight * self._rare(t.term, True) for t in mine if t.name or not names}
        b = {t.term: t.weight * self._rare(t.term, t.term in own) for t in other if t.name or not names}
        if names and not (a and b):
            return None
        pad = PAD * _power(log2(self._among)) ** 2
        squares = [sum(weight * weight for weight in side.values()) + pad for side in (a, b)]
        return sum(a[t] * b[t] for t in a if t in b) / math.sqrt(squares[0] * squares[1])

    def _measure(self, mine: list[Term], other: list[Term]) -> float:
        every, names = self._cosine(mine, other), self._cosine(mine, other, names=True)
        assert every is not None
        value = every if names is None else every**0.75 * names**0.25
        return math.floor(value * 2.0**30 + 0.5) / 2.0**30

    def _resembles(self, new: Seen, old: Seen) -> float:
        return self._measure(self._weighed(new.seq), self._rows[old.seq])

    def _verdict(self, new: Seen, without: Any = None) -> Verdict:
        mine = self._rows[new.seq] = self._weighed(new.seq)
        numbers = {seen.seq: seen for seen in self.stored}
        seen = [
            other for other in self.stored
            if other.live and other is not without and self._sees(other.log)
            and self._sees(numbers[other.verdict.group or 0].log)
        ]  # fmt: skip
        same = [other for other in self.stored if other.text == new.text and other.live and other is not without
                and self._sees(other.log)][-1:]  # fmt: skip
        if same and same[0] in seen:
            self._tellers = int(TELLERS)
            new.dropped_for = same[0]
            return Verdict(
                "exact_duplicate", None, same[0].id, 1.0, same[0].verdict.group, ((same[0].id, same[0].seq, 1.0),)
            )
        keys = {t.term for t in mine[:STORY_KEYS]}
        met = [other for other in seen if keys & {t.term for t in self._rows[other.seq][:STORY_KEYS]}]
        liked = sorted((-self._measure(mine, self._rows[other.seq]), other.seq, other) for other in met)
        stories: dict[int, list[tuple[float, Seen]]] = {}
        for value, _, other in liked:
            chosen = stories.setdefault(other.verdict.group or 0, [])
            if len(chosen) < MEMBERS and not any(self._alike(other, one) for _, one in chosen):
                chosen.append((-value, other))
        means = {
            group: sum(value for value, _ in chosen) / len(chosen) * self._awake(new, group, met)
            for group, chosen in stories.items()
        }
        best = min(means, key=lambda group: (-means[group], group), default=None)
        self._tellers = 0
        if best is None or means[best] < self.threshold:
            return Verdict("unique", group=new.seq)
        new.dropped_for = stories[best][0][1]
        self._tellers = sum(other.verdict.group == best for other in met)
        listed = tuple((other.id, other.seq, value) for value, other in stories[best])
        return Verdict("near_duplicate", None, new.dropped_for.id, means[best], best, listed)

    def _awake(self, new: Seen, group: int, met: Sequence[Seen]) -> float:
        """What is left of the similarity of a story, by how far its nearest member is away in time."""
        times = [other.time for other in met if other.verdict.group == group]
        quiet = min(0 if new.time is None or time is None else abs(new.time - time) for time in times)
        return float(1 - LOST * quiet / (quiet + int(QUIET)))

    def _alike(self, one: Seen, other: Seen) -> bool:
        a, b = ({t.term % 1024 for t in self._rows[seen.seq]} for seen in (one, other))
        return len(a & b) >= 0.6 * len(a | b)
