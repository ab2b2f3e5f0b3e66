"""The tools over the Model Context Protocol, on standard input and output."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
from collections.abc import Mapping
from typing import Any

import anyio
from mcp.server.lowlevel import Server
from mcp.server.mcpserver.tools import Tool
from mcp.types import CallToolRequestParams, CallToolResult, ListToolsResult, TextContent, ToolAnnotations
from mcp.types import Tool as Described
from pydantic import ValidationError

from stream_lsh import __version__
from stream_lsh.embedded.signals import Signals, interruption
from stream_lsh.errors import StreamLshError
from stream_lsh.mcp.notes import Notes
from stream_lsh.mcp.pipes import output_taken, streams

INSTRUCTIONS = """Notes that were stored before, and whether a new one is a near-duplicate of one of them. Call add for
each note that is to be kept: it stores the note and says what is similar. Call check to ask without storing."""
READS = ("check", "similar", "get", "compare", "groups", "members")
CHANGES = {"add": False, "delete": True}  # whether it destroys something


class Tools:
    """The tools of some notes. The SDK derives their schemas from signatures and docstrings."""

    def __init__(self, notes: Notes) -> None:
        reads = ToolAnnotations(read_only_hint=True, open_world_hint=False)
        annotations = dict.fromkeys(READS, reads) | {
            name: ToolAnnotations(
                read_only_hint=False, destructive_hint=destroys, idempotent_hint=destroys, open_world_hint=False
            )
            for name, destroys in CHANGES.items()
        }
        self._tools = {
            name: Tool.from_function(getattr(notes, name), annotations=given) for name, given in annotations.items()
        }

    def described(self) -> list[Described]:
        """What an agent is told of them."""
        return [
            Described(
                name=name, description=tool.description, output_schema=tool.output_schema,
                input_schema={**tool.parameters, "additionalProperties": False}, annotations=tool.annotations,
            )
            for name, tool in self._tools.items()
        ]  # fmt: skip

    def call(self, name: str, arguments: Mapping[str, Any]) -> CallToolResult:
        """The answer of a tool, or what is wrong with the call, in our words."""
        try:
            if (tool := self._tools.get(name)) is None:
                raise StreamLshError(f"there is no tool {name!r}; there are {', '.join(self._tools)}")
            if unknown := ", ".join(map(repr, arguments.keys() - tool.parameters["properties"].keys())):
                raise StreamLshError(f"{name} takes no {unknown}; it takes {', '.join(tool.parameters['properties'])}")
            given = tool.fn_metadata.arg_model.model_validate(arguments).model_dump_one_level()
            answer = tool.fn(**given).model_dump(mode="json")
        except ValidationError as error:
            wrong = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()]
            return _refusal(f"the arguments of {name} are wrong: {'; '.join(wrong)}")
        except (StreamLshError, TypeError) as error:
            return _refusal(str(error))
        text = json.dumps(answer, ensure_ascii=False)  # with integers of any size
        return CallToolResult(content=[TextContent(type="text", text=text)], structured_content=answer)


def _refusal(said: str) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=said)], is_error=True)


def made(tools: Tools) -> Server[Any]:
    """A server with these tools. A call takes the place of all others: an index is for one thread at a time."""

    async def listed(*_: Any) -> ListToolsResult:
        return ListToolsResult(tools=tools.described())

    async def called(_: Any, params: CallToolRequestParams) -> CallToolResult:
        return tools.call(params.name, params.arguments or {})

    return Server(
        "stream-lsh", version=__version__, instructions=INSTRUCTIONS, on_list_tools=listed, on_call_tool=called
    )


def serve(notes: Notes) -> None:
    """Answer until standard input ends.

    Raises:
        KeyboardInterrupt: a signal ended it.
        OSError: input or output fails. BrokenPipeError: the output has no reader any more.
    """
    logging.getLogger("mcp").setLevel(logging.ERROR)
    server = made(Tools(notes))
    gc.collect()
    gc.freeze()  # what is there by now stays: to look through it takes tens of milliseconds

    with output_taken() as output, Signals(lambda number: os._exit(128 + number)) as signals:
        try:
            signals.run(lambda stop, _: _answer(server, output, stop))
        except BaseExceptionGroup as errors:
            raise _failed_file(errors) or errors from None
        if signals.came:
            raise interruption(signals.came[0])


async def _answer(server: Server[Any], output: int, stop: asyncio.Event) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_cancel_after, stop, tasks.cancel_scope)
        async with streams(output) as (incoming, outgoing):
            await server.run(incoming, outgoing, server.create_initialization_options())
        tasks.cancel_scope.cancel()


async def _cancel_after(stop: asyncio.Event, work: anyio.CancelScope) -> None:
    await stop.wait()
    work.cancel()


def _failed_file(errors: BaseExceptionGroup[Any]) -> OSError | None:
    """The error of a descriptor, such as an output without a reader, among those of tasks."""
    found: BaseException | None = errors.subgroup(OSError)
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found if isinstance(found, OSError) else None
