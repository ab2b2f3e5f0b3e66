"""The jars of Apache Kafka, downloaded once with Maven into the user's cache folder, and the Java to run them."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stream_lsh.errors import BrokerError, UsageError

VERSIONS = ("4.1.1", "3.9.1")
"""The versions that the tests use; the first is the default. Other versions from 3.7 on can be downloaded too."""
_VERSION = re.compile(r"(\d+)\.(\d+)\.\d+")
_LINES = 8
_POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>stream-lsh</groupId><artifactId>kafka</artifactId><version>1</version><packaging>pom</packaging>
  <build><plugins><plugin>
    <groupId>org.apache.maven.plugins</groupId><artifactId>maven-dependency-plugin</artifactId><version>3.6.1</version>
  </plugin></plugins></build>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{version}</version>
      <exclusions>
        <exclusion><groupId>org.slf4j</groupId><artifactId>slf4j-reload4j</artifactId></exclusion>
      </exclusions>
    </dependency>
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version></dependency>
  </dependencies>
</project>
"""


def check_version(version: str) -> None:
    """Raises UsageError unless this is a version of Kafka from 3.7 on, the first that can start as we do."""
    match = _VERSION.fullmatch(version)
    if match is None or (int(match[1]), int(match[2])) < (3, 7):
        raise UsageError(f"{version!r} is not a version of Kafka from 3.7.0 on, for example {', '.join(VERSIONS)}.")


def cache_folder() -> Path:
    """The folder of the jars: $XDG_CACHE_HOME/stream-lsh, by default ~/.cache/stream-lsh."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "stream-lsh"


def java(version: str) -> str:
    """The path of a Java that can run this Kafka: from $JAVA_HOME, else from $PATH.

    Raises:
        BrokerError: there is none, or it is too old.
    """
    home = os.environ.get("JAVA_HOME")
    path = shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")
    least = 17 if version.startswith("4.") else 11
    if path is None:
        where = f"JAVA_HOME ({home}) has none" if home else "there is no program java"
        raise BrokerError(
            f"Kafka {version} needs Java {least} or newer, but {where}. Install a JRE, for example Temurin."
        )
    said = subprocess.run([path, "-version"], capture_output=True, text=True, errors="replace", check=False).stderr
    match = re.search(r'version "(?:1\.)?(\d+)', said)
    if match is None:
        raise BrokerError(f"{path} does not print its version: {said.strip() or 'no output'}.")
    if int(match[1]) < least:
        raise BrokerError(f"Kafka {version} needs Java {least} or newer, but {path} is Java {match[1]}.")
    return path


def libraries(version: str) -> Path:
    """The folder with the jars of a version. Missing ones are downloaded with Maven (46 MB).

    Several processes may call this at once: one downloads, the others wait.

    Raises:
        UsageError: not a version.
        BrokerError: Maven is missing or fails; the message has the last lines of its output.
    """
    check_version(version)
    folder = cache_folder() / f"kafka-{version}"
    if _complete(folder, version):
        return folder
    maven = shutil.which("mvn")
    if maven is None:
        raise BrokerError(
            f"the jars of Kafka {version} are not in {folder} yet, and there is no program mvn to fetch them. "
            "Install Maven, or name a broker that runs."
        )
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _locked(folder.with_name(f"{folder.name}.lock")):
            if not _complete(folder, version):
                _fetch(maven, version, folder)
    except OSError as error:
        raise BrokerError(f"the jars of Kafka cannot be kept in {folder}: {error.strerror}.") from None
    return folder


def fetched(version: str) -> bool:
    """Whether the jars of a version are downloaded."""
    return _complete(cache_folder() / f"kafka-{version}", version)


def _complete(folder: Path, version: str) -> bool:
    return (folder / f"kafka_2.13-{version}.jar").is_file()


def _fetch(maven: str, version: str, folder: Path) -> None:
    with tempfile.TemporaryDirectory(prefix=f"{folder.name}.", dir=folder.parent) as temporary:
        pom = Path(temporary) / "pom.xml"
        pom.write_text(_POM.format(version=version), encoding="utf-8")
        jars = Path(temporary) / "jars"
        command = [
            maven, "--batch-mode", "--quiet", "--file", str(pom), "dependency:copy-dependencies",
            "-DincludeScope=runtime", f"-DoutputDirectory={jars}",
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False, cwd=temporary)
        if done.returncode != 0 or not _complete(jars, version):
            said = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()][:_LINES]
            raise BrokerError("\n  ".join([f"Maven could not fetch Kafka {version}:", *said]))
        # The rename is atomic: the folder is complete or absent. Leftovers of a killed process are replaced.
        shutil.rmtree(folder, ignore_errors=True)
        jars.rename(folder)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
