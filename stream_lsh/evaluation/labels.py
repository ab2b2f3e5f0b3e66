"""The groups that the engine makes of some inputs, and the labels of their documents."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stream_lsh.embedded.preparation import prepare
from stream_lsh.embedded.temporary import temporary_folder
from stream_lsh.errors import InputError
from stream_lsh.evaluation.reading import read_batches
from stream_lsh.index.index import Index
from stream_lsh.judging.verdicts import Kind, judge, reasons
from stream_lsh.settings.model import Settings


@dataclass
class Labelled:
    """The documents that have a label, by position."""

    groups: list[int] = field(default_factory=list)
    labels: list[int] = field(default_factory=list)  # numbers of labels, which have none elsewhere
    rejected: Counter[str] = field(default_factory=Counter)  # documents left out, by reason
    repeated: int = 0  # documents left out because they were there before
    without: int = 0  # documents left out because they have no label; they were compared like the others

    @property
    def columns(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Groups and labels."""
        return np.array(self.groups, np.int64), np.array(self.labels, np.int64)


def grouped(settings: Settings, inputs: Sequence[str], label_field: str, limit: int | None = None) -> Labelled:
    """Run the engine on the first `limit` documents of the inputs that can be used.

    Raises:
        InputError: an input cannot be read, or no document of them has a label.
    """
    found, numbers, taken = Labelled(), dict[bytes, int](), 0
    with temporary_folder() as folder:
        prepare(settings)
        index = Index(settings, Path(folder), durable=False)
        try:
            for batch in read_batches(settings, inputs, label_field):
                seqs = np.arange(taken, taken + len(batch))
                signed = index.sign(batch)
                judgement = judge(index.match(signed, seqs), batch.ids, seqs, 0, index)
                taken += len(batch)
                why = reasons(judgement, signed.rejected)
                for i, (kind, group, label) in enumerate(
                    zip(judgement.kinds.tolist(), judgement.groups.tolist(), batch.sources, strict=True)
                ):
                    if len(found.groups) + found.without == limit:
                        return found
                    if kind == Kind.REDELIVERED or (i in why and why[i].reason == "id_reused"):
                        found.repeated += 1
                    elif kind == Kind.REJECTED:
                        found.rejected[why[i].reason] += 1
                    elif not label:
                        found.without += 1
                    else:
                        found.groups.append(group)
                        found.labels.append(numbers.setdefault(label, len(numbers)))
        finally:
            index.close()
    if found.without and not found.groups:
        named = json.dumps(label_field, ensure_ascii=False)
        raise InputError(f"no document has a label: none has a string or an integer in the field {named}; name another")
    return found
