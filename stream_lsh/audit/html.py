"""The report as one HTML file that loads nothing: style, script and data are in it, and a policy forbids all else."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Mapping
from hashlib import sha256
from importlib.resources import files
from typing import Any

_OURS, _SERVED = files("stream_lsh.audit") / "page", files("stream_lsh.serve") / "page"
_SHARED = (
    "json.js",
    "format.js",
    "elements.js",
    "alignment.js",
    "differences.js",
)  # modules of the page of the service
_MODULE = re.compile(r"^import .*;$\n|^export (?=const|function)", re.MULTILINE)


def html(report: Mapping[str, Any]) -> bytes:
    """The file. Texts and ids of documents are only in the data, in which each < is escaped."""
    style = _read(_SERVED, "style.css") + _read(_OURS, "report.css")
    script = "".join(_MODULE.sub("", _read(_SERVED, name)) for name in _SHARED) + _read(_OURS, "report.js")
    data = json.dumps(report, separators=(",", ":")).replace("<", "\\u003c")  # ASCII: ids may have lone surrogates
    page = _read(_OURS, "report.html")
    parts = {"STYLE": style, "SCRIPT": script, "STYLE_HASH": _hash(style), "SCRIPT_HASH": _hash(script), "DATA": data}
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], page).encode()


def _read(folder: Any, name: str) -> str:
    text: str = (folder / name).read_text(encoding="utf-8")
    return text


def _hash(text: str) -> str:
    return "sha256-" + b64encode(sha256(text.encode()).digest()).decode()
