"""`stream-lsh evaluate --labels`: the groups that the engine makes, against labels."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from stream_lsh.cli.limit import asked_of, excluded, limit_of
from stream_lsh.settings.model import Settings
from stream_lsh.wording import count, ratio

if TYPE_CHECKING:
    from stream_lsh.evaluation.clusters import Agreement
    from stream_lsh.evaluation.labels import Labelled


def evaluate_groups(settings: Settings, inputs: Sequence[str], labels: str, limit: int | None, as_json: bool) -> None:
    """Groups against the labels in a field, beside what it would be to leave every document alone."""
    import numpy as np

    from stream_lsh.evaluation.clusters import agreement
    from stream_lsh.evaluation.labels import grouped

    labelled = grouped(settings, inputs, labels, limit)
    groups, numbers = labelled.columns
    found, alone = agreement(groups, numbers), agreement(np.arange(len(groups)), numbers)
    if as_json:
        click.echo(json.dumps(as_object(settings, labelled, found, alone), ensure_ascii=False))
        return
    for line in as_text(settings, labelled, found, alone):
        click.echo(line)


def as_object(settings: Settings, labelled: Labelled, found: Agreement, alone: Agreement) -> dict[str, Any]:
    """Groups against labels, for machines."""
    return {
        "documents": found.documents,
        "rejected": dict(labelled.rejected),
        "repeated_ids": labelled.repeated,
        "without_label": labelled.without,
        **asked_of(settings),
        **({"shingles": settings.shingles} if settings.measure == "jaccard" else {}),
        "labels": found.labels,
        "groups": found.groups,
        "b_cubed": {"precision": found.precision, "recall": found.recall, "f1": found.f1},
        "adjusted_rand": found.adjusted_rand,
        "alone": {"b_cubed": {"precision": alone.precision, "recall": alone.recall, "f1": alone.f1}},
        "pairs_of_a_label": found.pairs.truth,
        "pairs_of_a_group": found.pairs.found,
        "pairs_of_both": found.pairs.correct,
    }


def as_text(settings: Settings, labelled: Labelled, found: Agreement, alone: Agreement) -> Iterator[str]:
    """Groups against labels, for people."""
    yield (
        f"{count(found.documents, 'document')} with {count(found.labels, 'label')}, "
        f"in {count(found.groups, 'group')} at {limit_of(settings)}"
    )
    yield from excluded(labelled.rejected, labelled.repeated)
    if labelled.without:
        yield f"left out because they have no label: {labelled.without:,}"
    yield ""
    yield f"  {'':<18}  {'groups':>6}  {'each alone':>10}"
    for title, ours, theirs in (
        ("B-cubed precision", found.precision, alone.precision),
        ("B-cubed recall", found.recall, alone.recall),
        ("B-cubed F1", found.f1, alone.f1),
        ("adjusted Rand", found.adjusted_rand, alone.adjusted_rand),
    ):
        yield f"  {title:<18}  {ratio(ours):>6}  {ratio(theirs):>10}"
    pairs = found.pairs
    yield ""
    for all_pairs, same, other, part in (
        (pairs.truth, "with one label", "are in one group", pairs.recall),
        (pairs.found, "in one group", "have one label", pairs.precision),
    ):
        yield f"  {pairs.correct:,} of {count(all_pairs, 'pair')} {same} {other} ({ratio(part)})"
    if settings.measure != "tf-idf":
        yield "Groups hold near-duplicates. --measure tf-idf also groups the same event in other words."
