"""Settings that do not go together, with each other or with those of an index."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from pydantic import BaseModel

from stream_lsh.errors import StoreError

MOST_POSTINGS = 2**32 - 1  # of a segment: positions in a run have 32 bits
"""Of a segment, and of the blocks of a memtable."""


def check_used(settings: BaseModel, measure: str, idle: Collection[str]) -> None:
    """Raise ValueError if a setting is given that this measure does not use (`idle`), or one is missing."""
    fields = type(settings).model_fields
    for name in ("dimensions", "max_distance"):
        if name not in idle and getattr(settings, name) is None:
            raise ValueError(f"measure = {measure} needs {name}: {fields[name].description}")
    for name in sorted(idle):
        if getattr(settings, name) != fields[name].default:
            raise ValueError(f"{name} is not used with measure = {measure}; leave it out")


def check_room(segment_documents: int | None, memtable_documents: int, most_rows: int, bands: int) -> None:
    """Raise ValueError if there are more postings than can be counted. most_rows: the most rows that a document can
    have."""
    keys = most_rows * (bands + 3)
    if segment_documents is not None and segment_documents * keys > MOST_POSTINGS:
        raise ValueError(f"segment_documents: at most {MOST_POSTINGS // keys:,} with {bands} bands")
    if 4 * (memtable_documents + 4096) * keys > MOST_POSTINGS:
        most = MOST_POSTINGS // (4 * keys) - 4096
        raise ValueError(f"memtable_documents: at most {most:,} with {bands} bands")


def check_keep(
    keep: str, rank_field: str | None, rank_order: Collection[str], compare_with: str, *, texts: bool
) -> None:
    """Raise ValueError if `keep` does not go with other settings. texts: whether documents are texts."""
    if (keep == "best") != (rank_field is not None):
        raise ValueError(
            "keep = 'best' needs rank_field, the field of the rank"
            if rank_field is None
            else f"rank_field is for keep = 'best'; with keep = {keep!r} leave it out"
        )
    if rank_order and rank_field is None:
        raise ValueError("rank_order is for keep = 'best'; give rank_field too, or leave it out")
    if keep == "first":
        return
    if compare_with != "kept":
        raise ValueError(f"keep = {keep!r} is for compare_with = 'kept'; with {compare_with!r} every document is kept")
    if keep == "longest" and not texts:
        raise ValueError("keep = 'longest' is for texts; use keep = 'best' with rank_field")


def check_keep_per(keep_per: str | None, source_field: str | None, compare_with: str) -> None:
    """Raise ValueError if `keep_per` does not go with other settings."""
    if keep_per is None:
        return
    if source_field is None:
        raise ValueError(f"keep_per = {keep_per!r} needs source_field, the field of the source")
    if compare_with != "kept":
        raise ValueError(
            f"keep_per = {keep_per!r} is for compare_with = 'kept'; with {compare_with!r} every document is kept"
        )


def refuse_others(where: str, others: Sequence[str], clash: str) -> None:
    """Raise StoreError if settings were given that are others in an index, or that do not go together with those that
    it has (`clash`: why)."""
    if clash and not others:
        raise StoreError(f"{where} has settings with which those given do not go together: {clash}")
    if others:
        raise StoreError(
            f"{where} was made with other settings: {', '.join(others)}; use those, leave them out, or use another "
            "folder"
        )
