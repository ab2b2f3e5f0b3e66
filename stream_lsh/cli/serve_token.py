"""`stream-lsh serve token add|list|revoke`: the tokens file of a service."""

from __future__ import annotations

import json
import time
from pathlib import Path

import click

from stream_lsh.cli.extra import TOKEN_PACKAGES, require
from stream_lsh.cli.failures import complain
from stream_lsh.cli.group import OPTIONS, Command, Group, Option
from stream_lsh.cli.options import FILE, json_option, option
from stream_lsh.cli.rows import print_rows
from stream_lsh.documents.times import milliseconds, moment, seconds_of
from stream_lsh.embedded.output_paths import check_outputs
from stream_lsh.errors import UsageError
from stream_lsh.serve.tokens import PERMISSIONS, Permission, Token, read_tokens

EXAMPLES = """
stream-lsh serve token add newsroom --token-file tokens.toml --permission read --permission write
stream-lsh serve token add audit --token-file tokens.toml --expires 90d
stream-lsh serve token list --token-file tokens.toml
stream-lsh serve token revoke newsroom --token-file tokens.toml
"""


def _file() -> Option:
    return option(OPTIONS, "--token-file FILE", "tokens file of the service", FILE, name="path", required=True)


def _end(_: click.Context, __: click.Parameter, text: str | None) -> float | None:
    """Seconds since 1970 of an end, which is a duration from now on, a date or a time."""
    if text is None:
        return None
    try:
        return time.time() + seconds_of(text)
    except ValueError:
        pass
    try:
        end = milliseconds(text) / 1000
    except ValueError:
        raise UsageError(
            f"--expires {text!r}: give a duration such as 90d, a date such as 2027-01-31, or a time with a zone such "
            "as 2027-01-31T12:00:00Z"
        ) from None
    if end <= time.time():
        raise UsageError(f"--expires {text}: this time is over")
    return end


@click.group(cls=Group, examples=EXAMPLES, help="Add, list and revoke the tokens of a service.")
def token() -> None:
    pass


@token.command(
    cls=Command,
    examples="\n".join(EXAMPLES.splitlines()[1:3]),
    help="""Make a token, print it once, and write its hash into the tokens file.

A running service reads the file within a second. The token itself is stored nowhere: if it is lost, revoke it and add
another one.""",
    params=[
        _file(),
        option(
            OPTIONS, "--permission", "what the token allows; repeatable", click.Choice(PERMISSIONS), name="permissions",
            multiple=True, default=("read",),
        ),
        option(
            OPTIONS, "--expires WHEN", "end of the token: a duration such as 90d, a date, or a time  [never]",
            callback=_end,
        ),
    ],
)  # fmt: skip
@click.argument("name")
def add(name: str, path: Path, permissions: tuple[Permission, ...], expires: float | None) -> None:
    require("serve token", "serve", TOKEN_PACKAGES)
    check_outputs({"--token-file": str(path)})
    from stream_lsh.serve.token_file import add_token

    secret = add_token(path, name, permissions, expires)
    click.echo(secret)
    end = "" if expires is None else f" until {moment(int(1000 * expires))}"
    complain(f"the token {name} allows {_listed(permissions)}{end}; it is shown only now, {path} has its hash")


@token.command(
    "list", cls=Command, examples=EXAMPLES.splitlines()[3],
    help="Show the names, the permissions and the ends of the tokens. The tokens themselves are stored nowhere.",
    params=[_file(), json_option(OPTIONS, "one JSON object a line")],
)  # fmt: skip
def show(path: Path, as_json: bool) -> None:
    tokens, now = read_tokens(path), time.time()
    if as_json:
        for found in tokens:
            click.echo(json.dumps(_described(found, now)))
        return
    rows = [
        (found.name, _listed(found.permissions), _written(found) + (" (expired)" if found.expired(now) else ""))
        for found in tokens
    ]
    print_rows(("token", "permissions", "expires"), [(row, "") for row in rows], 0)


@token.command(
    cls=Command,
    examples=EXAMPLES.splitlines()[4],
    help="""Remove a token from the tokens file.

A running service refuses the token within a second, and ends its open event streams.""",
    params=[_file()],
)
@click.argument("name")
def revoke(name: str, path: Path) -> None:
    require("serve token", "serve", TOKEN_PACKAGES)
    from stream_lsh.serve.token_file import revoke_token

    revoke_token(path, name)
    complain(f"the token {name} is revoked")


def _listed(permissions: tuple[Permission, ...] | frozenset[Permission]) -> str:
    return ", ".join(name for name in PERMISSIONS if name in permissions)


def _written(found: Token) -> str:
    return "never" if found.expires is None else moment(int(1000 * found.expires))


def _described(found: Token, now: float) -> dict[str, object]:
    return {
        "name": found.name, "permissions": [name for name in PERMISSIONS if name in found.permissions],
        "expires": None if found.expires is None else moment(int(1000 * found.expires)), "expired": found.expired(now),
    }  # fmt: skip
