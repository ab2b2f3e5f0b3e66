"""The receivers of a service's alerts: a TOML file with tables [[webhook]] (docs/how-to/spread-and-alerts.md)."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from stream_lsh.alerts.rules import Duration, Rule
from stream_lsh.documents.times import seconds_of
from stream_lsh.errors import UsageError
from stream_lsh.settings.errors import explain
from stream_lsh.settings.sources import read_tables

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}", re.ASCII)


class Receiver(BaseModel):
    """A receiver of alerts."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    name: str = Field(description="a name of its own: up to 40 letters, digits, dots, underscores and hyphens")
    url: str | None = Field(default=None, description="its address")
    url_env: str | None = Field(default=None, description="environment variable with a secret address")
    secret_env: str | None = Field(default=None, description="environment variable with the secret that signs alerts")
    rules: tuple[str, ...] | None = Field(
        default=None, strict=False, description="names of rules; without it the alerts of all rules are sent"
    )
    give_up: Duration = Field(default="12h", description='how long an alert is sent again: a duration such as "12h"')
    timeout: float = Field(default=10, strict=False, ge=0.1, le=300, description="seconds that a request may take")

    @field_validator("name")
    @classmethod
    def _name(cls, value: str) -> str:
        if _NAME.fullmatch(value) is None:
            raise ValueError("use up to 40 letters, digits, dots, underscores and hyphens")
        return value

    @model_validator(mode="after")
    def _addressed(self) -> Receiver:
        if (self.url is None) == (self.url_env is None):
            raise ValueError("give one of url and url_env")
        return self

    @cached_property
    def give_up_seconds(self) -> int:
        return seconds_of(self.give_up)


def read_receivers(path: Path, rules: Sequence[Rule]) -> tuple[Receiver, ...]:
    """The receivers of a file, in its order. rules: those that the service has.

    Raises:
        UsageError: naming the file, the receiver, the key and what is allowed.
    """
    receivers, known = [], {rule.name for rule in rules}
    for table, where in read_tables(path, "webhooks file", "webhook", "receivers", "name and url"):
        receiver = _receiver(table, where)
        if unknown := sorted(set(receiver.rules or ()) - known):
            raise UsageError(f"{where}: there is no rule {unknown[0]!r} in the rules file")
        receivers.append(receiver)
    return tuple(receivers)


def variable(where: str, name: str) -> str:
    """The value of an environment variable. Raises UsageError, which begins with `where`: it is missing or empty."""
    if not (value := os.environ.get(name)):
        raise UsageError(f"{where}: there is no such environment variable, or it is empty; set it")
    return value


def _receiver(table: Mapping[str, Any], where: str) -> Receiver:
    try:
        return Receiver.model_validate(table)
    except ValidationError as error:
        said = explain(error, table, {}, Receiver, noun="key of a webhook", described=True)
        raise UsageError(f"{where}: {said}") from None
