"""What an index that is there was made with."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stream_lsh.errors import StateError
from stream_lsh.families.likeness import unused
from stream_lsh.settings.model import Settings

BOUNDS = ("against", "verify_matches", "candidates", "on_same_id", "window")
"""What is allowed for one of them, or for another setting, depends on the others."""
LIKENESS = ("likeness", "dimensions", "distance")
"""Likewise."""


def stored_answers(state: Path | None) -> Mapping[str, Any] | None:
    """The settings that fix the answers of the index in a folder, None if there is none.

    Raises:
        StateError: it cannot be read, or has another format.
    """
    if state is None or not (state / "db" / "CURRENT").exists():
        return None
    from stream_lsh.embedded import information  # here, because it takes RocksDB with it

    return information.stored_answers(state)


def bound(stored: Mapping[str, Any] | None, likeness: str | None = None) -> dict[str, Any]:
    """Of the answers of an index what has to be known of it while the settings are read that go with it. likeness: if
    one is given; where it is another, the rest of the index's would only hide that."""
    if stored is None:
        return {}
    names = BOUNDS + LIKENESS if likeness in (None, stored.get("likeness")) else BOUNDS
    return {name: stored[name] for name in names if name in stored}


def stored_settings(state: Path, **given: Any) -> Settings:
    """The settings under which the index in `state` gives its answers; `given` are others, which do not fix answers.

    Raises:
        StateError: there is no index, or it cannot be read.
    """
    answers = stored_answers(state)
    if answers is None:
        raise StateError(f"there is no index in {state}; a run with --state {state} makes one")
    idle = unused(answers.get("likeness", "copies"))
    return Settings.load(None, **{name: value for name, value in answers.items() if name not in idle}, **given)
