"""The Java client's properties (`kafka.*` options without the prefix), as the settings of this package.

Rule: a wrong value is an error when the options are read. A property that only the Java client needs is accepted
without effect. A secret shows in no message and no repr.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import astuple, dataclass, field
from typing import Any

from keyedwm.config.validation import boolean, choice, is_host_name, whole, wrong
from keyedwm.core.errors import OptionError
from keyedwm.core.text import nearest
from keyedwm.kafka.client.properties import KNOWN, OAUTH_PROVIDER
from keyedwm.kafka.client.security import Security
from keyedwm.kafka.client.values import LIMITS, Codec, Isolation, WireLimits

_log = logging.getLogger(__name__)

MIB = 1 << 20
LARGEST_BATCH_BYTES = 128 * MIB
# A name this similar to a known name is a mistake: if it were ignored, it would silently change the read.
_MISTYPED = 0.85
_PORT = re.compile(r"[0-9]{1,5}")
_PROTOCOL = re.compile(r"^[0-9A-Za-z%._-]*://")
_HOST = re.compile(r"\[[0-9A-Za-z%._:-]+\]|[0-9A-Za-z%._:-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """How to reach a cluster and how to read it; build it with `from_options`.

    Defaults are the Java client's, except the fetch sizes, which were chosen by measurement: 4 MiB a partition and 16
    MiB a request.
    """

    bootstrap_servers: tuple[str, ...]
    security: Security = field(default_factory=Security)
    client_id: str = "keyedwm"
    rack: str = ""  # this client's rack: a replica in the same rack is read, if the brokers name one (KIP-392)
    isolation: Isolation = Isolation.READ_UNCOMMITTED
    request_timeout_ms: int = 30_000
    api_timeout_ms: int = 60_000
    connect_timeout_ms: int = 10_000
    reconnect_backoff_ms: int = 50
    reconnect_backoff_max_ms: int = 1_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    idle_connection_ms: int = 540_000
    metadata_age_ms: int = 300_000
    partition_fetch_bytes: int = 4 * MIB
    fetch_bytes: int = 16 * MIB
    fetch_wait_ms: int = 500
    check_crcs: bool = True
    compression: Codec = Codec.NONE
    batch_bytes: int | None = None  # before compression; None: the topic's limit, up to a default
    limits: WireLimits = LIMITS

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> ClientConfig:
        """Read Java client properties, without the prefix `kafka.`; the case of names does not matter.

        Raises OptionError naming `kafka.<property>`, the value (unless it is secret) and the right value; also for an
        unknown name that is similar to a known name.
        """
        properties = {name.lower(): value for name, value in options.items()}
        unknown = sorted(set(properties) - KNOWN - {OAUTH_PROVIDER})
        for name in unknown:
            neighbour = nearest(name, KNOWN, similarity=_MISTYPED)
            if neighbour:
                raise OptionError(f"option kafka.{name} is unknown to Kafka's clients: did you mean kafka.{neighbour}?")
        if unknown:
            _log.warning(
                "properties unknown to Kafka's clients have no effect: %s", ", ".join(f"kafka.{n}" for n in unknown)
            )
        settings: dict[str, Any] = {
            name: read(f"kafka.{key}", properties[key])
            for key, (name, read) in _PROPERTIES.items()
            if key in properties
        }
        if "bootstrap_servers" not in settings:
            raise OptionError("option kafka.bootstrap.servers is missing: give host:port of at least one broker")
        return cls(security=Security.from_properties(properties), **settings)

    @property
    def addresses(self) -> str:
        """The bootstrap addresses as one string, for messages."""
        return ",".join(self.bootstrap_servers)

    @property
    def answer_bytes(self) -> int:
        """The longest answer to a fetch: the requested bytes, and one batch that is larger (KIP-74)."""
        return min(self.fetch_bytes + max(self.fetch_bytes, LARGEST_BATCH_BYTES), 2**31 - 1)

    def digest(self) -> str:
        """A name for this configuration, equal for equal configurations; for caches within a process, not for logs."""
        return hashlib.sha256(repr(astuple(self)).encode()).hexdigest()


def _addresses(name: str, value: str) -> tuple[str, ...]:
    if "@" in value:  # no host has it, and a password before it is not repeated
        raise OptionError(
            f"option {name}: comma-separated host:port is expected, and an address holds an @: a login is given by "
            "kafka.sasl.jaas.config"
        )
    # Kafka's own clients accept a protocol before a host, such as SASL_SSL://, and ignore it.
    addresses = tuple(_PROTOCOL.sub("", part.strip()) for part in value.split(",") if part.strip())
    for address in addresses:
        host, _, port = address.rpartition(":")
        is_host = _HOST.fullmatch(host) and is_host_name(host)
        if not is_host or not _PORT.fullmatch(port) or not 0 < int(port) < 65_536:
            raise wrong(name, value, "comma-separated host:port is expected")
    if not addresses:
        raise wrong(name, value, "host:port of at least one broker is expected")
    return addresses


def _at_least(least: int) -> Callable[[str, str], int]:
    def read(name: str, value: str) -> int:
        return min(whole(name, value, at_least=least), 2**31 - 1)

    return read


def _isolation(name: str, value: str) -> Isolation:
    return choice(name, value, Isolation)


def _codec(name: str, value: str) -> Codec:
    names = {codec.name.lower(): codec for codec in Codec}
    if value.strip().lower() not in names:
        raise wrong(name, value, f"one of {', '.join(names)} is expected")
    return names[value.strip().lower()]


def _text(_name: str, value: str) -> str:
    return value


_PROPERTIES: dict[str, tuple[str, Callable[[str, str], Any]]] = {
    "bootstrap.servers": ("bootstrap_servers", _addresses),
    "client.id": ("client_id", _text),
    "client.rack": ("rack", _text),
    "isolation.level": ("isolation", _isolation),
    "request.timeout.ms": ("request_timeout_ms", _at_least(1)),
    "default.api.timeout.ms": ("api_timeout_ms", _at_least(1)),
    "socket.connection.setup.timeout.ms": ("connect_timeout_ms", _at_least(1)),
    "reconnect.backoff.ms": ("reconnect_backoff_ms", _at_least(0)),
    "reconnect.backoff.max.ms": ("reconnect_backoff_max_ms", _at_least(0)),
    "retry.backoff.ms": ("retry_backoff_ms", _at_least(0)),
    "retry.backoff.max.ms": ("retry_backoff_max_ms", _at_least(0)),
    "connections.max.idle.ms": ("idle_connection_ms", _at_least(1)),
    "metadata.max.age.ms": ("metadata_age_ms", _at_least(0)),
    "max.partition.fetch.bytes": ("partition_fetch_bytes", _at_least(1)),
    "fetch.max.bytes": ("fetch_bytes", _at_least(1)),
    "fetch.max.wait.ms": ("fetch_wait_ms", _at_least(0)),
    "check.crcs": ("check_crcs", boolean),
    "compression.type": ("compression", _codec),
    "batch.size": ("batch_bytes", _at_least(0)),
}
