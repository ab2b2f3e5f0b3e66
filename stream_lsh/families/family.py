"""The entrance to this package: the signer of a measure, and the source of its evidence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from stream_lsh.families.items import ItemSigner
from stream_lsh.families.levenshtein import EditSigner
from stream_lsh.families.passages import Passages
from stream_lsh.families.sampled import SampledSigner
from stream_lsh.families.signer import Signer
from stream_lsh.families.signer import Signs as Signs
from stream_lsh.families.terms import StoryWords, TermSigner
from stream_lsh.families.weights import WeightsSigner
from stream_lsh.hashing.siphash import KEY_BYTES
from stream_lsh.text.settings import SigningSettings


class Explains(Protocol):
    """Gives the evidence of matches.

    Attributes:
        of_texts: it needs the texts of matched rows, otherwise their signatures.
    """

    of_texts: bool

    def __call__(self, text: bytes, others: Sequence[Any], own: NDArray[np.uint64] | None = None) -> list[bytes]:
        """Evidence of a text's matches: for each, members of a JSON object, each with a comma before it.

        Args:
            own: what the text is compared by, as it was signed; None = without a scope.
        """


def signer_of(settings: SigningSettings, key: bytes = bytes(KEY_BYTES)) -> Signs:
    """The signer of a measure. key: of the fingerprints and of the scopes' hashes.

    Raises:
        UsageError: no signature can be made with these settings.
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
    """The source of a measure's evidence; None where similarity explains a match."""
    if settings.measure == "tf-idf":
        return StoryWords(settings)
    return Passages(settings) if settings.measure == "containment" else None
