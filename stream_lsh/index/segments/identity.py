"""The identity of an index: its format, its key, and the settings that it was made with."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from stream_lsh.errors import DamagedError, StoreError
from stream_lsh.hashing.siphash import KEY_BYTES
from stream_lsh.index.segments.segment import FOLDER
from stream_lsh.index.store.rocksdb import Store, name_key
from stream_lsh.settings.model import Settings

FORMAT = 2


def identity(store: Store, folder: Path, settings: Settings, now: float, *, read_only: bool) -> dict[str, Any]:
    """The identity of the index in a folder. That of a new index is written, with the time now (seconds since 1970).

    Raises:
        StoreError: there is no index and the store is read only, or the index has another format.
        DamagedError: the store is empty, but files of the index are there.
    """
    found: dict[str, Any] | None = store.named("index")
    if found is not None:
        check_format(found, store.path)
        return found
    if (folder / FOLDER).exists():
        raise DamagedError(
            f"the index in {folder} is damaged: {store.path} is empty, but there are files of what it held; restore "
            "the whole folder from a backup or start a new one"
        )
    if read_only:
        raise StoreError(f"{folder} holds no index: the run that made it wrote nothing, or its files were lost")
    facts = {
        "format": FORMAT, "created": int(now), "settings": settings.answers,
        "key": secrets.token_bytes(KEY_BYTES).hex(),
    }  # fmt: skip
    store.write({name_key("index"): orjson.dumps(facts)})
    return facts


def check_format(facts: Mapping[str, Any], path: Path) -> None:
    """Raise StoreError unless this version reads the format of an index."""
    if facts.get("format") != FORMAT:
        raise StoreError(
            f"{path} has format {facts.get('format')}, this version reads {FORMAT}; "
            "start a new folder and feed it again"
        )
