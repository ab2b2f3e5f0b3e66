"""Checks of outputs by their JSON Schemas."""

from collections.abc import Callable
from typing import Any

from jsonschema import Draft202012Validator


def checker(schema: dict[str, Any]) -> Callable[[object], None]:
    """A check that an object has the types of a schema, and no other fields."""
    validate: Callable[[object], None] = Draft202012Validator(_closed(schema)).validate
    return validate


def _closed(schema: Any) -> Any:
    """A schema that allows no other fields."""
    if isinstance(schema, dict):
        return {name: _closed(value) for name, value in schema.items() if name != "additionalProperties"} | (
            {"additionalProperties": False} if "properties" in schema else {}
        )
    return [_closed(item) for item in schema] if isinstance(schema, list) else schema
