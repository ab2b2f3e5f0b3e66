"""A real Apache Kafka on this machine, from Maven and Java, for trials and tests: one node, KRaft."""

from __future__ import annotations

import atexit
import base64
import fcntl
import os
import random
import re
import socket
import struct
import subprocess
import time
import uuid
import weakref
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Self

from stream_lsh.errors import BrokerError
from stream_lsh.kafka.run.children import bound
from stream_lsh.kafka.tools.libraries import VERSIONS, java, libraries

START_SECONDS, STOP_SECONDS = 120.0, 30.0
PROPERTIES = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "auto.create.topics.enable": "false",
    "num.network.threads": "2",
    "num.io.threads": "4",
    # After a kill the controller refuses the same broker until its old session has expired: by default 9 s.
    "broker.session.timeout.ms": "6000",
    "broker.heartbeat.interval.ms": "1000",
    "log.cleaner.dedupe.buffer.size": "16777216",
}
"""A single node: one replica of everything, small internal topics, consumer groups that start without a delay."""
# Below the ephemeral ports. A client that keeps trying to connect to a stopped broker could otherwise get that very
# port as its own, connect to itself, and keep the broker from starting again.
_FIRST_PORT, _LAST_PORT = 10_000, 28_000
_LOG_LINES = 12
HEAP_MB = 512
_FIRST_COMPILER = "-XX:TieredStopAtLevel=1"  # for a short run the second compiler costs more time than it saves
# The child ends with the thread that started it, so this thread runs as long as our process.
_starter = ThreadPoolExecutor(1, "stream-lsh-broker")
_running: weakref.WeakSet[KafkaBroker] = weakref.WeakSet()


class KafkaBroker:
    """One broker with its folder. It can be stopped, killed and started again on the same port and data."""

    def __init__(
        self,
        folder: Path,
        version: str = VERSIONS[0],
        port: int | None = None,
        *,
        properties: Mapping[str, str] | None = None,
        brief: bool = False,
    ) -> None:
        """Does not start the broker.

        Args:
            folder: for data and log. Created if missing; existing data are used again.
            port: of the plain listener; None = a free one.
            properties: further lines of server.properties, which override `PROPERTIES`.
            brief: for a life of minutes: it starts sooner, and takes more time for each record.
        """
        self.folder = folder
        self.version = version
        plain, self._controller_port = free_ports(2, () if port is None else (port,))
        self.port = port or plain
        self.log = folder / "broker.log"
        self._properties = dict(properties or {})
        self._java_options = [_FIRST_COMPILER] if brief else []
        self._process: subprocess.Popen[bytes] | None = None
        self._lock: int | None = None

    @property
    def bootstrap(self) -> str:
        """host:port of the plain listener."""
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int | None:
        """The process id, None if it does not run."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self, timeout: float = START_SECONDS) -> None:
        """Start the broker and wait until it answers. Does nothing if it runs.

        Raises:
            BrokerError: Java or the jars are missing, the port is taken, or the broker ends or does not answer. The
                message has the end of its log.
        """
        if self.pid is not None:
            return
        program = java(self.version)
        classes = f"{libraries(self.version)}{os.sep}*"
        properties = self._all_properties()
        for port in re.findall(r":(\d+)", properties["listeners"]):
            _check_free(int(port))
        self.kill()  # cleans up after one that ended by itself
        try:
            self._begin(program, classes, properties)
            self._wait_until_ready(timeout)
        except OSError as error:
            self.kill()
            raise BrokerError(f"Kafka cannot be started in {self.folder}: {error.strerror}.") from None
        except BaseException:
            self.kill()
            raise

    def _begin(self, program: str, classes: str, properties: Mapping[str, str]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lock = _locked(self.folder / "lock")
        config = self._write(properties)
        if not (self._data / "meta.properties").exists():
            self._format(program, classes, config)
        self._process = _starter.submit(self._launch, [
            program, f"-Xmx{HEAP_MB}m", "-XX:+UseSerialGC", *self._java_options,
            "-Dorg.slf4j.simpleLogger.showDateTime=true",
            "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd HH:mm:ss.SSS",
            "-cp", classes, "kafka.Kafka", str(config),
        ]).result()  # fmt: skip
        _running.add(self)

    def _wait_until_ready(self, timeout: float) -> None:
        end = time.monotonic() + timeout
        while not _ready(self.port):
            assert self._process is not None
            code = self._process.poll()
            if code is not None or time.monotonic() > end:
                what = f"ended with code {code}" if code is not None else f"did not answer within {timeout:.0f} s"
                raise BrokerError("\n  ".join([f"Kafka {what}; its log {self.log} ends with", *self.last_lines()]))
            time.sleep(0.05)

    def stop(self, timeout: float = STOP_SECONDS) -> None:
        """Stop it with SIGTERM; kill it after `timeout` seconds."""
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout)
        self.kill()

    def kill(self) -> None:
        """End it at once (SIGKILL), as a power failure would."""
        if self._process is not None:
            if self._process.poll() is None:
                self._process.kill()
            self._process.wait()
        self._process = None
        if self._lock is not None:
            fcntl.flock(self._lock, fcntl.LOCK_UN)  # a process that is just being started may share the descriptor
            os.close(self._lock)
            self._lock = None
        _running.discard(self)

    def wait(self, timeout: float | None = None) -> int | None:
        """Wait for its end. Returns its exit code, or None if it does not end within `timeout` seconds or is not
        running."""
        if self._process is None:
            return None
        with suppress(subprocess.TimeoutExpired):
            return self._process.wait(timeout)
        return None

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    def _all_properties(self) -> dict[str, str]:
        return {
            **PROPERTIES,
            "log.dirs": str(self._data),
            "controller.quorum.voters": f"1@127.0.0.1:{self._controller_port}",
            "listeners": f"PLAINTEXT://{self.bootstrap},CONTROLLER://127.0.0.1:{self._controller_port}",
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            **self._properties,
        }

    def _write(self, properties: Mapping[str, str]) -> Path:
        path = self.folder / "server.properties"
        # In Java's properties format a backslash begins an escape.
        lines = (f"{key}={value}\n".replace("\\", "\\\\") for key, value in properties.items())
        path.write_text("".join(lines), encoding="utf-8")
        return path

    def _format_command(self, program: str, classes: str, config: Path) -> list[str]:
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        return [
            program, _FIRST_COMPILER, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", classes,
            "kafka.tools.StorageTool",
            "format", f"--cluster-id={cluster}", f"--config={config}", "--ignore-formatted",
        ]  # fmt: skip

    def _format(self, program: str, classes: str, config: Path) -> None:
        command = self._format_command(program, classes, config)
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        if done.returncode != 0:
            said = _telling(done.stdout + done.stderr)
            raise BrokerError("\n  ".join([f"{self._data} cannot be prepared for Kafka {self.version}:", *said]))

    def _launch(self, command: list[str]) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            # In its own process group: Ctrl-C is for us, and we stop it in order.
            return subprocess.Popen(
                bound(command), stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder,
                start_new_session=True, pass_fds=[self._lock] if self._lock is not None else [],
            )  # fmt: skip

    def last_lines(self) -> list[str]:
        """The last lines of its log that say what is wrong."""
        try:
            text = self.log.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ["(there is no log)"]
        return _telling(text)


def _telling(text: str) -> list[str]:
    """The last lines of a log that report a problem: without stack traces and successes."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith(("\tat ", "\t..."))]
    wrong = [line for line in lines[-400:] if any(word in line for word in ("ERROR", "FATAL", "Exception"))]
    return (wrong or lines)[-_LOG_LINES:]


def free_port() -> int:
    """A free port of 127.0.0.1.

    Raises:
        BrokerError: none was found.
    """
    for _ in range(200):
        port = random.SystemRandom().randint(_FIRST_PORT, _LAST_PORT)
        with suppress(BrokerError):
            _check_free(port)
            return port
    raise BrokerError("there is no free port on 127.0.0.1.")


def free_ports(number: int, but: Collection[int] = ()) -> list[int]:
    """`number` different free ports, none of them in `but`."""
    found: list[int] = []
    while len(found) < number:
        port = free_port()
        if port not in found and port not in but:
            found.append(port)
    return found


def _locked(path: Path) -> int:
    """A descriptor that locks the folder, even when only the broker still has it open.

    Kafka has its own locks, but checks them late: by then a second broker has damaged the first one's log.

    Raises:
        BrokerError: another broker uses the folder.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise BrokerError(f"another Kafka uses the folder {path.parent}. Stop it, or give another folder.") from None
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _check_free(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise BrokerError(
                f"port {port} of 127.0.0.1 cannot be used: {error.strerror}. Choose another one."
            ) from None


def _ready(port: int) -> bool:
    """Whether a broker on this port answers a metadata request (API 3, version 1, no client id, no topics) and lists a
    broker. It answers requests slightly before the controller has registered it."""
    request = struct.pack(">hhihi", 3, 1, 1, -1, 0)
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
            connection.sendall(struct.pack(">i", len(request)) + request)
            answer = connection.recv(12)  # length, number of the request, number of brokers
    except OSError:
        return False
    return len(answer) == 12 and int.from_bytes(answer[8:], "big", signed=True) > 0


@atexit.register
def _stop_all() -> None:
    for broker in list(_running):
        broker.kill()
