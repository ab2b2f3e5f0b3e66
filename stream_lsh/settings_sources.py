"""Where settings come from: a TOML file, STREAM_LSH_ variables; and what is said where they are none."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, SecretStr, ValidationError

from stream_lsh.errors import UsageError

PREFIX = "STREAM_LSH_"
_KAFKA = "stream_lsh.kafka.settings"  # by name, because it is made from the model of all settings


def is_secret(annotation: Any) -> bool:
    """Whether a field holds a password: never shown, and no option of the command line."""
    return SecretStr in (annotation, *get_args(annotation))


def environment(model: type[BaseModel]) -> dict[str, str]:
    """The settings that STREAM_LSH_ variables give."""
    names = model.model_fields
    return {name: os.environ[PREFIX + name.upper()] for name in names if os.environ.get(PREFIX + name.upper())}


def without_foreign(file: Mapping[str, Any], model: type[BaseModel]) -> dict[str, Any]:
    """A file's settings without those that only Kafka's model knows, unless that is the one asked for."""
    if file.keys() <= model.model_fields.keys():
        return dict(file)
    foreign = import_module(_KAFKA).KafkaSettings.model_fields.keys() - model.model_fields.keys()
    return {name: value for name, value in file.items() if name not in foreign}


def read_toml(path: Path, what: str) -> Mapping[str, Any]:
    """What a file says; what: it is, for messages.

    Raises:
        UsageError: it cannot be read, or is not TOML.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{what} {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{what} {path} is not TOML: {error}") from None


def explain(
    error: ValidationError, values: Mapping[str, Any], sources: Mapping[str, str], model: type[BaseModel]
) -> str:
    """Why values are no settings: each with its name, its value, where it came from and what is allowed."""
    lines = []
    for item in error.errors():
        name = str(item["loc"][0]) if item["loc"] else ""
        origin = f" (from {sources[name]})" if name in sources else ""
        message = str(item["msg"]).removeprefix("Value error, ")
        if item["type"] == "extra_forbidden":
            lines.append(f"{name}: there is no such setting{origin}; known are {', '.join(model.model_fields)}")
        elif name in model.model_fields and is_secret(model.model_fields[name].annotation):
            lines.append(f"{name}{origin}: {message}")
        elif name:
            lines.append(f"{name} = {values.get(name)!r}{origin}: {message}")
        else:
            lines.append(message)
    return "; ".join(lines)


def gathered(
    model: type[BaseModel], config: Path | None, defaults: Mapping[str, Any], given: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, str]]:
    """The values of all sources, and where each comes from; the command line (`given`) wins over the environment, that
    over the file, this over `defaults`."""
    sources: dict[str, str] = {}
    values: dict[str, Any] = dict(defaults)
    file = without_foreign(read_toml(config, "settings file"), model) if config is not None else {}
    for origin, found in ((f"{config}", file), ("environment", environment(model)), ("command line", given)):
        for name, value in found.items():
            values[name] = value
            sources[name] = f"variable {PREFIX}{name.upper()}" if origin == "environment" else origin
    return values, sources
