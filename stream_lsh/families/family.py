"""The entrance to this package: who signs the documents of a measure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from stream_lsh.families.items import ItemSigner
from stream_lsh.families.levenshtein import EditSigner
from stream_lsh.families.passages import Passages
from stream_lsh.families.sampled import SampledSigner
from stream_lsh.families.signer import Signed, Signer
from stream_lsh.families.terms import StoryWords, TermSigner
from stream_lsh.families.weights import WeightsSigner
from stream_lsh.hashing.siphash import KEY_BYTES
from stream_lsh.text.settings import SigningSettings


class Signs(Protocol):
    """Signs documents, given as texts or as the texts that stand for them; any number of threads may use one."""

    settings: SigningSettings

    def sign(
        self, texts: bytes, ends: NDArray[np.int64], salts: NDArray[np.uint64] | None = None, *, want_shingles: bool,
        want_signatures: bool = True,
    ) -> Signed:  # fmt: skip
        """Documents that end at `ends` in `texts`, see `Signer.sign`."""

    def shingle(self, texts: bytes, ends: NDArray[np.int64]) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
        """What documents are compared by: words, and offsets int64[n + 1] in them."""


class Explains(Protocol):
    """Says what matches rest on.

    of_texts: whether it is told the texts of those that are matched; else their signatures, as rows keep them.
    """

    of_texts: bool

    def __call__(self, text: bytes, others: Sequence[Any], own: NDArray[np.uint64] | None = None) -> list[bytes]:
        """Of a text and those that it matches: members of a JSON object for each match, with a comma before each. own:
        what the text is compared by, as it was signed; without it there was no salt."""


def signer_of(settings: SigningSettings, key: bytes = bytes(KEY_BYTES)) -> Signs:
    """The signer of a measure. key: of the fingerprints.

    Raises:
        UsageError: settings that no signature can be made with.
    """
    if settings.measure == "jaccard":
        return Signer(settings, key)
    if settings.measure == "containment":
        return SampledSigner(settings, key)
    if settings.measure == "tf-idf":
        return TermSigner(settings, key)
    if settings.measure == "weighted-jaccard":
        return WeightsSigner(settings, key)
    return EditSigner(settings, key) if settings.measure == "levenshtein" else ItemSigner(settings, key)


def explainer_of(settings: SigningSettings) -> Explains | None:
    """Who says what the matches of a measure rest on, None where similarity says it all."""
    if settings.measure == "tf-idf":
        return StoryWords(settings)
    return Passages(settings) if settings.measure == "containment" else None
