"""Markdown: blocks of code and links in it; plain text of the help and of settings as Markdown."""

from __future__ import annotations

import re

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
"""A block of code: its language, and its lines."""
LINK = re.compile(r"!?\[([^\]]*)\]\(([^)\s]+)\)")
"""A link or a picture: its text, and its target."""
_CODE = re.compile(r"(`[^`]*`)")
_VALUES = r"(?: (?:all|kept|update|reject|text|cosine|euclidean|tf-idf|growing|chars:\d+|\d+(?:\.\d+)?)\b)?"
"""Those that may follow an option."""
_MARKED = re.compile(
    r"(?<![\w-])("
    + "|".join(
        (
            rf"--[a-z][\w-]*{_VALUES}", r"-X\b", r"\b[a-z]+(?:_[a-z]+)* = (?:\"[\w-]+\"|[a-z]+)",
            r"STREAM_LSH_[A-Z_]*\*?", r"X-Stream-Lsh-\w+", r"\b[a-z]+(?:_[a-z]+)+\b", r"stream-lsh\.toml",
            r"@line\b", r"words:K(?:/C)?", r"chars:K", r"\\w\+", r"\.\w{2,5}\b(?!\w)", r"/[a-z]+\b",
            r"PREFIX(?:[.-][A-Za-z-]+)*",
        )
    )
    + ")"
)  # fmt: skip


def blocks(text: str, *languages: str) -> list[str]:
    """The blocks of code in these languages."""
    return [body for language, body in FENCE.findall(text) if language in languages]


def prose(text: str) -> str:
    """One paragraph: names of options, variables, settings and files become code; what is code stays."""
    parts = _CODE.split(" ".join(text.split()))
    return "".join(part if part.startswith("`") else _escaped(_MARKED.sub(r"`\1`", part)) for part in parts)


def _escaped(text: str) -> str:
    return "".join(part if part.startswith("`") else re.sub(r"([*<\[\]])", r"\\\1", part) for part in _CODE.split(text))


def sentence(text: str) -> str:
    """A help text as a sentence: a capital, a full stop."""
    text = text.strip()
    return f"{text[:1].upper()}{text[1:]}" + ("" if text.endswith((".", "!", ":")) else ".")


def paragraphs(text: str) -> str:
    """The paragraphs of a help text."""
    return "\n\n".join(prose(part) for part in re.split(r"\n\s*\n", text.strip()) if part.strip())


def code(language: str, body: str) -> str:
    """A block of code."""
    return f"```{language}\n{body.strip()}\n```"
