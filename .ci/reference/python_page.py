"""The page of the Python API, from the docstrings of what `stream_lsh` exports."""

from __future__ import annotations

import inspect
import re
from types import ModuleType
from typing import Any

import stream_lsh
from stream_lsh import client, testing
from stream_lsh.client.operations import Operation
from stream_lsh.families.signer import Signed

INTRODUCTION = """\
# Python

`from stream_lsh import ...` has everything on this page but the [client](#client) and the [pipeline for
tests](#pipeline). The tests run the examples.
[Embed in Python](../how-to/embed-in-python.md) shows a whole program.
"""
CLASSES = (
    "Deduplicator", "Document", "Verdict", "Match", "Pair", "Representative", "Group", "Member", "StoredDocument",
)  # fmt: skip
MADE_BY_CALLERS = ("Deduplicator", "Document", "Signer", "Client", "Pipeline")
WITH_METHODS = ("Deduplicator", "Verdict", "Signer", "Client", "Pipeline")
SETTINGS = """\
## Settings

`Settings(threshold=0.7, window="7d", ...)` takes each of the [settings](settings.md) by its name. It reads neither the
environment nor a file; `Settings.load(path)` reads both.
"""
SECTION = re.compile(r"^(Args|Attributes|Raises|Examples):$")
ENTRY = re.compile(r"^ {4}(\w[\w, ]*): (.*)$")


def signature_of(function: Any, name: str, *, of_class: bool) -> str:
    """How a function is called, with annotations as they stand in the source."""
    parts = []
    keywords = False
    for parameter in list(inspect.signature(function).parameters.values())[of_class:]:
        if parameter.kind is parameter.KEYWORD_ONLY and not keywords:
            parts.append("*")
            keywords = True
        default = "" if parameter.default is parameter.empty else f" = {parameter.default!r}"
        stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        parts.append(f"{stars}{parameter.name}: {parameter.annotation}{default}")
    # The clients' operations make requests, and their methods have the results.
    returns = str(inspect.signature(function).return_annotation)
    returns = re.sub(r"^Calls\b", "Iterator", re.sub(r"^Call\[(.*)\]$", r"\1", returns))
    said = "" if returns in ("None", str(inspect.Signature.empty)) else f" -> {returns}"
    whole = f"{name}({', '.join(parts)}){said}"
    if len(whole) > 100:
        whole = "\n    ".join([f"{name}(", *(f"{part}," for part in parts)]) + f"\n){said}"
    return f"```python\n{whole}\n```\n"


def described(text: str | None) -> str:
    """A docstring as Markdown: sections become lists, examples code."""
    lines = inspect.cleandoc(text or "").splitlines()
    out: list[str] = []
    section = ""
    for line in lines:
        if found := SECTION.match(line):
            section = found[1]
            out += ["", {"Args": "Arguments:", "Examples": "```pycon"}.get(section, f"{section}:")]
            out += [] if section == "Examples" else [""]
        elif section == "Examples":
            out.append(line[4:])
        elif section and (entry := ENTRY.match(line)):
            names = ", ".join(f"`{name}`" for name in entry[1].split(", "))
            out.append(f"- {names}: {entry[2]}")
        else:
            out.append(f"  {line.strip()}" if section and line.strip() else line)
    if section == "Examples":
        out.append("```")
    return re.sub(r"\n{3,}", "\n\n", "\n".join(out)).strip() + "\n"


def methods_of(cls: type) -> list[tuple[str, Any]]:
    """The public methods and properties of a class and of those that it is made of, in the order of the source."""
    found: dict[str, Any] = {}
    for base in cls.__mro__[:-1]:
        for name, value in vars(base).items():
            shown = not name.startswith("_") or name in ("__contains__", "__len__")
            if shown and (inspect.isfunction(value) or isinstance(value, property | Operation)):
                found.setdefault(name, value)
    return list(found.items())


def class_page(name: str, module: ModuleType = stream_lsh) -> str:
    """What a page says of a class."""
    cls = getattr(module, name)
    out = [f"## {name}\n"]
    if name in MADE_BY_CALLERS:
        out.append(signature_of(cls.__init__, name, of_class=True))
    out.append(described(cls.__doc__))
    for method, value in methods_of(cls) if name in WITH_METHODS else []:
        shown = {"__contains__": "in", "__len__": "len"}.get(method, method)
        out.append(f"### {name}: {shown}\n")
        value = value.make if isinstance(value, Operation) else value
        if isinstance(value, property):
            out.append(described(value.__doc__))
        else:
            call = {"__contains__": "id in deduplicator", "__len__": "len(deduplicator)"}.get(method)
            out.append(
                f"```python\n{call}\n```\n" if call else signature_of(value, method, of_class=True)
            )  # fmt: skip
            out.append(described(value.__doc__))
    return "\n".join(out)


def signer_page() -> str:
    """What a page says of signatures: how they are made, and what they look like."""
    hint = "[Chapter 3 by hand](../tutorials/chapter-3-by-hand.md#minhash-signatures-33) has an example.\n"
    return "\n".join([class_page("Signer"), hint, "### Signer: Signed\n", described(Signed.__doc__)])


def client_page() -> str:
    """What a page says of the client of the service."""
    hint = "`from stream_lsh.client import Client, AsyncClient`: [how to](../how-to/client.md).\n"
    return "\n".join([class_page("Client", client), hint])


def testing_page() -> str:
    """What a page says of the pipeline for tests."""
    hint = "`from stream_lsh.testing import Pipeline`: [how to](../how-to/test-your-consumers.md).\n"
    return "\n".join(
        [class_page("Pipeline", testing), hint, *(class_page(name, testing) for name in ("Record", "Consumer"))]
    )


def errors_page() -> str:
    """What a page says of the errors."""
    rows = ["## Errors\n", "| error | is a | when |", "|---|---|---|"]
    for name in stream_lsh.__all__:
        value = getattr(stream_lsh, name)
        if isinstance(value, type) and issubclass(value, Exception):
            when = " ".join(inspect.cleandoc(value.__doc__ or "").split())
            rows.append(f"| `{name}` | `{value.__base__.__name__}` | {when} |")
    return "\n".join([*rows, ""])


def rendered() -> str:
    """The whole page."""
    prepare = f"## prepare\n\n{signature_of(stream_lsh.prepare, 'prepare', of_class=False)}\n"
    prepare += described(stream_lsh.prepare.__doc__)
    return "\n".join(
        [
            INTRODUCTION,
            *map(class_page, CLASSES),
            SETTINGS,
            prepare,
            signer_page(),
            client_page(),
            testing_page(),
            errors_page(),
        ]
    )
