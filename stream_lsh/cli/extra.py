"""The commands for Kafka, `serve`, and plots need packages that a plain installation leaves out."""

from __future__ import annotations

import importlib
import importlib.util
import logging
import sys
from collections.abc import Sequence

from stream_lsh.errors import StreamLshError
from stream_lsh.wording import missing_package

# What the extras `kafka` and `serve` bring, as it is imported.
PACKAGES = ("aiokafka", "faust", "prometheus_client", "aiohttp")
SERVE_PACKAGES = ("fastapi", "uvicorn", "httptools", "prometheus_client")
TOKEN_PACKAGES = ("tomlkit",)
REGISTRY_PACKAGES = ("fastavro", "google.protobuf", "httpx")
MCP_PACKAGES = ("mcp",)


def require_kafka(*packages: str) -> None:
    """Check that packages of the extra `kafka` are installed (aiokafka if none is named), and keep its log quiet.

    Raises:
        StreamLshError: with the command that installs them.
    """
    require("this command", "kafka", packages or PACKAGES[:1])
    # An error is reported once, in our words; aiokafka's log would repeat it many times before.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)


def require_for_children() -> None:
    """Check that what workers and `serve` need is installed, as `require`. It is not imported, which takes long."""
    for extra, packages in (("kafka", PACKAGES), ("serve", SERVE_PACKAGES)):
        unloaded = [name for name in packages if name not in sys.modules]  # a loaded faust has no spec
        require("this demo", extra, [name for name in unloaded if importlib.util.find_spec(name) is None])


def require(what: str, extra: str, packages: Sequence[str]) -> None:
    """Check that packages of an extra are installed, which something needs: what, as its name.

    Raises:
        StreamLshError: with the command that installs them.
    """
    for package in packages:
        try:
            importlib.import_module(package)
        except ModuleNotFoundError as error:
            raise StreamLshError(missing_package(what, error.name, extra)) from None
