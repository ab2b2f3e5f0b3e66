"""Advice on k, measured: how much unrelated documents share at several lengths of the shingles (MMDS 3.2.2).

"k should be picked large enough that the probability of any given shingle appearing in any given document is low."
And no larger: a changed word changes k shingles, so with each step more of what was edited is missed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from stream_lsh.evaluation.exact import Ranked
from stream_lsh.evaluation.sample import Background, Sample, background
from stream_lsh.families.curve import Curve
from stream_lsh.families.signer import Signer
from stream_lsh.settings.model import Settings
from stream_lsh.text.settings import SigningSettings, parse_shingles
from stream_lsh.wording import few, percent

LOW_CHANCE = 0.01
"""MMDS's "low": at most this share of a document's shingles is in a typical other document."""

BEARABLE = 10.0
"""False candidates a document that cost no more than signing it (some 0.1 to 1 µs each)."""

# Scripts written without spaces: Thai to Lao, Myanmar, Khmer, kana, Han. Only to see which lengths are worth trying.
_CONTINUOUS = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)
_LETTER = re.compile(r"\w")


@dataclass(frozen=True)
class Length:
    """One length of the shingles, and what it does to a sample."""

    shingles: str  # as in the setting `shingles`
    chance: float  # P(a shingle of a document is in a typical other one)
    mean: float  # mean similarity of the pairs below the threshold
    tail: float  # similarity that 1 of 1,000 pairs below the threshold exceeds
    candidates: float  # expected false candidates a document

    @property
    def rare(self) -> bool:
        return self.chance <= LOW_CHANCE


def background_of(sample: Sample, signing: SigningSettings) -> Background:
    """The similarity of all pairs of the sample, with these shingles."""
    signed = Signer(signing).sign(sample.texts, sample.ends, want_shingles=True)
    return background(Ranked.of(signed.shingles, signed.offsets))


def measure_lengths(sample: Sample, settings: Settings, documents: float) -> Iterator[Length]:
    """The lengths worth trying on these texts, ascending, each measured when it is asked for."""
    for shingles, signing in lengths(settings, continuous_share(sample)):
        yield length_of(shingles, background_of(sample, signing), settings.curve, documents)


def length_of(shingles: str, found: Background, curve: Curve, documents: float) -> Length:
    """What a background says about the length of the shingles it was measured with."""
    return Length(
        shingles,
        chance=found.typical_chance(),
        mean=found.mean(curve.asked),
        tail=found.quantile(0.999, curve.asked),
        candidates=curve.false_candidates(documents, found.histogram()),
    )


def lengths(settings: Settings, continuous: float) -> list[tuple[str, SigningSettings]]:
    """Lengths to try, with the one that is set among them: words, characters, or characters of continuous scripts."""
    kind, k, continuous_k = parse_shingles(settings.shingles, settings.set_field)
    signing = settings.signing
    if kind == "set":
        return []
    if kind == "chars":
        names = [f"chars:{n}" for n in sorted({3, 4, 5, 6, 7, 8, 9, 10, 12, k})]
    elif continuous > 0.5 and signing.tokens == "unicode":
        names = [f"words:{k}/{n}" for n in sorted({4, 6, 8, 10, 12, continuous_k})]
    elif "/" in settings.shingles:
        # With the words grow the characters that weigh as much.
        names = [f"words:{n}/{max(1, (continuous_k * n + k // 2) // k)}" for n in sorted({1, 2, 3, 4, 5, k})]
    else:
        names = [f"words:{n}" for n in sorted({1, 2, 3, 4, 5, k})]
    found = []
    for name in names:
        _, length, continuous_length = parse_shingles(name, None)
        found.append((name, replace(signing, k=length, continuous_k=continuous_length)))
    return found


def current_length(settings: Settings, continuous: float) -> str:
    """The name that `lengths` gives to the length that is set."""
    return next((name for name, signing in lengths(settings, continuous) if signing == settings.signing), "")


def continuous_share(sample: Sample) -> float:
    """Share of letters in scripts without spaces, from the first 200 kB of the sample."""
    text = sample.texts[:200_000].decode("utf-8", "ignore")
    letters = len(_LETTER.findall(text))
    return len(_CONTINUOUS.findall(text)) / letters if letters else 0.0


def advise(lengths: Sequence[Length], current: str) -> str:
    """One or two sentences about k; `lengths` ascend and `current` is one of them.

    The shortest length is enough whose shingles are rare by chance and whose false candidates are few, or not many more
    than with the longest. Where no length makes shingles rare, the documents have passages in common (formulas,
    boilerplate) that longer shingles hardly cure: then the false candidates alone decide.
    """
    here = next(length for length in lengths if length.shingles == current)
    bearable = max(BEARABLE, 2 * min(length.candidates for length in lengths))
    enough = next((length for length in lengths if length.rare and length.candidates <= bearable), None)
    if enough is None:
        text = (
            f"Even with {lengths[-1].shingles} a typical other document has {percent(lengths[-1].chance)} of a "
            "document's shingles: these texts have passages in common, such as formulas or boilerplate."
        )
        if here.candidates <= bearable:
            return f"{text} {current} is all right all the same: longer shingles hardly lower the false candidates."
        better = next(length for length in lengths if length.candidates <= bearable)
        fewer = f"{few(better.candidates)} false candidates a document instead of {few(here.candidates)}"
        return f"{text} {better.shingles} has {fewer}."
    if here.shingles == enough.shingles:
        return f"{current} is right: the shortest length that makes a shingle rare and false candidates few."
    if lengths.index(here) > lengths.index(enough):
        return (
            f"{current} is long enough, and {enough.shingles} is too: shorter shingles find more of what was edited, "
            "as each changed word changes k of them, and longer ones are surer that two texts have a source in common."
        )
    text = (
        f"{current} is too short: a typical other document has {percent(here.chance)} of a document's shingles by "
        f"chance. {enough.shingles} is long enough ({percent(enough.chance)})"
    )
    if enough.candidates > here.candidates / 2:
        return f"{text}, though the false candidates stay: these are texts that do have much in common."
    return f"{text} and lowers the false candidates from {few(here.candidates)} to {few(enough.candidates)} a document."
