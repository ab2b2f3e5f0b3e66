"""The settings that an index was made with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from stream_lsh.settings import STEPS, Settings


def stored_settings(state: Path, **given: Any) -> Settings:
    """The settings under which the index in `state` gives its answers; `given` are others, which do not fix answers.

    Raises:
        StateError: there is no index, or it cannot be read.
    """
    from stream_lsh.embedded.information import information

    answers = information(state, False)["settings"]
    assert isinstance(answers, dict)
    return Settings.load(None, **settings_from(answers), **given)


def settings_from(answers: dict[str, Any]) -> dict[str, Any]:
    """Fields of `Settings` with the same `answers`: the inverse of `Settings.answers`."""
    fields = {name: value for name, value in answers.items() if name in Settings.model_fields}
    fields["text_field"] = tuple(answers["text_field"])
    fields["normalize"] = ",".join(step for step in STEPS if answers[step]) or "none"
    if answers["kind"] != "set":
        fields["shingles"] = f"{answers['kind']}:{answers['k']}/{answers['continuous_k']}"
    return fields
