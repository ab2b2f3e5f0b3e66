"""Errors in the values of a model: the value, its source, and what is allowed."""

from __future__ import annotations

import difflib
import re
import types
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, SecretStr, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

_FEW = 20  # names, that a message has all of
_NEAR = 0.75  # share of equal letters, from which a name may be meant
_OWN = "value_error"  # a ValueError of a validator, whose message is ours


def near(name: str, known: Iterable[str]) -> str | None:
    """The known name that is most like another one, None if none is near."""
    names = {each.lower().replace("-", "_"): each for each in known}
    found = difflib.get_close_matches(name.lower().replace("-", "_"), names, 1, _NEAR)
    return names[found[0]] if found else None


def is_secret(annotation: Any) -> bool:
    """Whether a field holds a password: never shown, and no option of the command line."""
    return SecretStr in kinds_of(annotation)


def explain(
    error: ValidationError, values: Mapping[str, Any], sources: Mapping[str, str], model: type[BaseModel], *,
    noun: str = "setting", described: bool = False,
) -> str:  # fmt: skip
    """Why values do not fit a model: each with its name, its value, its source and what is allowed.

    Args:
        sources: the source of a value, by name. A value without a source is only named. noun: what a value is of.
            described: say what it is for, too.
    """
    lines: dict[str, str] = {}  # the first of a field: a union has an error for each of its kinds
    for item in error.errors():
        name = str(item["loc"][0]) if item["loc"] else ""
        lines.setdefault(name or item["msg"], _line(item, name, values, sources, model, noun, described))
    return "; ".join(lines.values())


def _line(
    item: ErrorDetails, name: str, values: Mapping[str, Any], sources: Mapping[str, str], model: type[BaseModel],
    noun: str, described: bool,
) -> str:  # fmt: skip
    field = model.model_fields.get(name)
    origin = f" (from {sources[name]})" if name in sources else ""
    own = item["msg"].removeprefix("Value error, ") if item["type"] == _OWN else None
    if not name:
        said = ", ".join(f"{each} from {sources[each]}" for each in sources if re.search(rf"\b{each}\b", item["msg"]))
        return f"{own} ({said})" if said else f"{own}"
    if field is None:
        return unknown(name, model.model_fields, sources.get(name), noun)
    if item["type"] == "missing":
        return f"{name} is missing: {field.description}"
    value = None if is_secret(field.annotation) else values.get(name)
    shown = name if value is None else f"{name} = {_shown(value)}"
    said = f"{shown}{origin}: {own or f'give {allowed(field)}{_meant(value, field)}'}"
    return f"{said} ({field.description})" if described else said


def _shown(value: object) -> str:
    """A value as a TOML file has it, or nearly so."""
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value) if isinstance(value, str | int | float | list | tuple) else f"{value}"


def unknown(name: str, known: Iterable[str], source: str | None, noun: str = "setting") -> str:
    """What is said of a name that is none of those known. noun: what they are."""
    names = list(known)
    found = near(name, names)
    remedy = f"there are {', '.join(names)}" if len(names) <= _FEW else "stream-lsh dedup --help-all shows the settings"
    meant = f"did you mean {found}?" if found is not None else f"leave it out; {remedy}"
    return f"{name}: there is no such {noun}{f' (from {source})' if source is not None else ''}; {meant}"


def _meant(value: object, field: FieldInfo) -> str:
    if field.examples and not isinstance(value, str):
        return f' in quotes, such as "{field.examples[0]}"'
    found = near(value, choices_of(field)) if isinstance(value, str) else None
    return "" if found is None else f" (did you mean {found}?)"


def kinds_of(annotation: Any) -> tuple[Any, ...]:
    """The types of a union but None, or the one."""
    if get_origin(annotation) in (Union, types.UnionType):
        return tuple(kind for kind in get_args(annotation) if kind is not type(None))
    return (annotation,)


def choices_of(field: FieldInfo) -> tuple[str, ...]:
    """The texts that a field is one of; none if it may be any."""
    return tuple(
        value for kind in kinds_of(field.annotation) if get_origin(kind) is Literal for value in get_args(kind)
    )  # fmt: skip


def is_list(field: FieldInfo) -> bool:
    """Whether a field takes several texts."""
    return any(get_origin(kind) is tuple for kind in kinds_of(field.annotation))


def is_flag(field: FieldInfo) -> bool:
    """Whether a field is true or false."""
    return bool in kinds_of(field.annotation)


def allowed(field: FieldInfo) -> str:
    """What a field takes, behind `give`."""
    if choices := choices_of(field):
        return either(choices)
    kinds = kinds_of(field.annotation)
    if bool in kinds:
        return "true or false"
    if is_list(field):
        return "a text, or a list of texts"
    if len(kinds) > 1:
        return "a text or an integer"
    if int in kinds or float in kinds:
        return _number(field, "an integer" if float not in kinds else "a number")
    if Path in kinds:
        return "a path, as text"
    if (pattern := _limit(field, "pattern")) is not None:
        return f"a text that matches {pattern}"
    return "a text that is not empty" if _limit(field, "min_length") else "a text"


def either(choices: Sequence[str]) -> str:
    """`a, b or c`."""
    return " or ".join(filter(None, (", ".join(choices[:-1]), choices[-1])))


def _number(field: FieldInfo, noun: str) -> str:
    said = bounded(noun, *(_limit(field, name) for name in ("ge", "le", "gt", "lt")))
    step = _limit(field, "multiple_of")
    return said if step is None else f"{said} that is a multiple of {step}"


def bounded(noun: str, least: Any, most: Any, above: Any = None, below: Any = None) -> str:
    """A number within bounds; None is no bound."""
    if least is not None and most is not None:
        said = f"from {least} to {most}"
    else:
        bounds = (("of at least", least), ("above", above), ("of at most", most), ("below", below))
        said = " and ".join(f"{words} {bound}" for words, bound in bounds if bound is not None)
    return f"{noun} {said}" if said else noun


def _limit(field: FieldInfo, name: str) -> Any:
    return next((found for each in field.metadata if (found := getattr(each, name, None)) is not None), None)
