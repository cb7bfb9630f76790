"""Kafka on this machine's Java, from its Maven artifacts, and the settings of the one-broker KRaft cluster.

Rule: a broker has one temporary directory and two free ports, which stay the same over stop, kill and start. When the
context ends, process and directory are removed. There is one table of server properties. The container gets the same
properties as KAFKA_* variables, and docker-compose.yml lists them; only addresses and directories differ.
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
# This has the logger's name, since with ZooKeeper the line is "[KafkaServer id=1] started".
STARTED = "started (kafka.server.Kafka"

SERVER: Mapping[str, str] = MappingProxyType({
    "node.id": "1",
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    # By default a broker deletes records with old timestamps, so replayed history would vanish.
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
    """Return the properties of addresses: the broker listens at `inside` and is advertised as `host:broker_port`."""
    return {
        "listeners": f"PLAINTEXT://{inside}:{inside_port},CONTROLLER://{inside}:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://{host}:{broker_port}",
        "controller.quorum.voters": f"1@localhost:{controller_port}",
    }


def as_variables(properties: Mapping[str, str]) -> dict[str, str]:
    """Return server properties as the official image reads them: `log.retention.ms` is KAFKA_LOG_RETENTION_MS."""
    return {"KAFKA_" + name.upper().replace(".", "_"): value for name, value in properties.items()}


# The broker's artifact has no logger, and without one its log would be lost.
def artifacts(version: str) -> tuple[str, ...]:
    """Return the Maven coordinates of a version of Kafka."""
    return f"org.apache.kafka:kafka_2.13:{version}", "org.apache.logging.log4j:log4j-slf4j-impl:2.25.3"


ARTIFACTS = artifacts(KAFKA_VERSION)
HEAP_MB = 512
JAVA_OPTIONS = "KAFKA_JVM_PERFORMANCE_OPTS"
PORTS = range(20_000, 32_000)
_META = "meta.properties"
# In the format of properties, which Log4j reads without another library.
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
    """A version of Kafka. hashes: name of a jar -> its SHA-256. Before 3.3 the broker needs ZooKeeper."""

    version: str = KAFKA_VERSION
    hashes: Mapping[str, str] = field(default_factory=lambda: HASHES)

    def jars(self) -> Path:
        """Return the directory with the jars, which are fetched if they are not there yet."""
        return fetch_jars(f"kafka-{self.version}", artifacts(self.version), hashes=self.hashes)[0].parent


class LocalBroker:
    """A broker process; `stop` and `kill` keep data and ports, and `start` starts it with them again.

    After `kill` Kafka accepts the new broker only when the dead broker's session has ended, after nine seconds. The
    server property `broker.session.timeout.ms` makes this time shorter.
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
        """Return one line that users read."""
        return f"Kafka {self._version} at {self.bootstrap}, a process of its own on the local Java (pid {self.pid})"

    @property
    def pid(self) -> int | None:
        """The process id, None while stopped."""
        return self._server.pid

    @property
    def log(self) -> str:
        """The broker's whole log, over all its starts."""
        return self._server.log

    def start(self) -> None:
        """Start the process and return when it serves; raises UnavailableError, with the cause, if it does not."""
        self._server.start(lambda logged: STARTED in logged)

    def stop(self) -> None:
        """Send SIGTERM and wait; kill the broker if it does not end."""
        self._server.stop()

    def kill(self) -> None:
        """Send SIGKILL, which has the effect of a crash."""
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
    """Return Java's option for a log to the console, of Kafka or ZooKeeper; write the option's file into `home`."""
    path = home / "log4j2.properties"
    path.write_text(_LOG4J)
    return f"-Dlog4j2.configurationFile={path}"


def java_options() -> str:
    """Return options of the broker's JVM, from the variable that Kafka's own scripts read."""
    return os.environ.get(JAVA_OPTIONS, "")


@cache
def _bootstrap(java: Path, jars: Path, options: str) -> Mapping[str, bytes]:
    """Return a new cluster's first files, name -> content; Kafka's tool writes them once a process.

    They depend on Kafka's version: bootstrap.checkpoint in 4.1, the metadata log's first checkpoint in 4.4.
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
    """Return a new UUID in Kafka's notation."""
    return urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


# A new id in each process: all brokers of one cluster share it, and no other cluster has it.
CLUSTER_ID = _new_id()


@contextmanager
def local_broker(
    *,
    port: int | None = None,
    extra: Mapping[str, str] | None = None,
    heap_mb: int = HEAP_MB,
    release: Release = Release(),
) -> Iterator[LocalBroker]:
    """Run a local broker for the time of the `with`. extra: server properties to add or replace."""
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
    """Return different ports on which no process listens now.

    The range is not the kernel's for outgoing connections: while the broker is down, a client that tries to reach it
    could get the broker's port for its own end, and keep it.
    """
    ports: set[int] = set()
    while len(ports) < count:
        port = secrets.choice(PORTS)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            ports.add(port)
    return list(ports)
