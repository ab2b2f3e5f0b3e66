"""The page of all commands, from the objects of click."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cache

import click
from markup import code, paragraphs, prose, sentence

from stream_lsh.cli import main
from stream_lsh.cli.options import SECTIONS
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.settings.model import Settings

INTRODUCTION = """\
# Command line

`stream-lsh COMMAND --help` shows the options that most people need. `--help-all` shows all of them, by topic. The
options of one measure appear with `--measure NAME --help`.

- Many options are [settings](settings.md), which a file or the environment can give, too. The lists below link to them.
- Results are written to standard output, everything else to standard error.
- All commands share their [exit codes](errors.md#exit-codes). `stream-lsh --version` shows the version.
"""
SHARED = "## Options of several commands"
OFTEN = 3  # commands from which on an option is described once for all
HELP = ("--help", "--help-all")


def commands(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    """All commands, each group before its own."""
    yield name, command
    if isinstance(command, click.Group):
        for child in command.list_commands(click.Context(command)):
            found = command.get_command(click.Context(command), child)
            assert found is not None
            yield from commands(found, f"{name} {child}")


def is_setting(option: click.Option) -> bool:
    """Whether settings.md has it; other options with the name of a setting have a text of their own."""
    fields = [model.model_fields.get(option.name or "") for model in (Settings, KafkaSettings)]
    return any(field is not None and (option.help or "").startswith(field.description or "?") for field in fields)


def value_of(option: click.Option) -> str:
    """What follows an option on the command line."""
    if option.is_flag:
        return ""
    if isinstance(option.type, click.Choice):
        return " " + "|".join(option.type.choices)
    return " " + (option.metavar or "N")


def item(option: click.Option) -> str:
    """An option that is no setting: names, meaning, default."""
    names = ", ".join(f"`{name}{value_of(option)}`" for name in (*option.opts, *option.secondary_opts))
    text, bracket, default = (option.help or "").partition("  [")
    default = default.removesuffix("]") if bracket else str(option.default) if option.show_default is True else ""
    if isinstance(option.show_default, str):
        default = option.show_default
    said = f" Default: {prose(default) if ' ' in default else f'`{default}`'}." if default else ""
    return f"- {names}: {prose(sentence(text))}{said}"


@cache
def shared() -> dict[str, click.Option]:
    """Options that several commands have with the same meaning, by their line."""
    found: Counter[str] = Counter()
    options: dict[str, click.Option] = {}
    for _, command in commands(main, "stream-lsh"):
        for option in command.params:
            if isinstance(option, click.Option) and option.opts[0] not in HELP and not is_setting(option):
                found[item(option)] += 1
                options[item(option)] = option
    return {line: options[line] for line, times in found.items() if times >= OFTEN}


def named() -> list[str]:
    """The lines of shared options. Where two lines have the same options, each names its commands."""
    heads = Counter(line.partition(":")[0] for line in shared())
    users: dict[str, list[str]] = {line: [] for line in shared()}
    for name, command in commands(main, "stream-lsh"):
        for option in command.params:
            if isinstance(option, click.Option) and (line := item(option)) in users:
                users[line].append(f"`{name.removeprefix('stream-lsh ')}`")
    parted = [(line, *line.partition(":")) for line in shared()]
    return [f"{head} of {', '.join(users[line])}:{text}" if heads[head] > 1 else line for line, head, _, text in parted]


def linked(section: str, options: list[click.Option]) -> str:
    """The settings of a topic: the topic alone if a command has all of it."""
    names = [option.name or "" for option in options]
    known = {"Similarity": ("similarity", "limits"), "Documents": ("documents",), "Index": ("index",)}
    if section in known and set(names) >= set(SECTIONS[section]):
        links = " and ".join(f"[{title.capitalize()}](settings.md#{title})" for title in known[section])
        return f"- all settings of {links}"
    return "- " + ", ".join(
        f"[`{option.opts[0]}`](settings.md#{name})" for name, option in zip(names, options, strict=True)
    )


def options_of(command: click.Command) -> str:
    """Own options by topic, then the names of those that are described elsewhere."""
    own: dict[str, list[str]] = {}
    settings: dict[str, list[click.Option]] = {}
    common: list[str] = []
    for option in command.params:
        if not isinstance(option, click.Option) or option.opts[0] in HELP:
            continue
        section = getattr(option, "section", "Options")
        if is_setting(option):
            settings.setdefault(section, []).append(option)
        elif item(option) in shared():
            common.append(f"`{option.opts[0]}`")
        else:
            own.setdefault(section, []).append(item(option))
    out = [f"{title}:\n\n" + "\n".join(items) for title, items in own.items()]
    if common:
        out.append(f"[Options of several commands](#options-of-several-commands): {', '.join(common)}")
    if settings:
        out.append("Settings:\n\n" + "\n".join(linked(title, options) for title, options in settings.items()))
    return "\n\n".join(out)


def section(name: str, command: click.Command) -> str:
    """One command."""
    context = click.Context(command, info_name=name)
    out = [f"## {name}", code("text", " ".join([name, *command.collect_usage_pieces(context)]))]
    out.append(paragraphs(command.help or ""))
    if isinstance(command, click.Group):
        children = command.list_commands(context)
        links = (f"[`{child}`](#{f'{name} {child}'.replace(' ', '-')})" for child in children)
        out.append(f"Commands: {', '.join(links)}")
    if (not isinstance(command, click.Group) or command.invoke_without_command) and (options := options_of(command)):
        out.append(options)
    examples = "\n".join(line for line in getattr(command, "examples", "").splitlines() if line.strip())
    if examples and (not isinstance(command, click.Group) or command.invoke_without_command):
        out.append(code("sh", examples))
    return "\n\n".join(out) + "\n"


def rendered() -> str:
    """The whole page."""
    sections = [section(name, command) for name, command in commands(main, "stream-lsh")]
    return "\n".join([INTRODUCTION, *sections, SHARED + "\n", *named(), ""])
