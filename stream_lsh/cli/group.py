"""The click group that imports a command when it is called, and commands whose help has sections and examples."""

from __future__ import annotations

import gc
import importlib
import os
import re
from collections.abc import Collection, Mapping
from contextlib import nullcontext, suppress
from types import MappingProxyType
from typing import Any

import click

from stream_lsh.cli.failures import complain, explained, guarded, leave, name_command
from stream_lsh.hashing import notice

ALL = "stream_lsh.help_all"
"""Key of click's meta: all options are to be shown."""
_MEASURE = "stream_lsh.measure"
"""Key of click's meta: the value of --measure, also where --help precedes it."""
OPTIONS = "Options"
"""The section of options without another one."""
OBJECTS = 100_000  # new ones, after which the youngest are looked through for garbage


def prepare_process() -> None:
    """Make this process one for long work, before anything large is imported.

    What is imported stays: to look through it for garbage at every 700 new objects would be a tenth of a run. And
    nothing here multiplies matrices: the threads that numpy starts for that would spin for nothing.
    """
    gc.set_threshold(OBJECTS)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def folded(line: str, width: int, indent: int) -> str:
    """A line of the shell, continued before an option or a pipe where it would be too wide."""
    lines = [""]
    for part in re.split(r" (?=--|-X |\| |> )", line):
        if indent + len(lines[-1]) + len(part) > width - 3:  # a space, and what continues it
            lines.append("  ")
        lines[-1] += f" {part}" if lines[-1].strip() else part
    space = " " * indent
    return space + f" \\\n{space}".join(filter(str.strip, lines)) + "\n"


class Exemplified(click.Command):
    """A command, or a group of them, whose help ends with examples."""

    def __init__(self, *args: Any, examples: str = "", **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.examples = examples

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            error.ctx = error.ctx or ctx  # an option without its value has none
            raise

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The examples as they are, a line each: click would wrap them into a paragraph."""
        super().format_epilog(ctx, formatter)
        lines = [line for line in self.examples.splitlines() if line.strip()]
        if lines:
            with formatter.section("Example" if len(lines) == 1 else "Examples"):
                for line in lines:
                    formatter.write(folded(line.strip(), formatter.width, formatter.current_indent))


class Option(click.Option):
    """An option with the section of the help it belongs to.

    common: `--help` shows it; the others are in `--help-all`. brief: what `--help` says of it, else the help up to the
    first semicolon. measures: those that use it, None if all do. defaults: those of measures that have another one.
    """

    def __init__(
        self,
        *args: Any,
        section: str = OPTIONS,
        common: bool = True,
        brief: str | None = None,
        measures: Collection[str] | None = None,
        defaults: Mapping[str, Any] = MappingProxyType({}),
        **attributes: Any,
    ) -> None:
        super().__init__(*args, **attributes)
        self.section = section
        self.common = common
        self.brief = brief
        self.measures = measures
        self.defaults = defaults

    def shown(self, measure: str | None) -> bool:
        """Whether `--help` shows it; with a measure that is named, too: what only some measures use."""
        if measure is None:
            return self.common
        return measure in self.measures if self.measures is not None else self.name in ("measure", "help_all")

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        record, own = super().get_help_record(ctx), self.defaults.get(ctx.meta.get(_MEASURE, ""))
        if record is None or own is None:
            return record
        return record[0], re.sub(r"\[[^\[]*\]$", f"[{own}]", record[1])

    def summary(self, text: str) -> str:
        """The line of `--help`, without what follows the first semicolon; the default stays, in brackets."""
        text, bracket, default = text.partition("  [")
        return (self.brief or re.split(r"; (?![^\[]*\])", text)[0]) + bracket + default


def _help_all(context: click.Context, _: click.Parameter, value: bool) -> None:
    if value and not context.resilient_parsing:
        context.meta[ALL] = True
        click.echo(context.get_help(), color=context.color)
        context.exit()


class Command(Exemplified):
    """A command whose help lists its options by section. `--measure NAME --help` has those of the measure alone, and no
    examples, which are of all measures."""

    def __init__(self, *args: Any, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        if "\n\n" in (self.help or "") or not all(getattr(parameter, "common", True) for parameter in self.params):
            self.params.append(
                Option(
                    ["--help-all"], is_flag=True, is_eager=True, expose_value=False, callback=_help_all,
                    help="Show all options, by topic.",
                )
            )  # fmt: skip

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if any(option.name == "measure" for option in self.params):
            with suppress(click.UsageError):  # what follows raises it, too
                ctx.meta[_MEASURE] = self.make_parser(ctx).parse_args(list(args))[0].get("measure", "")
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        name_command(ctx)
        if ctx.params.get("quiet"):
            notice.say = notice.nothing
        return super().invoke(ctx)

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The first paragraph; all of them with --help-all."""
        whole = self.help
        try:
            if whole is not None and ALL not in ctx.meta:
                self.help = whole.partition("\n\n")[0]
            super().format_help_text(ctx, formatter)
        finally:
            self.help = whole

    def _measure(self, ctx: click.Context) -> str | None:
        """The measure whose options are asked for; None if no option is of it."""
        measure: str | None = ctx.meta.get(_MEASURE) if ALL not in ctx.meta else None
        known = {name for option in self.params if isinstance(option, Option) for name in option.measures or ()}
        return measure if measure in known else None

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if self._measure(ctx) is None:
            super().format_epilog(ctx, formatter)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        everything, measure = ALL in ctx.meta, self._measure(ctx)
        rest = OPTIONS if measure is None else f"{OPTIONS} with --measure {measure}"
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is None or not (everything or not isinstance(parameter, Option) or parameter.shown(measure)):
                continue
            if not everything and isinstance(parameter, Option):
                record = record[0], parameter.summary(record[1])
            title = getattr(parameter, "section", OPTIONS) if everything else rest
            sections.setdefault(title, []).append(record)
        # One width for all sections, so that the descriptions are aligned.
        width = max((len(left) for records in sections.values() for left, _ in records), default=0)
        for title, records in sections.items():
            with formatter.section(title):
                formatter.write_dl([(left.ljust(min(width, 30)), right) for left, right in records])


class Group(Exemplified, click.Group):
    """A command with commands of its own."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        known = self.list_commands(ctx)
        if args and not args[0].startswith("-") and args[0] not in known:
            from stream_lsh.cli.usage import no_such_command  # here, because it takes pydantic with it

            ctx.fail(no_such_command(args[0], known))
        return super().resolve_command(ctx, args)


class CommandWithCommands(Command, Group):
    """A command that does something by itself, and has commands of its own, too."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_options(ctx, formatter)
        self.format_commands(ctx, formatter)


class LazyGroup(Group):
    """Commands by name from modules of a package: `package.<name>` has the attribute `<name>`, with _ for -."""

    def __init__(self, *args: Any, commands_help: Mapping[str, str], package: str, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.commands_help = commands_help
        self.package = package

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run a command. The process of a real command line ends with it, not when the interpreter has tidied up: that
        takes a fifth of a second, in which a kill would look like one in the middle of the work."""
        given = args[0] if args else extra.get("args")
        if given is not None or not extra.get("standalone_mode", True):
            return super().main(*args, **extra)
        prepare_process()
        notice.say = complain
        try:
            super().main(*args, **extra)
        except SystemExit as end:
            leave(end)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands_help)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.commands_help:
            return None
        name = cmd_name.replace("-", "_")
        command = getattr(importlib.import_module(f"{self.package}.{name}"), name)
        assert isinstance(command, click.Command)
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        with explained(ctx) if ctx.parent is None else nullcontext():  # as in `invoke`
            return super().parse_args(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(self.commands_help.items()))

    def invoke(self, ctx: click.Context) -> Any:
        with guarded(ctx) if ctx.parent is None else nullcontext():  # a group in another one, which guards them all
            return super().invoke(ctx)
