"""Kafka on this machine's Java, from its Maven artifacts, and the settings of the one-broker KRaft cluster.

Rule: everything lives in one temporary directory and two free ports that stay the same over stop, kill and start; when
the context ends, process and directory are gone. There is one table of server properties. The container takes it as
KAFKA_* variables, docker-compose.yml spells out the same; only addresses and directories differ.
"""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import tempfile
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import MappingProxyType

from keyedwm.core.errors import UnavailableError
from keyedwm.testing.ivy import HASHES, fetch_jars
from keyedwm.testing.java import complaint, find_java
from keyedwm.testing.process import START_LIMIT_S, ServerProcess

KAFKA_VERSION = "4.1.2"
IMAGE = f"apache/kafka:{KAFKA_VERSION}"
# By the logger's name: with ZooKeeper the line is "[KafkaServer id=1] started".
STARTED = "started (kafka.server.Kafka"

SERVER: Mapping[str, str] = MappingProxyType({
    "node.id": "1",
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    # A broker otherwise deletes records whose timestamps lie in the past, and replayed history vanishes.
    "log.retention.ms": "-1",
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
})  # fmt: skip


def listeners(host: str, broker_port: int, *, inside: str, inside_port: int, controller_port: int) -> dict[str, str]:
    """Where the broker listens (`inside`), its advertised listener (`host:broker_port`), where its controller is."""
    return {
        "listeners": f"PLAINTEXT://{inside}:{inside_port},CONTROLLER://{inside}:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://{host}:{broker_port}",
        "controller.quorum.voters": f"1@localhost:{controller_port}",
    }


def as_variables(properties: Mapping[str, str]) -> dict[str, str]:
    """Server properties as the official image reads them: `log.retention.ms` is KAFKA_LOG_RETENTION_MS."""
    return {"KAFKA_" + name.upper().replace(".", "_"): value for name, value in properties.items()}


# The broker names a logger but brings none; without one its log would be lost.
def artifacts(version: str) -> tuple[str, ...]:
    """The Maven coordinates of a version of Kafka."""
    return f"org.apache.kafka:kafka_2.13:{version}", "org.apache.logging.log4j:log4j-slf4j-impl:2.25.3"


ARTIFACTS = artifacts(KAFKA_VERSION)
HEAP_MB = 512
JAVA_OPTIONS = "KAFKA_JVM_PERFORMANCE_OPTS"
PORTS = range(20_000, 32_000)
_META = "meta.properties"
# As properties, which Log4j reads without another library.
_LOG4J = """
appender.console.type = Console
appender.console.name = STDOUT
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = [%d] %p %m (%c)%n
rootLogger.level = INFO
rootLogger.appenderRef.console.ref = STDOUT
"""


@dataclass(frozen=True, slots=True)
class Release:
    """A version of Kafka and the SHA-256 of its jars by their names; before 3.3 the broker needs ZooKeeper."""

    version: str = KAFKA_VERSION
    hashes: Mapping[str, str] = field(default_factory=lambda: HASHES)

    def jars(self) -> Path:
        """The directory with the jars, fetched if it is not there yet."""
        return fetch_jars(f"kafka-{self.version}", artifacts(self.version), hashes=self.hashes)[0].parent


class LocalBroker:
    """A broker process; `stop` and `kill` keep data and ports, `start` brings it back on them.

    After `kill` Kafka itself waits for the dead broker's session, nine seconds, before it lets the new one in; the
    server property `broker.session.timeout.ms` makes that shorter.
    """

    way = "local"

    def __init__(
        self,
        home: Path,
        port: int | None,
        extra: Mapping[str, str],
        heap_mb: int = HEAP_MB,
        release: Release = Release(),
    ) -> None:
        self._home, self._version = home, release.version
        self._heap = f"-Xmx{heap_mb}m"
        self._java = find_java()
        self._jars = release.jars()
        broker_port, controller_port = free_ports(2)
        broker_port = port or broker_port
        self.bootstrap = f"127.0.0.1:{broker_port}"
        command: list[str | Path] = [
            self._java, *java_options().split(), self._heap, log_to_console(home), "-cp", f"{self._jars}/*",
            "kafka.Kafka", home / "server.properties",
        ]  # fmt: skip
        self._server = ServerProcess(home, f"the local Kafka at {self.bootstrap}", command)
        self._format(broker_port, controller_port, extra)

    def describe(self) -> str:
        """One line for people."""
        return f"Kafka {self._version} at {self.bootstrap}, a process of its own on the local Java (pid {self.pid})"

    @property
    def pid(self) -> int | None:
        """Process id, None while stopped."""
        return self._server.pid

    @property
    def log(self) -> str:
        """All that the broker logged so far, over all its starts."""
        return self._server.log

    def start(self) -> None:
        """Starts the process and returns when it serves; UnavailableError says why if it does not."""
        self._server.start(lambda logged: STARTED in logged)

    def stop(self) -> None:
        """Lets the broker finish (SIGTERM), then makes sure."""
        self._server.stop()

    def kill(self) -> None:
        """SIGKILL, as a crash would."""
        self._server.kill()

    def _format(self, broker_port: int, controller_port: int, extra: Mapping[str, str]) -> None:
        address = listeners("127.0.0.1", broker_port, inside="127.0.0.1", inside_port=broker_port,
                            controller_port=controller_port)  # fmt: skip
        data = self._home / "data"
        properties = {**SERVER, **address, "log.dirs": str(data), **extra}
        _write_properties(self._home / "server.properties", properties)
        if not properties["process.roles"]:
            return  # the cluster's records are in ZooKeeper
        for name, content in _bootstrap(self._java, self._jars, java_options()).items():
            (data / name).parent.mkdir(parents=True, exist_ok=True)
            (data / name).write_bytes(content)
        own = {"version": "1", "cluster.id": CLUSTER_ID, "node.id": properties["node.id"], "directory.id": _new_id()}
        _write_properties(data / _META, own)


def log_to_console(home: Path) -> str:
    """The option of Java that lets Kafka and ZooKeeper log to the console; writes the file that says so into `home`."""
    path = home / "log4j2.properties"
    path.write_text(_LOG4J)
    return f"-Dlog4j2.configurationFile={path}"


def java_options() -> str:
    """The variable that Kafka's own scripts read: options of the broker's JVM, for brokers that live for minutes."""
    return os.environ.get(JAVA_OPTIONS, "")


@cache
def _bootstrap(java: Path, jars: Path, options: str) -> Mapping[str, bytes]:
    """A new cluster's first records, which depend on Kafka's version alone: its tool makes them once a process.

    By file: bootstrap.checkpoint in Kafka 4.1, the metadata log's first checkpoint in 4.4.
    """
    with tempfile.TemporaryDirectory(prefix="keyedwm-kafka-") as directory:
        home = Path(directory)
        address = listeners("127.0.0.1", 9092, inside="127.0.0.1", inside_port=9092, controller_port=9093)
        path = home / "server.properties"
        _write_properties(path, {**SERVER, **address, "log.dirs": str(home / "data")})
        formatted = subprocess.run(
            [java, *options.split(), "-XX:TieredStopAtLevel=1", "-cp", f"{jars}/*",
             "kafka.tools.StorageTool", "format", f"--cluster-id={CLUSTER_ID}", "-c", path],
            capture_output=True, text=True, check=False, timeout=START_LIMIT_S,
        )  # fmt: skip
        if formatted.returncode != 0:
            raise UnavailableError(
                f"Kafka could not format its directory: {complaint(formatted.stdout + formatted.stderr)}"
            )
        data = home / "data"
        paths = [path for path in data.rglob("*") if path.is_file() and path.name != _META]
        return {str(path.relative_to(data)): path.read_bytes() for path in paths}


def _write_properties(path: Path, properties: Mapping[str, str]) -> None:
    path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))


def _new_id() -> str:
    """A UUID as Kafka writes it."""
    return urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


# One of our own for each process: brokers of one cluster share it, and nobody else has it.
CLUSTER_ID = _new_id()


@contextmanager
def local_broker(
    *,
    port: int | None = None,
    extra: Mapping[str, str] | None = None,
    heap_mb: int = HEAP_MB,
    release: Release = Release(),
) -> Iterator[LocalBroker]:
    """A running local broker; `extra` adds or replaces server properties."""
    home = Path(tempfile.mkdtemp(prefix="keyedwm-kafka-"))
    try:
        broker = LocalBroker(home, port, extra or {}, heap_mb, release)
        try:
            broker.start()
            yield broker
        finally:
            broker.kill()
    finally:
        shutil.rmtree(home, ignore_errors=True)


def free_ports(count: int) -> list[int]:
    """Ports that nobody listened on a moment ago, all different.

    Not from the range that the kernel gives to outgoing connections: while the broker is down, a client that tries to
    reach it would sooner or later get that very port and keep it.
    """
    ports: set[int] = set()
    while len(ports) < count:
        port = secrets.choice(PORTS)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            ports.add(port)
    return list(ports)
