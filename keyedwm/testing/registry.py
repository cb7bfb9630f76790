"""A real schema registry for tests and `keyedwm broker --registry`: the one that is named, else Apicurio's here.

Rule: Apicurio with Confluent's API, from its Maven artifact, on a Java of its own that is newer than Spark's may be.
Its schemas lie in a temporary directory, so that it comes back with the same ids. What is started here is stopped
here.
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
    """A running registry: `url` is the value of `schemaRegistry.url`."""

    url: str

    def describe(self) -> str:
        """One line for people."""


class GivenRegistry:
    """Somebody else's registry: nothing is started and nothing is stopped."""

    def __init__(self, url: str) -> None:
        self.url = url

    def describe(self) -> str:
        """One line for people."""
        return f"the schema registry at {self.url}, given by {VARIABLE}"


class LocalRegistry:
    """Apicurio as a process; `stop` and `kill` keep its schemas and its port, `start` brings it back with them."""

    def __init__(self, home: Path, port: int | None) -> None:
        java = find_newer_java(_JAVA, "the schema registry")
        program = fetch_archive(f"apicurio-registry-{APICURIO_VERSION}", COORDINATE)
        self._port = port or free_ports(1)[0]
        self.url = f"http://{LOOPBACK}:{self._port}{PATH}"
        settings = {
            "quarkus.http.host": LOOPBACK,
            "quarkus.http.port": self._port,
            # Quarkus gives every registry port 9000 of every network here, so a second one on a machine ends.
            "quarkus.management.host": LOOPBACK,
            "quarkus.management.port": free_ports(1)[0],
            "apicurio.datasource.url": f"jdbc:h2:file:{home / 'schemas'}",
        }
        options = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", f"-Xmx{_HEAP_MB}m"]  # it lives for minutes
        command: list[str | Path] = [java, *options, *(f"-D{name}={value}" for name, value in settings.items())]
        self._server = ServerProcess(
            home, f"the schema registry at {self.url}", [*command, "-jar", program / "quarkus-run.jar"]
        )

    def describe(self) -> str:
        """One line for people."""
        return f"Apicurio Registry {APICURIO_VERSION} at {self.url}, a process of its own (pid {self._server.pid})"

    def start(self) -> None:
        """Starts the process and returns when it serves; UnavailableError says why if it does not."""
        self._server.start(lambda _: self._serves())

    def stop(self) -> None:
        """Lets it finish, then makes sure."""
        self._server.stop()

    def kill(self) -> None:
        """SIGKILL, as a crash would."""
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
    """A running registry for the time of the `with`: the one named by KEYEDWM_REGISTRY, else a process.

    Raises JavaError without a Java that is new enough, UnavailableError if it cannot be fetched or does not start.
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
    """A running Apicurio of this machine."""
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
