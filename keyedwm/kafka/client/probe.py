"""The protocol of a port, found with a separate socket, so that errors can name the right setting.

Rule: it runs only after a failure, or for a command of the user; each step has a time limit. It sends nothing of a
login.
"""

from __future__ import annotations

import socket
import ssl
import struct

from keyedwm.kafka.client.config import ClientConfig
from keyedwm.kafka.client.security import Protocol

PATIENCE_S = 3.0
_CORRELATION_ID = 1
_NO_LOGIN = "IllegalSaslState"  # the answer of a listener to a login that it does not accept
_UNSUPPORTED_SASL_MECHANISM = 33


def other_protocol(config: ClientConfig, reason: str) -> str | None:
    """Name the kafka.security.protocol that a bootstrap address expects, if it is another one; None if it is unknown.

    reason: why the connection was not made.
    """
    protocol = config.security.protocol
    advice = f"kafka.security.protocol is {protocol.value}: set kafka.security.protocol to"
    for address in config.bootstrap_servers:
        host, _, port = address.rpartition(":")
        is_tls = speaks_tls(host.strip("[]"), int(port))
        if is_tls is not None and is_tls != protocol.tls:
            protocols = " or ".join(one.value for one in Protocol if one.tls == is_tls)
            return f"{address} {'expects TLS' if is_tls else 'does not expect TLS'}, and {advice} {protocols}"
        if is_tls is not None and _NO_LOGIN in reason:
            return f"{address} expects no login, and {advice} {'SSL' if is_tls else 'PLAINTEXT'}"
        if is_tls is not None and not protocol.sasl and expects_login(host.strip("[]"), int(port), tls=is_tls):
            return f"{address} expects a login, and {advice} SASL_{protocol.value}"
    return None


def speaks_tls(host: str, port: int) -> bool | None:
    """Whether a port speaks TLS: False if a Kafka answers without TLS, None if neither is known."""
    try:
        plain = socket.create_connection((host, port), timeout=PATIENCE_S)
    except OSError:
        return None
    try:
        with plain, _trusting().wrap_socket(plain):
            return True
    except ssl.SSLError as error:
        # A server that requires our certificate speaks TLS as well.
        if "ALERT" in str(error).upper():
            return True
    except OSError:
        pass
    return False if answers_kafka(host, port) else None


def answers_kafka(host: str, port: int, patience_s: float = PATIENCE_S) -> bool:
    """Whether a Kafka answers an ApiVersions request without TLS."""
    request = struct.pack(">hhih", 18, 0, _CORRELATION_ID, -1)  # ApiVersions, version 0, no client id
    return _answer(host, port, request, 0, patience_s=patience_s, tls=False) is not None


def expects_login(host: str, port: int, *, tls: bool) -> bool:
    """Whether a Kafka answers a SaslHandshake that names no mechanism with its own mechanisms."""
    request = struct.pack(">hhihh", 17, 1, _CORRELATION_ID, -1, 0)  # SaslHandshake, version 1, no client id
    code = _answer(host, port, request, 2, patience_s=PATIENCE_S, tls=tls)
    return code is not None and struct.unpack(">h", code)[0] == _UNSUPPORTED_SASL_MECHANISM


def _answer(host: str, port: int, request: bytes, size: int, *, patience_s: float, tls: bool) -> bytes | None:
    """Return the first `size` bytes after the header of a Kafka's answer; None without such an answer."""
    try:
        with socket.create_connection((host, port), timeout=patience_s) as plain:
            wire = _trusting().wrap_socket(plain) if tls else plain
            wire.sendall(struct.pack(">i", len(request)) + request)
            with wire, wire.makefile("rb") as answer:
                head = answer.read(8 + size)
    except OSError:
        return None
    if len(head) != 8 + size or struct.unpack(">i", head[4:8])[0] != _CORRELATION_ID:
        return None
    return head[8:]


def _trusting() -> ssl.SSLContext:
    """Return a context for any certificate: nothing of a login is sent."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context
