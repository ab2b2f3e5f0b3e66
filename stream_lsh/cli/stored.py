"""What an index that is there was made with."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stream_lsh.errors import StoreError
from stream_lsh.families.measure import unused
from stream_lsh.index.store.files import is_index
from stream_lsh.settings.model import Settings

BOUNDS = ("compare_with", "max_verified_matches", "max_candidates", "on_conflict", "window")
"""What is allowed for one of them, or for another setting, depends on the others."""
MEASURE_SETTINGS = ("measure", "dimensions", "max_distance")
"""Likewise."""


def stored_answers(folder: Path | None) -> Mapping[str, Any] | None:
    """The settings that fix the answers of the index in a folder, None if there is none.

    Raises:
        StoreError: it cannot be read, or has another format.
    """
    if folder is None or not is_index(folder):
        return None
    from stream_lsh.embedded import information  # here, because it takes RocksDB with it

    return information.stored_answers(folder)


def bound(stored: Mapping[str, Any] | None, measure: str | None = None) -> dict[str, Any]:
    """Of the answers of an index what has to be known of it while the settings are read that go with it. measure: if
    one is given; where it is another, the rest of the index's would only hide that."""
    if stored is None:
        return {}
    names = BOUNDS + MEASURE_SETTINGS if measure in (None, stored.get("measure")) else BOUNDS
    return {name: stored[name] for name in names if name in stored}


def stored_settings(folder: Path, **given: Any) -> Settings:
    """The settings under which the index in `folder` gives its answers; `given` are others, which do not fix answers.

    Raises:
        StoreError: there is no index, or it cannot be read.
    """
    answers = stored_answers(folder)
    if answers is None:
        raise StoreError(f"there is no index in {folder}; a run with --index {folder} makes one")
    idle = unused(answers.get("measure", "jaccard"))
    return Settings.load(None, **{name: value for name, value in answers.items() if name not in idle}, **given)
