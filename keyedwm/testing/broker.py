"""A real Kafka for tests, the demo and `keyedwm broker`.

Rule: there are three ways, and the first possible one is used (docs/design/dependencies.md): the cluster that
KEYEDWM_BOOTSTRAP names, a container if Docker answers, a process on the local Java. A broker that this module starts,
it also stops.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Literal, Protocol, get_args

from keyedwm.core.errors import OptionError, UnavailableError
from keyedwm.kafka.client.probe import answers_kafka
from keyedwm.testing.container import LOOPBACK, container_broker, why_no_container
from keyedwm.testing.local import local_broker

VARIABLE = "KEYEDWM_BOOTSTRAP"
ANSWER_LIMIT_S = 10.0
_LAST_PORT = 65_535
Way = Literal["given", "container", "local"]
WAYS: tuple[str, ...] = get_args(Way)


class Broker(Protocol):
    """A running Kafka. bootstrap: its host:port. way: one of WAYS."""

    bootstrap: str
    way: str

    def describe(self) -> str:
        """Return one line that users read."""


class GivenBroker:
    """A cluster that the user named: it is neither started nor stopped here."""

    way = "given"

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def describe(self) -> str:
        """Return one line that users read."""
        return f"the Kafka at {self.bootstrap}, given by {VARIABLE}"


def choose_way() -> Way:
    """Return the first way that is possible on this machine."""
    if os.environ.get(VARIABLE):
        return "given"
    return "local" if why_no_container() else "container"


@contextmanager
def broker(
    way: Way | None = None, *, port: int | None = None, extra: Mapping[str, str] | None = None
) -> Iterator[Broker]:
    """Run a Kafka for the time of the `with`. way: None for the first possible one. extra: server properties to add.

    Raises OptionError if the way is not possible here, UnavailableError if the broker does not start.
    """
    if port is not None and not 0 < port <= _LAST_PORT:
        raise OptionError(f"port {port} is wrong: a whole number from 1 to {_LAST_PORT} is expected")
    way = way or choose_way()
    if way == "given":
        yield _given_broker(port, extra)
    elif way == "container":
        reason = why_no_container()
        if reason:
            raise OptionError(f"way=container: {reason}; start Docker or use way=local")
        with container_broker(port=port, extra=extra) as started:
            yield started
    elif way == "local":
        if port is not None and is_taken(port):
            raise OptionError(f"port {port} is taken: something listens there already; name another one, or none")
        with local_broker(port=port, extra=extra) as process:
            yield process
    else:
        raise OptionError(f"way={way} is not one of {', '.join(WAYS)}")


def _given_broker(port: int | None, extra: Mapping[str, str] | None) -> GivenBroker:
    bootstrap = os.environ.get(VARIABLE, "")
    if not bootstrap:
        raise OptionError(f"way=given, but {VARIABLE} is not set: set it to host:port of a running Kafka")
    if port or extra:
        raise OptionError(
            f"the Kafka given by {VARIABLE} cannot be given a port or server properties: unset {VARIABLE}"
        )
    if not answers(bootstrap):
        raise UnavailableError(f"no Kafka answers at {bootstrap}, given by {VARIABLE}")
    return GivenBroker(bootstrap)


def is_taken(port: int) -> bool:
    """Whether a process listens on this port of the loopback address, so that a broker of ours cannot."""
    with closing(socket.socket()) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as Java does: only a listener blocks the port
        try:
            probe.bind((LOOPBACK, port))
        except OSError as error:
            return error.errno == errno.EADDRINUSE
    return False


def answers(bootstrap: str) -> bool:
    """Whether a Kafka answers an ApiVersions request at one of these comma-separated addresses."""
    return any(_answers(address.strip()) for address in bootstrap.split(","))


def _answers(address: str) -> bool:
    host, _, port = address.rpartition(":")
    if not host or not (port.isascii() and port.isdigit()) or not 0 < int(port) <= _LAST_PORT:
        raise OptionError(f"{VARIABLE}={address} is not host:port with a port from 1 to {_LAST_PORT}")
    return answers_kafka(host.strip("[]"), int(port), ANSWER_LIMIT_S)
