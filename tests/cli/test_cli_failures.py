"""How the program ends when something goes wrong; what only fails, or helps, never waits for a compiler."""

import errno
import os
import re
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from stream_lsh.cli.failures import set_resumes
from stream_lsh.cli.group import Command, LazyGroup
from stream_lsh.cli.kafka.worker import WorkerCommand
from stream_lsh.embedded.signals import STOPPING
from stream_lsh.errors import InputError, OutputError, StoreError, StreamLshError, UsageError


def invoked(imported: Callable[[click.Context, str], click.Command]) -> Result:
    """`stream-lsh probe`, and how the command is imported."""
    group = LazyGroup("stream-lsh", commands_help={"probe": ""}, package="none")
    group.get_command = imported  # type: ignore[method-assign]
    return CliRunner().invoke(group, ["probe"], prog_name="stream-lsh")


def run(action: Callable[[], None], *, state: Path | None = None, job: bool = True) -> Result:
    @click.command(cls=Command)
    @click.pass_context
    def probe(context: click.Context) -> None:
        if job:
            set_resumes(context, state)
        action()

    return invoked(lambda context, name: probe)


def raiser(error: BaseException) -> Callable[[], None]:
    def action() -> None:
        raise error

    return action


@pytest.mark.parametrize(
    ("kind", "code"), [(StreamLshError, 1), (UsageError, 2), (StoreError, 3), (InputError, 4), (OutputError, 5)]
)
def test_each_error_has_its_exit_code(kind: type[StreamLshError], code: int) -> None:
    result = run(raiser(kind("the sentence that explains it")))
    assert result.exit_code == code
    assert result.stderr.startswith("stream-lsh: the sentence that explains it")
    assert result.stdout == ""


def test_a_usage_error_points_to_the_help_of_the_command() -> None:
    assert "Try 'stream-lsh probe --help'." in run(raiser(UsageError("no"))).stderr


def test_an_interrupt_says_how_to_go_on(tmp_path: Path) -> None:
    kept = run(raiser(KeyboardInterrupt()), state=tmp_path)
    assert kept.exit_code == 130
    assert kept.stderr == "stream-lsh: interrupted; run the same command again to go on\n"
    lost = run(raiser(KeyboardInterrupt()))
    assert lost.exit_code == 130
    assert "--index DIR" in lost.stderr
    assert run(raiser(KeyboardInterrupt()), job=False).stderr == "stream-lsh: interrupted\n"


def test_sigterm_ends_like_an_interrupt_and_the_handler_is_put_back(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    result = run(lambda: os.kill(os.getpid(), signal.SIGTERM), state=tmp_path)
    assert result.exit_code == 143
    assert result.stderr == "stream-lsh: terminated; run the same command again to go on\n"
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(
    ("kind", "code", "words"),
    [(Command, 128, "interrupted|terminated"), (WorkerCommand, 0, "stopped before anything had begun")],
)
def test_a_signal_while_the_command_is_imported_waits_for_it(
    number: signal.Signals, kind: type[Command], code: int, words: str
) -> None:
    """Only then it is known whether it has stopped something."""
    before = {number: signal.getsignal(number) for number in STOPPING}
    found: list[str] = []

    @click.command(cls=kind)
    def probe() -> None:
        found.append("begun")

    def imported(context: click.Context, name: str) -> click.Command:
        signal.raise_signal(number)
        found.append("imported")
        return probe

    try:
        result = invoked(imported)
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
    assert found == ["imported"]
    assert result.exit_code == (code + number if code else 0)
    assert re.search(words, result.stderr) and result.stderr.count("\n") == 1


def test_a_sigterm_waits_as_soon_as_it_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    usual, came = signal.signal, list[int]()

    def install(number: int, handler: Any) -> Any:
        before = usual(number, handler)
        if number == signal.SIGTERM and not came:
            came.append(number)
            signal.raise_signal(signal.SIGTERM)
        return before

    @click.command(cls=WorkerCommand)
    def probe() -> None:
        pytest.fail("it has begun")

    monkeypatch.setattr(signal, "signal", install)
    before = {number: signal.getsignal(number) for number in STOPPING}
    try:
        result = invoked(lambda context, name: probe)
    finally:
        for each, handler in before.items():
            usual(each, handler)
    assert came and (result.exit_code, result.stderr) == (0, "stream-lsh: stopped before anything had begun\n")


def test_a_usage_error_is_printed_although_a_signal_waits() -> None:
    def imported(context: click.Context, name: str) -> click.Command:
        signal.raise_signal(signal.SIGTERM)
        raise UsageError("no")

    result = invoked(imported)
    assert result.exit_code == 2 and "no" in result.stderr


def test_a_full_disk_names_the_file_and_the_remedy(tmp_path: Path) -> None:
    error = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "pairs.jsonl")
    result = run(raiser(error), state=tmp_path)
    assert result.exit_code == 5
    assert "no space left while writing pairs.jsonl" in result.stderr
    assert "run the same command again" in result.stderr


def test_another_error_of_the_system_names_the_file() -> None:
    result = run(raiser(PermissionError(errno.EACCES, "Permission denied", "secret.jsonl")))
    assert result.exit_code == 1
    assert result.stderr == "stream-lsh: secret.jsonl: Permission denied\n"


def test_a_mistake_of_the_program_is_not_hidden() -> None:
    result = run(raiser(ZeroDivisionError()))
    assert isinstance(result.exception, ZeroDivisionError)


WRITER = textwrap.dedent("""
    import sys, click
    from stream_lsh.cli.group import Command, LazyGroup
    @click.command(cls=Command)
    def probe():
        for number in range(100_000):
            click.echo("x" * 100)
    group = LazyGroup("stream-lsh", commands_help={"probe": ""}, package="none")
    group.get_command = lambda context, name: probe
    group(["probe"])
""")


def test_a_reader_that_closes_ends_it_in_silence() -> None:
    with subprocess.Popen([sys.executable, "-c", WRITER], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(10)
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 141


SCRIPT = """
import os
import sys
from click.testing import CliRunner
from stream_lsh.cli import COMMANDS, main
from stream_lsh.hashing import notice

compiled = []
notice.say = compiled.append
wrong = [
    ["dedup", "missing"], ["pairs", "missing"], ["evaluate", "missing"], ["tune", "missing"],
    *([command, "text", "--index", "missing"] for command in ("query", "delete")),
    *([command, "--index", "missing"] for command in ("info", "groups", "erase")),
]
for words in wrong + [[name, "--no-such-option"] for name in COMMANDS]:
    done = CliRunner().invoke(main, words)
    assert done.exit_code in (2, 3, 4), (words, done.output)
    assert not compiled, words
for name in COMMANDS:
    assert CliRunner().invoke(main, [name, "--help"]).exit_code == 0
assert not compiled
assert not os.path.exists("missing")
assert not [name for _, _, names in os.walk(sys.argv[1]) for name in names if name.endswith(".nbc")]
"""


def test_help_and_errors_compile_nothing(tmp_path: Path) -> None:
    """With an empty cache."""
    cache = tmp_path / "cache"
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, cache], cwd=tmp_path, env=os.environ | {"NUMBA_CACHE_DIR": str(cache)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("words", ["--help", "schema verdict", "tune"])
def test_a_closed_standard_output_is_named(words: str) -> None:
    script = f"exec {sys.executable} -m stream_lsh {words} >&-"
    done = subprocess.run(["/bin/sh", "-c", script], stderr=subprocess.PIPE, text=True)
    said = "stream-lsh: cannot write standard output: it is closed; redirect it to a file or a pipe\n"
    assert (done.returncode, done.stderr) == (5, said)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
@pytest.mark.parametrize("words", ["--help", "--version", "kafka --help", "dedup --help"])
def test_a_help_that_cannot_be_written(words: str) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "stream_lsh", *words.split()], stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert (done.returncode, done.stderr) == (5, "stream-lsh: no space left while writing; make room\n")
