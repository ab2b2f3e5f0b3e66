"""How surely a pair becomes a candidate, over the value that its measure goes by: what `tuning` is to copies (MMDS
3.6: families that are (d1, d2, p1, p2)-sensitive, amplified).

Plain arithmetic and no imports that take time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from stream_lsh.families import containment
from stream_lsh.families.measure import BY_DISTANCE, CERTAIN, Measure, collision, similarity_at
from stream_lsh.families.tuning import Banding, probability

_STEPS = 2000  # of the integral over the cosines of random directions
_NEVER = 1e-30  # a probability that counts as none


@dataclass(frozen=True)
class Curve:
    """P(candidate) of the pairs of an index.

    measure: which. banding: its K, b and r. asked: the threshold of the index (jaccard, cosine) or its distance.
    dimensions: of its vectors or bit vectors. sampling, shingles: of quotations one shingle in so many is a key, and
    texts have so many.
    """

    measure: Measure
    banding: Banding
    asked: float
    dimensions: int = 0
    sampling: int = 1
    shingles: int = 0

    @property
    def by_distance(self) -> bool:
        """Whether the value is a distance, not a similarity."""
        return self.measure in BY_DISTANCE

    def probability(self, similarity: float) -> float:
        """P(candidate) of a pair of this similarity, as verdicts have it."""
        return self.at(self.value_of(similarity))

    def value_of(self, similarity: float) -> float:
        """What a similarity in a verdict means: itself, or the distance."""
        if not self.by_distance:
            return similarity
        return round(self.apart(similarity)) if self.measure in CERTAIN else self.apart(similarity)

    def apart(self, similarity: float) -> float:
        """The distance that a similarity in a verdict comes to, with what rounding has done to it."""
        return (1 - similarity) * self.dimensions if self.measure == "hamming" else 1 / similarity - 1

    def similarity_of(self, value: float) -> float:
        """The similarity in verdicts of pairs at a threshold or a distance."""
        return similarity_at(self.measure, value, self.dimensions) if self.by_distance else value

    def component(self, value: float) -> float:
        """P(a component of the signatures is the same), at a similarity or a distance.

        Raises:
            ValueError: for a measure whose components are no random ones.
        """
        if self.measure == "euclidean":
            return collision("euclidean", 0.0, value / self.asked)
        return collision(self.measure, value)

    def band(self, value: float) -> float:
        """P(one given key is the same), at a similarity or a distance."""
        return float(self.component(value) ** self.banding.rows)

    def at(self, value: float) -> float:
        """P(candidate) at a similarity or a distance (a whole number of bits or edits, anywhere in a row or text; of
        texts at most, as pieces may stand too far from their places)."""
        if self.measure == "levenshtein":
            return untouched(self.blocks, int(value)) if math.isfinite(value) else 0.0
        if self.measure == "containment":
            return containment.probability(value, self.shingles, self.asked, self.sampling)
        if self.measure == "hamming":
            return clean_blocks(self.dimensions, self.blocks, self.banding.rows, int(value))
        return probability(self.component(value), self.banding.bands, self.banding.rows)

    @property
    def blocks(self) -> int:
        """Blocks of a bit vector, pieces of a text."""
        return int(self.asked) + self.banding.rows

    def among_strangers(self) -> float:
        """P(candidate) of two rows of random bits, or of two vectors of random directions.

        Raises:
            ValueError: of a measure for which nobody can say what strangers are.
        """
        if self.measure == "hamming":
            return _equal_blocks(self.dimensions, self.blocks, self.banding.rows)
        if self.measure != "cosine":
            raise ValueError(f"strangers of {self.measure} are not known; measure a sample")
        if self.dimensions == 1:
            return (self.at(1.0) + self.at(-1.0)) / 2
        # The cosine of two random directions: with an angle t, sin(t)^(dimensions - 2) as dense as without.
        whole = found = 0.0
        for step in range(_STEPS):
            angle = math.pi * (step + 0.5) / _STEPS
            weight = math.sin(angle) ** (self.dimensions - 2)
            whole += weight
            found += weight * self.at(math.cos(angle))
        return found / whole

    def false_candidates(self, documents: float, background: Iterable[tuple[float, float]]) -> float:
        """Expected candidates beyond what is asked for that a new document meets among `documents` older ones.

        background: (similarity or distance, number of pairs) of random pairs, all of them.
        """
        pairs = candidates = 0.0
        for value, count in background:
            pairs += count
            if value > self.asked if self.by_distance else value < self.asked:
                candidates += count * self.at(value)
        return documents * candidates / pairs if pairs else 0.0


def untouched(pieces: int, edits: int) -> float:
    """P(one of so many pieces at least is not hit by any of so many edits); 1 where it is certain."""
    if edits < pieces:
        return 1.0
    chances = [1.0] + [0.0] * pieces  # that so many are hit
    for _ in range(edits):
        for hit in range(pieces, 0, -1):
            chances[hit] = chances[hit] * hit / pieces + chances[hit - 1] * (pieces - hit + 1) / pieces
        chances[0] = 0.0
    return 1.0 - chances[pieces]


def clean_blocks(dimensions: int, blocks: int, least: int, flipped: int) -> float:
    """P(at least so many blocks of a bit vector have none of the bits that are flipped, drawn at random).

    Exact for blocks of equal length, of which a bit more or less changes the third digit; 1 where it is certain.
    """
    found = _clean_blocks(dimensions, blocks, least)
    return found[flipped] if flipped < len(found) else 0.0


@lru_cache(maxsize=4)
def _clean_blocks(dimensions: int, blocks: int, least: int) -> list[float]:
    """The same for every number of bits from 0 on, until it is 0."""
    length = dimensions / blocks
    chances = [0.0] * blocks + [1.0]  # of so many clean blocks
    found = [1.0]
    for done in range(dimensions):
        after = [0.0] * (blocks + 1)
        for clean, chance in enumerate(chances):
            if chance:
                hit = min(1.0, clean * length / (dimensions - done))
                after[clean] += chance * (1 - hit)
                if clean:
                    after[clean - 1] += chance * hit
        chances = after
        found.append(1.0 if blocks - done - 1 >= least else min(1.0, sum(chances[least:])))
        if found[-1] < _NEVER:
            break
    return found[:-1] if found[-1] < _NEVER else found


def _equal_blocks(dimensions: int, blocks: int, least: int) -> float:
    """P(at least so many blocks of two rows of random bits are equal)."""
    chances = [1.0] + [0.0] * least  # of so many equal ones; the last: or more
    for block in range(blocks):
        equal = 2.0 ** -(dimensions // blocks + (block < dimensions % blocks))
        for number in range(least, 0, -1):
            kept = chances[number] if number == least else chances[number] * (1 - equal)
            chances[number] = kept + chances[number - 1] * equal
        chances[0] *= 1 - equal
    return chances[least]
