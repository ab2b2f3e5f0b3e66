"""What is said of a wrong command line: click's errors in the words of the project."""

from __future__ import annotations

import re
from collections.abc import Iterable

import click
from click.types import FloatParamType, IntParamType

from stream_lsh.settings.errors import bounded, either, near

# How click's messages begin that say which value is wrong: its exceptions have no field for it.
_VALUE = re.compile(r"(?:(['\"])(?P<text>.*)\1|(?P<number>.*)) is not (?:a valid|one of|in the range|')", re.DOTALL)
_PATH = re.compile(r"\w+ '(.*)' is (a file|a directory|not readable)\.", re.DOTALL)
_EXTRA = re.compile(r"Got unexpected extra arguments? \((.*)\)", re.DOTALL)


def worded(error: click.UsageError) -> str:
    """What is wrong, and what is allowed. An error that a command has raised itself keeps its message."""
    if isinstance(error, click.NoSuchOption):
        name = error.option_name
        params = [] if error.ctx is None else error.ctx.command.get_params(error.ctx)
        known = [flag for param in params for flag in (*param.opts, *param.secondary_opts) if flag.startswith("--")]
        if re.match(r"-\d", name):
            return f"there is no option {name}; write -- before values that begin with -"
        meant = near(name.lstrip("-"), (flag[2:] for flag in known))
        return f"there is no option {name}" + ("" if meant is None else f"; did you mean --{meant}?")
    if isinstance(error, click.BadOptionUsage):
        return f"{error.option_name}: " + ("it takes no value" if "does not take" in error.message else "give a value")
    param = getattr(error, "param", None)
    if param is not None and isinstance(error, click.MissingParameter):
        text = (getattr(param, "help", None) or "").partition(";")[0]
        return f"{_name(param)} is missing" + (f": {text}" if text else "")
    if param is not None and isinstance(error, click.BadParameter):
        return _refused(param, error.message)
    extra = _EXTRA.match(error.message)
    return f"too many arguments: {extra[1]}" if extra is not None else error.message


def no_such_command(name: str, known: Iterable[str]) -> str:
    """What is said of a command that there is not."""
    known = list(known)
    meant = near(name, known)
    remedy = f"did you mean {meant}?" if meant else f"there are {', '.join(known)}"
    return f"there is no command {name or repr(name)}; {remedy}"


def _name(param: click.Parameter) -> str:
    return max(param.opts, key=len) if isinstance(param, click.Option) else param.human_readable_name.strip("[]")


def _refused(param: click.Parameter, message: str) -> str:
    """A value that a parameter does not take, with what it takes."""
    name = _name(param) if isinstance(param, click.Option) else "argument"
    allowed, value, path = _allowed(param.type), _VALUE.match(message), _PATH.match(message)
    if path is not None:
        if path[2] == "not readable":
            return f"{name} {path[1]}: this user may not read it"
        kind, other = ("file", "folder") if path[2] == "a file" else ("folder", "file")
        return f"{name} {path[1]}: it is a {kind}; give a {other}"
    if allowed is None or value is None:
        return f"{name}: {message}"
    given = value["text"] or (value["number"] or repr("")).removesuffix(".0")
    meant = near(given, param.type.choices) if isinstance(param.type, click.Choice) else None
    hint = "" if meant is None else f" (did you mean {meant}?)"
    return f"{name} {given}: give {allowed}{hint}"


def _allowed(kind: click.ParamType) -> str | None:
    """What a type takes, behind `give`; None for a type that says so itself."""
    if isinstance(kind, click.Choice):
        return either([str(choice) for choice in kind.choices])
    if isinstance(kind, IntParamType | FloatParamType):
        noun = "an integer" if isinstance(kind, IntParamType) else "a number"
        if not isinstance(kind, click.IntRange | click.FloatRange):
            return noun
        return bounded(noun, None if kind.min_open else kind.min, kind.max, kind.min if kind.min_open else None)
    return None
