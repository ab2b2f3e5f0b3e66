"""The tools over the Model Context Protocol, on standard input and output."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import wraps
from typing import Any

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ToolAnnotations

from stream_lsh import __version__
from stream_lsh.errors import StreamLshError
from stream_lsh.mcp.notes import Notes

INSTRUCTIONS = """Notes that were stored before, and whether a new one is a near-duplicate of one of them. Call add for
each note that is to be kept: it stores the note and says what is similar. Call check to ask without storing."""
READS = ("check", "similar", "get", "compare", "groups", "members")
CHANGES = {"add": False, "delete": True}  # whether it destroys something


def made(notes: Notes) -> MCPServer[Any]:
    """A server with the tools of some notes."""
    server: MCPServer[Any] = MCPServer(
        "stream-lsh", version=__version__, instructions=INSTRUCTIONS, log_level="ERROR", subscriptions=False
    )
    for name in READS:
        server.tool(annotations=ToolAnnotations(read_only_hint=True, open_world_hint=False))(
            _told(getattr(notes, name))
        )
    for name, destroys in CHANGES.items():
        annotations = ToolAnnotations(
            read_only_hint=False, destructive_hint=destroys, idempotent_hint=destroys, open_world_hint=False
        )
        server.tool(annotations=annotations)(_told(getattr(notes, name)))
    return server


def serve(notes: Notes) -> None:
    """Answer until standard input ends."""
    logging.getLogger("mcp").setLevel(logging.ERROR)
    made(notes).run()


def _told(tool: Callable[..., Any]) -> Callable[..., Any]:
    """The tool; what a caller did wrong is said to it, in our words."""

    @wraps(tool)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return tool(*args, **kwargs)
        except (StreamLshError, TypeError) as error:
            raise ToolError(str(error)) from None

    return call
