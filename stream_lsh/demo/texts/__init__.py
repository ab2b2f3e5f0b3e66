"""The sample texts of the demo, written for this project: a JSON file for each desk, language and sort of name."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any


def read(name: str) -> Any:
    """What the file `name`.json holds, lists as tuples."""
    return _frozen(json.loads(files(__package__).joinpath(f"{name}.json").read_bytes()))


def _frozen(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _frozen(found) for name, found in value.items()}
    return tuple(_frozen(found) for found in value) if isinstance(value, list) else value
