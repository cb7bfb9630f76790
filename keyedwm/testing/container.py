"""Kafka in a container, through testcontainers, if Docker answers.

Rule: the container's name is chosen before the container exists, so its guard can start before the container.
"""

from __future__ import annotations

import gc
import re
import socket
import sys
import uuid
import warnings
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING

from keyedwm.core.errors import UnavailableError
from keyedwm.core.text import words_of
from keyedwm.testing.guard import Guard
from keyedwm.testing.java import complaint
from keyedwm.testing.local import (
    IMAGE,
    JAVA_OPTIONS,
    SERVER,
    STARTED,
    as_variables,
    free_ports,
    java_options,
    listeners,
)
from keyedwm.testing.process import START_LIMIT_S

if TYPE_CHECKING:
    from testcontainers.core.container import DockerContainer

LOOPBACK = "127.0.0.1"
CONTROLLER_PORT = 9093


class ContainerBroker:
    """A broker in a container."""

    way = "container"

    def __init__(self, bootstrap: str, name: str) -> None:
        self.bootstrap = bootstrap
        self.name = name

    def describe(self) -> str:
        """Return one line that users read."""
        return f"Kafka at {self.bootstrap}, container {self.name} of {IMAGE}"


def why_no_container() -> str | None:
    """Return why no container can be started here; None if one can, and then its image is pulled."""
    with warnings.catch_warnings():
        # If nothing answers, Docker's own client leaves its socket to the garbage collector.
        warnings.simplefilter("ignore", ResourceWarning)
        try:
            return _ask_docker()
        finally:
            gc.collect()


def _ask_docker() -> str | None:
    try:
        from docker.errors import DockerException, ImageNotFound
        from testcontainers.core.docker_client import DockerClient
    except ImportError:
        return "testcontainers is not installed (pip install testcontainers)"
    try:
        with closing(DockerClient().client) as client:
            client.ping()
            try:
                client.images.get(IMAGE)
            except ImageNotFound:
                print(f"pulling {IMAGE} (once)", file=sys.stderr)
                client.images.pull(IMAGE)
    except (DockerException, OSError) as error:
        return f"Docker does not answer or has no {IMAGE} ({words_of(error)})"
    return None


@contextmanager
def container_broker(*, port: int | None = None, extra: Mapping[str, str] | None = None) -> Iterator[ContainerBroker]:
    """Run a broker in a container for the time of the `with`. extra: server properties to add or replace."""
    from docker.errors import DockerException
    from testcontainers.core.config import testcontainers_config
    from testcontainers.core.container import DockerContainer
    from testcontainers.core.wait_strategies import LogMessageWaitStrategy

    testcontainers_config.ryuk_disabled = True  # our guard does its work without another image
    port = port or free_ports(1)[0]
    name = f"keyedwm-kafka-{uuid.uuid4().hex[:12]}"
    container = DockerContainer(IMAGE).with_name(name)
    # Clients connect to this address, so it must be known before the container starts. Use 127.0.0.1, not localhost:
    # the port may not be published on ::1. TESTCONTAINERS_HOST_OVERRIDE sets another host.
    host = container.get_docker_client().host().replace("localhost", LOOPBACK)
    container.ports[str(port)] = (published_on(host), port)
    for variable, value in container_variables(host, port, extra or {}).items():
        container.with_env(variable, value)
    container.with_env(JAVA_OPTIONS, java_options())
    container.waiting_for(LogMessageWaitStrategy(re.escape(STARTED)).with_startup_timeout(int(START_LIMIT_S)))
    with Guard("container", name):
        try:
            try:
                container.start()
            except (DockerException, TimeoutError, RuntimeError) as error:
                reason = complaint(_log(container) or str(error))
                raise UnavailableError(f"the container with Kafka did not start at {host}:{port}: {reason}") from error
            yield ContainerBroker(f"{host}:{port}", name)
        finally:
            container.stop()


def published_on(host: str) -> str:
    """Return the one address of the Docker host to publish the port on; not all, since this Kafka asks for no login."""
    try:
        return socket.gethostbyname(host)
    except OSError as error:
        raise UnavailableError(f"the name of the Docker host {host} does not resolve: {error}") from error


def _log(container: DockerContainer) -> str:
    from testcontainers.core.exceptions import ContainerStartException

    with suppress(ContainerStartException):  # raised if it was not even created
        return container.get_wrapped_container().logs().decode(errors="replace")
    return ""


def container_variables(host: str, port: int, extra: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a container whose clients reach the broker at host:port.

    The broker is one of its own clients: to check a transaction it asks the coordinator at the advertised address. So
    the port is the same inside and outside.
    """
    address = listeners(host, port, inside="0.0.0.0", inside_port=port, controller_port=CONTROLLER_PORT)  # noqa: S104
    return as_variables({**SERVER, **address, **extra})
