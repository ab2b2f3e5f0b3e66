"""Streaming near-duplicate detection: a document goes in, its verdict comes out, the index persists.

The names here are loaded when they are first used, so that importing the package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stream_lsh.api import Deduplicator, Match, Pair, Verdict
    from stream_lsh.documents.columns import Document
    from stream_lsh.families.signer import Signer
    from stream_lsh.settings.model import Settings

__version__ = "0.1.0"
__all__ = ["Deduplicator", "Document", "Match", "Pair", "Settings", "Signer", "Verdict"]

_HOMES = {
    "Deduplicator": "api",
    "Document": "documents.columns",
    "Match": "api",
    "Pair": "api",
    "Settings": "settings.model",
    "Signer": "families.signer",
    "Verdict": "api",
}


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
