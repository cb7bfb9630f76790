"""A real schema registry for tests and `keyedwm broker --registry`: KEYEDWM_REGISTRY's, else Apicurio on this machine.

Rule: Apicurio comes from its Maven artifact and has Confluent's API. It needs Java 21, which may be newer than Spark's.
Its schemas are in a temporary directory, so they have the same ids after a restart. A registry that this module
starts, it also stops.
"""

from __future__ import annotations

import http.client
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Protocol

from keyedwm.core.errors import OptionError
from keyedwm.testing.broker import is_taken
from keyedwm.testing.container import LOOPBACK
from keyedwm.testing.ivy import fetch_archive
from keyedwm.testing.java import find_newer_java
from keyedwm.testing.local import free_ports
from keyedwm.testing.process import ServerProcess

VARIABLE = "KEYEDWM_REGISTRY"
APICURIO_VERSION = "3.3.3"
COORDINATE = f"io.apicurio:apicurio-registry-app:{APICURIO_VERSION}:all:tar.gz"
PATH = "/apis/ccompat/v7"
_JAVA = 21
_HEAP_MB = 384
_ANSWER_LIMIT_S = 5.0


class Registry(Protocol):
    """A running registry. url: the value for the option `schemaRegistry.url`."""

    url: str

    def describe(self) -> str:
        """Return one line that users read."""


class GivenRegistry:
    """A registry that the user named: it is neither started nor stopped here."""

    def __init__(self, url: str) -> None:
        self.url = url

    def describe(self) -> str:
        """Return one line that users read."""
        return f"the schema registry at {self.url}, given by {VARIABLE}"


class LocalRegistry:
    """Apicurio as a process; `stop` and `kill` keep its schemas and port, and `start` starts it with them again."""

    def __init__(self, home: Path, port: int | None) -> None:
        java = find_newer_java(_JAVA, "the schema registry")
        program = fetch_archive(f"apicurio-registry-{APICURIO_VERSION}", COORDINATE)
        self._port = port or free_ports(1)[0]
        self.url = f"http://{LOOPBACK}:{self._port}{PATH}"
        settings = {
            "quarkus.http.host": LOOPBACK,
            "quarkus.http.port": self._port,
            # By default every registry listens on port 9000 of all networks, so a second one on a machine would fail.
            "quarkus.management.host": LOOPBACK,
            "quarkus.management.port": free_ports(1)[0],
            "apicurio.datasource.url": f"jdbc:h2:file:{home / 'schemas'}",
        }
        options = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", f"-Xmx{_HEAP_MB}m"]  # fast start, for minutes of use
        command: list[str | Path] = [java, *options, *(f"-D{name}={value}" for name, value in settings.items())]
        self._server = ServerProcess(
            home, f"the schema registry at {self.url}", [*command, "-jar", program / "quarkus-run.jar"]
        )

    def describe(self) -> str:
        """Return one line that users read."""
        return f"Apicurio Registry {APICURIO_VERSION} at {self.url}, a process of its own (pid {self._server.pid})"

    def start(self) -> None:
        """Start the process and return when it serves; raises UnavailableError, with the cause, if it does not."""
        self._server.start(lambda _: self._serves())

    def stop(self) -> None:
        """Send SIGTERM and wait; kill the registry if it does not end."""
        self._server.stop()

    def kill(self) -> None:
        """Send SIGKILL, which has the effect of a crash."""
        self._server.kill()

    def _serves(self) -> bool:
        with closing(http.client.HTTPConnection(LOOPBACK, self._port, timeout=_ANSWER_LIMIT_S)) as connection:
            try:
                connection.request("GET", f"{PATH}/schemas/types")
                with connection.getresponse() as response:
                    return response.status == http.client.OK
            except (OSError, http.client.HTTPException):
                return False


@contextmanager
def registry(*, port: int | None = None) -> Iterator[Registry]:
    """Yield a running registry for the time of the `with`: the one that KEYEDWM_REGISTRY names, else a process.

    Raises JavaError without a Java that is new enough, UnavailableError if Apicurio cannot be fetched or started.
    """
    address = os.environ.get(VARIABLE)
    if address:
        if port:
            raise OptionError(f"the schema registry given by {VARIABLE} cannot be given a port: unset {VARIABLE}")
        yield GivenRegistry(address)
        return
    if port is not None and is_taken(port):
        raise OptionError(f"port {port} is taken: something listens there already; name another one, or none")
    with local_registry(port=port) as running:
        yield running


@contextmanager
def local_registry(*, port: int | None = None) -> Iterator[LocalRegistry]:
    """Run Apicurio on this machine for the time of the `with`."""
    home = Path(tempfile.mkdtemp(prefix="keyedwm-registry-"))
    try:
        started = LocalRegistry(home, port)
        try:
            started.start()
            yield started
        finally:
            started.kill()
    finally:
        shutil.rmtree(home, ignore_errors=True)
