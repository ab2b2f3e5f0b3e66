"""deploy/Dockerfile: what a reviewer would look for, and whether the commands in it exist."""

import json
import re
import shlex

import pytest
from support.deploy_files import PORT, ROOT, UID, check_command, dockerfile, image_environment, last_stage, only

pytestmark = pytest.mark.long  # the gate has the tools


def test_the_image_does_not_run_as_root() -> None:
    assert only("USER") == f"{UID}:{UID}"
    instructions = [step["instruction"] for step in last_stage()]
    # Whatever may run after USER runs as that user; nothing before it starts our program.
    before = last_stage()[: instructions.index("USER")]
    assert not any("stream_lsh" in step["value"] for step in before if step["instruction"] == "RUN")
    assert f"useradd --uid {UID}" in " ".join(step["value"] for step in before)


def test_the_image_starts_a_worker_and_asks_for_its_health() -> None:
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
    assert only("EXPOSE") == image_environment()["STREAM_LSH_HTTP_PORT"] == str(PORT)


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
