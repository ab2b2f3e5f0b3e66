"""What is the same for every seed, and is therefore made once: by the first seed that wants it. The server keeps it."""

from __future__ import annotations

import functools
import hashlib
import pickle
import random
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, TypeVarTuple

if TYPE_CHECKING:
    from stream_lsh.kafka.settings import KafkaSettings

T, Values = TypeVar("T"), TypeVarTuple("Values")
made: dict[bytes, bytes] = {}
"""Pickles by what they are made of. A seed's process has those of the server that forked it, and its own."""


def remembered(make: Callable[[KafkaSettings, *Values], T]) -> Callable[[KafkaSettings, *Values], T]:
    """Decorates what settings and values make, whose `repr` says what they are, whatever the folders.

    What is made, and the randomness that follows, are the same whichever seed makes it. Every call returns an object of
    its own.
    """

    @functools.wraps(make)
    def once(settings: KafkaSettings, *of: *Values) -> T:
        values = [value for value in of if not isinstance(value, Path)]
        said = make.__module__, make.__qualname__, settings.model_dump(exclude={"data_folder", "alerts"}), values
        name = hashlib.sha256(repr(said).encode()).digest()
        if name not in made:
            state = random.getstate()
            random.seed(name)
            made[name] = pickle.dumps(make(settings, *of))
            random.setstate(state)
        return pickle.loads(made[name])

    return once
