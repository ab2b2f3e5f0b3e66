"""Every error a user can meet: a whole sentence that names the file or setting and the remedy, and an exit code."""

from __future__ import annotations


class StreamLshError(Exception):
    """Base of all expected errors; the command line prints its message and exits with `exit_code`."""

    exit_code = 1


class UsageError(StreamLshError):
    """A setting or an argument is wrong."""

    exit_code = 2


class StoreError(StreamLshError):
    """The index on disk cannot be used as it is."""

    exit_code = 3


class InputError(StreamLshError):
    """An input cannot be read (single bad documents are dead letters, not errors)."""

    exit_code = 4


class OutputError(StreamLshError):
    """An output cannot be written."""

    exit_code = 5


class DamagedError(StoreError):
    """What an index has stored is lost or changed: only a backup, or whatever it was made from, brings it back."""


class BrokerError(StreamLshError):
    """Kafka cannot be reached, or refuses, or its topics are not what they have to be."""

    exit_code = 6


class FormatError(StoreError):
    """A record on Kafka cannot be read: another version, other settings, or damage."""


class ForeignError(FormatError):
    """A record on Kafka is none that any version of this program writes into its topic."""
