"""P(candidate) of a pair, by similarity or distance, for all measures (MMDS 3.6: families that are (d1, d2, p1,
p2)-sensitive, amplified).

Plain arithmetic and no slow imports.
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
_NEVER = 1e-30  # a probability that counts as zero


@dataclass(frozen=True)
class Curve:
    """P(candidate) of the pairs of an index.

    Attributes:
        measure, banding: of the index; its K, b and r.
        asked: the threshold of the index, or its max_distance.
        dimensions: of its vectors or bit vectors.
        sampling, shingles: under `containment`: one shingle in `sampling` is a key, and texts have `shingles` shingles.
    """

    measure: Measure
    banding: Banding
    asked: float
    dimensions: int = 0
    sampling: int = 1
    shingles: int = 0

    @property
    def by_distance(self) -> bool:
        """Whether the measure has a distance instead of a similarity."""
        return self.measure in BY_DISTANCE

    def probability(self, similarity: float) -> float:
        """P(candidate) of a pair with this similarity in a verdict."""
        return self.at(self.value_of(similarity))

    def value_of(self, similarity: float) -> float:
        """The value of a similarity in a verdict: itself, or the distance."""
        if not self.by_distance:
            return similarity
        return round(self.apart(similarity)) if self.measure in CERTAIN else self.apart(similarity)

    def apart(self, similarity: float) -> float:
        """The distance of a similarity in a verdict, not rounded."""
        return (1 - similarity) * self.dimensions if self.measure == "hamming" else 1 / similarity - 1

    def similarity_of(self, value: float) -> float:
        """The similarity in verdicts of pairs at a threshold or a distance."""
        return similarity_at(self.measure, value, self.dimensions) if self.by_distance else value

    def component(self, value: float) -> float:
        """P(a component of the signatures is equal), at a similarity or a distance.

        Raises:
            ValueError: components of this measure are not random.
        """
        if self.measure == "euclidean":
            return collision("euclidean", 0.0, value / self.asked)
        return collision(self.measure, value)

    def band(self, value: float) -> float:
        """P(one given key is equal), at a similarity or a distance."""
        return float(self.component(value) ** self.banding.rows)

    def at(self, value: float) -> float:
        """P(candidate) at a similarity or a distance. Bits and edits are a whole number, at random places. For texts it
        is an upper bound, because a piece may have moved too far."""
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

    def by_chance(self) -> float:
        """P(candidate) of two random bit vectors, or of two vectors with random directions.

        Raises:
            ValueError: random documents are not defined for this measure.
        """
        if self.measure == "hamming":
            return _equal_blocks(self.dimensions, self.blocks, self.banding.rows)
        if self.measure != "cosine":
            raise ValueError(f"random documents are not defined for measure = {self.measure}; measure a sample")
        if self.dimensions == 1:
            return (self.at(1.0) + self.at(-1.0)) / 2
        # Density of the angle t between two random directions: sin(t)^(dimensions - 2).
        whole = found = 0.0
        for step in range(_STEPS):
            angle = math.pi * (step + 0.5) / _STEPS
            weight = math.sin(angle) ** (self.dimensions - 2)
            whole += weight
            found += weight * self.at(math.cos(angle))
        return found / whole

    def false_candidates(self, documents: float, background: Iterable[tuple[float, float]]) -> float:
        """Expected candidates beyond the threshold that a new document meets among `documents` older ones.

        Args:
            background: (similarity or distance, number of pairs) of all random pairs.
        """
        pairs = candidates = 0.0
        for value, count in background:
            pairs += count
            if value > self.asked if self.by_distance else value < self.asked:
                candidates += count * self.at(value)
        return documents * candidates / pairs if pairs else 0.0


def untouched(pieces: int, edits: int) -> float:
    """P(at least one of this many pieces is hit by none of this many edits); 1 where it is certain."""
    if edits < pieces:
        return 1.0
    chances = [1.0] + [0.0] * pieces  # that this many are hit
    for _ in range(edits):
        for hit in range(pieces, 0, -1):
            chances[hit] = chances[hit] * hit / pieces + chances[hit - 1] * (pieces - hit + 1) / pieces
        chances[0] = 0.0
    return 1.0 - chances[pieces]


def clean_blocks(dimensions: int, blocks: int, least: int, flipped: int) -> float:
    """P(at least `least` blocks of a bit vector have none of the flipped bits, which are random).

    Exact for blocks of equal length (a bit more or less changes the third digit); 1 where it is certain.
    """
    found = _clean_blocks(dimensions, blocks, least)
    return found[flipped] if flipped < len(found) else 0.0


@lru_cache(maxsize=4)
def _clean_blocks(dimensions: int, blocks: int, least: int) -> list[float]:
    """The same for each number of flipped bits from 0 on, until it is 0."""
    length = dimensions / blocks
    chances = [0.0] * blocks + [1.0]  # of this many clean blocks
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
    """P(at least `least` blocks of two random bit vectors are equal)."""
    chances = [1.0] + [0.0] * least  # of this many equal blocks; the last one: or more
    for block in range(blocks):
        equal = 2.0 ** -(dimensions // blocks + (block < dimensions % blocks))
        for number in range(least, 0, -1):
            kept = chances[number] if number == least else chances[number] * (1 - equal)
            chances[number] = kept + chances[number - 1] * equal
        chances[0] *= 1 - equal
    return chances[least]
