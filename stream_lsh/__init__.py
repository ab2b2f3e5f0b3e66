"""Streaming near-duplicate detection: a document goes in, its verdict comes out, the index persists.

The names here are loaded when they are first used, so that importing the package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stream_lsh.api.deduplicator import Deduplicator
    from stream_lsh.api.group import Group, Member, StoredDocument
    from stream_lsh.api.verdict import Kind, Match, Pair, Representative, Verdict
    from stream_lsh.documents.document import Document
    from stream_lsh.embedded.preparation import prepare
    from stream_lsh.errors import (
        BrokerError,
        DamagedError,
        ForeignError,
        FormatError,
        InputError,
        OutputError,
        StoreError,
        StreamLshError,
        UsageError,
    )
    from stream_lsh.families.signer import Signer
    from stream_lsh.settings.model import Settings

__version__ = "0.2.0"
__all__ = [
    "BrokerError",
    "DamagedError",
    "Deduplicator",
    "Document",
    "ForeignError",
    "FormatError",
    "Group",
    "InputError",
    "Kind",
    "Match",
    "Member",
    "OutputError",
    "Pair",
    "Representative",
    "Settings",
    "Signer",
    "StoreError",
    "StoredDocument",
    "StreamLshError",
    "UsageError",
    "Verdict",
    "prepare",
]

_HOMES = {
    "api.deduplicator": ("Deduplicator",),
    "api.group": ("Group", "Member", "StoredDocument"),
    "api.verdict": ("Kind", "Match", "Pair", "Representative", "Verdict"),
    "documents.document": ("Document",),
    "embedded.preparation": ("prepare",),
    "errors": (
        "BrokerError", "DamagedError", "ForeignError", "FormatError", "InputError", "OutputError", "StoreError",
        "StreamLshError", "UsageError",
    ),
    "families.signer": ("Signer",),
    "settings.model": ("Settings",),
}  # fmt: skip


def __getattr__(name: str) -> object:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{home}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
