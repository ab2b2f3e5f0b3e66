"""Errors that a user can meet. Each message is a whole sentence that names the file or setting and the remedy; each
class has an exit code."""

from __future__ import annotations


class StreamLshError(Exception):
    """Base of all expected errors. The command line prints the message and exits with `exit_code`."""

    exit_code = 1


class UsageError(StreamLshError):
    """A setting or an argument is wrong."""

    exit_code = 2


class StoreError(StreamLshError):
    """The index on disk cannot be used as it is."""

    exit_code = 3


class InputError(StreamLshError):
    """An input cannot be read. A single bad document is only a dead letter."""

    exit_code = 4


class OutputError(StreamLshError):
    """An output cannot be written."""

    exit_code = 5


class DamagedError(StoreError):
    """Stored data is lost or changed: restore a backup, or make the index again."""


class BrokerError(StreamLshError):
    """Kafka cannot be reached, refuses a request, or its topics do not fit."""

    exit_code = 6


class FormatError(StoreError):
    """A record on Kafka cannot be read: another version, other settings, or damage."""


class ForeignError(FormatError):
    """A record on Kafka is of another program."""
