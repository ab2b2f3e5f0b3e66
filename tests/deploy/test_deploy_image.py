"""deploy/Dockerfile: what a reviewer would look for, and that the first start of a container compiles nothing."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import venv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from support.deploy_files import PORT, ROOT, UID, check_command, dockerfile, image_environment, only

import stream_lsh
from stream_lsh.cli.health import SERVICE_PORT
from stream_lsh.hashing import notice

pytestmark = pytest.mark.long  # the gate has the tools


def test_the_image_starts_a_worker_and_asks_for_its_health() -> None:
    assert only("USER") == f"{UID}:{UID}"
    assert json.loads(only("ENTRYPOINT")) == ["stream-lsh"]
    check_command(json.loads(only("CMD")))
    program, *words = json.loads(only("HEALTHCHECK").partition("CMD ")[2])
    assert program == "stream-lsh"
    check_command(words)
    runs = [step["value"] for step in dockerfile() if step["instruction"] == "RUN"]
    warming = [words for value in runs for words in re.findall(r"-m stream_lsh ([^&|>\n\\]+)", value)]
    assert warming
    for words in warming:
        check_command(shlex.split(words))
    assert image_environment()["STREAM_LSH_HTTP_PORT"] == str(PORT)
    assert only("EXPOSE").split() == [str(PORT), str(SERVICE_PORT)]


def test_hadolint_finds_nothing() -> None:
    program = Path(sys.executable).with_name("hadolint")
    done = subprocess.run([program, ROOT / "deploy" / "Dockerfile"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_image_gets_all_it_copies() -> None:
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert "*" in ignored
    allowed = {line[1:] for line in ignored if line.startswith("!")}
    copied = set()
    for step in dockerfile():
        if step["instruction"] == "COPY" and "--from=" not in step["value"]:
            copied |= {source.removeprefix("./") for source in step["value"].split()[:-1]}
    assert copied == allowed
    assert all((ROOT / name).exists() for name in copied)


PLACE = "/opt/stream-lsh"
WORKER = """
from stream_lsh.documents import avro_json
from stream_lsh.embedded.warming import warm_up
from stream_lsh.kafka.settings import KafkaSettings
warm_up(KafkaSettings())
avro_json.warm_up()
"""
LOOK_UP = """
import tempfile
from stream_lsh import Deduplicator
with Deduplicator(index=tempfile.mkdtemp()) as dedup:
    assert "nothing" not in dedup
"""
FEED = [
    {"id": 1, "text": "The harbour was closed on Tuesday because of a storm from the west, and all ferries stayed."},
    {
        "id": 2,
        "text": "The harbour was closed on Tuesday because of a storm from the west, and all the ferries stayed.",
    },
    {"id": 3, "text": "Nothing like the others"},
]
ONLY_WITH_OTHER_SETTINGS = ("tf_idf", "document_frequency", "terms", "containment", "passages", "replace", "distances")
"""Modules whose kernels a run with default settings does without."""


@pytest.fixture
def root() -> Iterator[Path]:
    """A folder that every user can enter."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


def cpu() -> str:
    """The kind of processor that the image is built for."""
    return next(
        s["value"].partition("=")[2] for s in dockerfile() if s["instruction"] == "ARG" and "CPU=" in s["value"]
    )


def another_user() -> dict[str, Any]:
    """Arguments that start a process as another user, if this one may do that and Python is there for all."""
    python = Path(sys.executable).resolve()
    if os.getuid() == 0 and all(parent.stat().st_mode & 0o001 for parent in (python, *python.parents)):
        return {"user": 12345, "group": 12345, "extra_groups": []}
    return {}


def run(
    python: Path, words: Sequence[object], variables: dict[str, str], **more: Any
) -> subprocess.CompletedProcess[str]:
    command = [str(python), *map(str, words)]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False, cwd="/", **more)
    assert done.returncode == 0, done.stderr
    return done


def compiled(folder: Path) -> list[str]:
    """The kernels that are in a cache: module and function."""
    return sorted(path.name.partition("-")[0] for path in folder.rglob("*.nbc"))


@pytest.mark.limit(900)
def test_a_container_compiles_nothing(root: Path) -> None:
    built, feed = root / "build" / "stream-lsh", root / "feed.jsonl"
    feed.write_text("".join(json.dumps(document) + "\n" for document in FEED))
    feed.chmod(0o644)
    # The package as it is installed, and what it needs from where the tests have it.
    venv.create(built, symlinks=True)
    packages = next(built.glob("lib/python3.*/site-packages"))
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(Path(stream_lsh.__file__).parent, packages / "stream_lsh", ignore=ignored)
    (packages / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    system = {"PATH": os.environ["PATH"], "CPU": cpu(), "HOME": str(root / "nobody")}
    # The step of the Dockerfile that compiles, as a shell would run it.
    step = next(
        s["value"] for s in dockerfile() if s["instruction"] == "RUN" and "stream_lsh.embedded.warming" in s["value"]
    )
    subprocess.run(["sh", "-c", re.sub(r"\s*\\\n\s*", " ", step).replace(PLACE, str(built))], env=system, check=True)
    assert {"tf_idf", "containment"} <= {name.partition(".")[0] for name in compiled(built / "share")}
    (root / "image").mkdir()
    moved = built.rename(root / "image" / "stream-lsh")
    for path in [moved, *moved.rglob("*")]:
        if not path.is_symlink():
            path.chmod(path.stat().st_mode & ~0o222)
    home = root / "home"
    home.mkdir()
    home.chmod(0o777)
    container = image_environment() | {"PATH": os.environ["PATH"], "NUMBA_CPU_NAME": cpu(), "HOME": str(home)}
    container["XDG_CACHE_HOME"] = str(home / "cache")
    starts = (
        ("-m", "stream_lsh", "dedup", feed),
        ("-m", "stream_lsh", "dedup", "--measure", "tf-idf", feed),
        ("-m", "stream_lsh", "dedup", "--measure", "containment", feed),
        ("-m", "stream_lsh", "demo"),
        ("-c", WORKER),
        ("-c", LOOK_UP),
    )  # fmt: skip
    for words in starts:
        assert notice.TEXT not in run(moved / "bin" / "python", words, container, **another_user()).stderr
    assert not compiled(home)
    # For another kind of processor what the defaults need is compiled, which is said.
    other = run(moved / "bin" / "python", starts[0], container | {"NUMBA_CPU_NAME": "x86-64"}, **another_user())
    assert other.stderr.count(notice.TEXT) == 1
    names = compiled(home)
    assert "match.match" in names and "signer._sign" in names
    assert not [name for name in names if name.partition(".")[0] in ONLY_WITH_OTHER_SETTINGS]
