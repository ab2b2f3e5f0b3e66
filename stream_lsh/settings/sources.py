"""Where settings come from: a TOML file, STREAM_LSH_ variables; and what is said where they are none."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Collection, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from stream_lsh.errors import UsageError
from stream_lsh.settings.errors import near, unknown

PREFIX = "STREAM_LSH_"
CONFIG = "CONFIG"
"""The variable, behind PREFIX, that names the settings file."""
_KAFKA = "stream_lsh.kafka.settings"  # by name, because it is made from the model of all settings
# Variables with the prefix that are no settings: the file, and those of the tests and benchmarks.
_OTHERS = re.compile(rf"{CONFIG}|DATA|LONG|ROTATION|(TEST|CHAOS)_\w+")
# Those that Kubernetes and Docker set for a service or a container of that name.
_LINK = re.compile(
    r"(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR|START|END))?|ENV_\w+)=.*"
    r"|(\w+_)?PORT=(tcp|udp|sctp)://.*",
    re.DOTALL,
)


def environment(model: type[BaseModel]) -> dict[str, str]:
    """The settings that STREAM_LSH_ variables give; an empty one gives none.

    Raises:
        UsageError: a variable is no setting, and nothing that another tool sets.
    """
    found: dict[str, str] = {}
    for variable in sorted(os.environ):
        name, value = variable.removeprefix(PREFIX), os.environ[variable]
        if name == variable or _OTHERS.fullmatch(name) or _LINK.fullmatch(f"{name}={value}"):
            continue
        known = _known(model, [name.lower()])
        if name == name.upper() and name.lower() in known:
            if value and name.lower() in model.model_fields:
                found[name.lower()] = value
        else:
            meant = near(name, known)
            said = f"did you mean {PREFIX}{meant.upper()}?" if meant is not None else "unset it"
            raise UsageError(f"variable {variable}: there is no such setting; {said}")
    return found


def _known(model: type[BaseModel], names: Collection[str]) -> Collection[str]:
    """The settings that there are: one file and one environment serve the embedded engine and Kafka."""
    if all(name in model.model_fields for name in names):
        return model.model_fields.keys()
    known: Collection[str] = import_module(_KAFKA).KafkaSettings.model_fields.keys()
    return known


def from_file(path: Path, model: type[BaseModel]) -> dict[str, Any]:
    """The settings that a TOML file has for a model, without those that only Kafka's model has.

    Raises:
        UsageError: it cannot be read, is not TOML, or says something else.
    """
    file = read_toml(path, "settings file")
    known = _known(model, file)
    wrong = [_unknown(name, value, known, path) for name, value in file.items() if name not in known]
    if wrong:
        raise UsageError("; ".join(wrong))
    return {name: value for name, value in file.items() if name in model.model_fields}


def _unknown(name: str, value: object, known: Collection[str], path: Path) -> str:
    if not isinstance(value, dict):
        return unknown(name, known, str(path))
    inside = ", ".join(key for key in value if key in known)
    remedy = f"write {inside} above the first heading" if inside else "leave it out"
    return f"[{name}] (from {path}): settings have no tables; {remedy}"


def read_toml(path: Path, what: str) -> Mapping[str, Any]:
    """What a file says; what: it is, for messages.

    Raises:
        UsageError: it cannot be read, or is not TOML.
    """
    try:
        return tomllib.loads(path.read_bytes().decode("utf-8-sig"))
    except OSError as error:
        raise UsageError(f"{what} {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{what} {path} is not TOML: byte {error.start} is not UTF-8") from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise UsageError(f"{what} {path} is not TOML: {error}") from None


def read_tables(path: Path, what: str, key: str, plural: str, needs: str) -> list[tuple[Mapping[str, Any], str]]:
    """The tables [[key]] of a file that has nothing else, each with its place for messages.

    Args:
        what: the file is, as in `read_toml`. plural, needs: what the tables are, and what each has, for messages.

    Raises:
        UsageError: as `read_toml`; or there are none, or something else; or two have one name.
    """
    found = read_toml(path, what)
    tables = found.get(key)
    if others := found.keys() - {key}:
        raise UsageError(f"{what} {path}: there is no {sorted(others)[0]!r}; {plural} are tables [[{key}]]")
    if not isinstance(tables, list) or not tables or not all(isinstance(table, dict) for table in tables):
        raise UsageError(f"{what} {path} has no {plural}: each is a table [[{key}]] with {needs}")
    names = [table.get("name") for table in tables]
    for number, name in enumerate(names, 1):
        if name is not None and name in names[: number - 1]:
            raise UsageError(f"{what} {path}, {key} {number}: name = {name!r} is there twice; give each its own")
    return [(table, f"{what} {path}, {key} {number}") for number, table in enumerate(tables, 1)]


def gathered(
    model: type[BaseModel], config: Path | None, defaults: Mapping[str, Any], given: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, str]]:
    """The values of all sources, and the source of each. The command line (`given`) wins over the environment, that
    over the file, this over `defaults`.

    Raises:
        UsageError: a file or a variable gives what is no setting.
    """
    sources: dict[str, str] = {}
    values: dict[str, Any] = dict(defaults)
    file = from_file(config, model) if config is not None else {}
    for origin, found in ((f"{config}", file), ("environment", environment(model)), ("command line", given)):
        for name, value in found.items():
            values[name] = value
            sources[name] = f"variable {PREFIX}{name.upper()}" if origin == "environment" else origin
    return values, sources
