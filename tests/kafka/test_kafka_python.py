"""The parts of kafka-python that keyedwm/kafka/client builds on are as we know them; most of them are private."""

from __future__ import annotations

import ast
import functools
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka.net.connection import KafkaConnection
from kafka.net.inet import KafkaNetSocket
from kafka.net.manager import KafkaConnectionManager
from kafka.net.sasl.oauth import SaslMechanismOAuth
from kafka.net.sasl.scram import SaslMechanismScram
from kafka.net.selector import NetworkSelector
from kafka.net.transport import KafkaSSLTransport, KafkaTCPTransport
from kafka.protocol.metadata import MetadataResponse
from kafka.protocol.parser import KafkaProtocol

SHIPPED = Path(__file__).parents[2] / "keyedwm"
CLIENT = SHIPPED / "kafka" / "client"
# Methods that we override or call, with their arguments.
METHODS = {
    KafkaConnectionManager: {
        "_build_transport": "(self, node, timeout_at=None)",
        "get_connection": "(self, node_id, timeout_ms=None, pop_on_close=True, refresh_metadata_on_err=True, "
        "reset_backoff_on_connect=True)",
        "close": "(self, node_id=None, timeout_ms=None)",
        "wait_for": "(self, future, timeout_ms)",
        "send": "(self, request, node_id=None, request_timeout_ms=None)",
        "bootstrap_async": "(self, timeout_ms=None, refresh=True)",
        "socket_connection_setup_timeout_ms": "(self, node_id)",
        "least_loaded_node": "(self)",
    },
    KafkaConnection: {
        "connection_made": "(self, transport)",
        "data_received": "(self, data)",
        "_sasl_authenticate": "(self, timeout_at=None)",
        "_send_request": "(self, request, future=None, timeout_at=None)",
        "_timeout_at": "(self, now=None, timeout_ms=None)",
        "send_request": "(self, request, request_timeout_ms=None)",
        "send_buffered": "(self)",
        "pause": "(self, v)",
        "unpause": "(self, v)",
        "_maybe_throttle": "(self, response)",
        "_maybe_unthrottle": "(self)",
    },
    KafkaTCPTransport: {"__init__": "(self, net, sock, host=None)", "_sock_recv": "(self)"},
    KafkaSSLTransport: {"__init__": "(self, net, sock, host=None, **configs)", "_sock_recv": "(self)"},
    NetworkSelector: {
        "call_soon_threadsafe": "(self, callback)",
        "stop": "(self, timeout_ms=None)",
        "wait_read": "(self, fileobj, timeout_at=None)",
        "wait_write": "(self, fileobj, timeout_at=None)",
    },
    KafkaProtocol: {
        "_process_response": "(self, read_buffer)",
        "_validate_frame_size": "(self, nbytes)",
        "receive_bytes": "(self, data)",
    },
    SaslMechanismScram: {"receive": "(self, auth_bytes)"},
    SaslMechanismOAuth: {"receive": "(self, auth_bytes)"},
    KafkaNetSocket: {
        "dns_lookup": "(self, host, port, raise_error=False)",
        "sock_connect": "(self, net, sock, sockaddr, timeout_at=None)",
    },
}
# Attributes that their objects have.
ATTRIBUTES = {
    KafkaConnectionManager: ("_net", "_conns", "cluster", "config"),
    KafkaConnection: (
        "_reauth",
        "parser",
        "initializing",
        "init_future",
        "transport",
        "paused",
        "_request_buffer",
    ),
    KafkaTCPTransport: ("_sock", "_net", "_protocol", "_write_buffer"),
    NetworkSelector: ("_exception",),
    KafkaProtocol: ("_max_frame_size", "in_flight_requests"),
    SaslMechanismScram: ("_state", "_scram_client"),
}
OF_STRUCTURES = {"_struct"}
IMPORTS = re.compile(r"^\s*(?:from|import) kafka\b", re.MULTILINE)


def _set(tree: ast.Module) -> Iterator[str]:
    """The attributes that code sets, not counting those that it only changes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (one.attr for target in targets for one in ast.walk(target) if isinstance(one, ast.Attribute))


def _all_names(kind: type) -> set[str]:
    return {name for of in kind.__mro__[:-1] for name in (*vars(of), *_set(ast.parse(inspect.getsource(of))))}


@functools.cache
def library() -> set[str]:
    return {name for kind in (*METHODS, *ATTRIBUTES) for name in _all_names(kind)} | OF_STRUCTURES


@pytest.mark.parametrize(
    ("kind", "name", "arguments"),
    [(kind, name, arguments) for kind, methods in METHODS.items() for name, arguments in methods.items()],
    ids=lambda one: one.__name__ if isinstance(one, type) else None,
)
def test_a_method_that_we_override_or_call_has_the_arguments_that_we_know(kind: Any, name: str, arguments: str):
    assert str(inspect.signature(getattr(kind, name))) == arguments


@pytest.mark.parametrize(("kind", "names"), ATTRIBUTES.items(), ids=lambda one: getattr(one, "__name__", None))
def test_an_attribute_that_we_use_is_set_by_its_class(kind: type, names: tuple[str, ...]):
    assert set(names) - _all_names(kind) == set()


def test_a_structure_tells_which_of_its_arrays_may_be_null():
    topics = MetadataResponse._struct.fields["topics"]
    assert topics.is_array()
    assert topics.is_struct_array()
    assert (topics.for_version_q(1), topics.nullable_for_version_q(1)) == (True, False)
    assert topics.data_class._struct.fields["partitions"].is_array()


def test_no_other_private_part_of_kafka_python_is_used_and_none_outside_of_the_client():
    listed_names = {name for of in (METHODS, ATTRIBUTES) for names in of.values() for name in names} | OF_STRUCTURES
    names_by_path = {
        path: _private_names(path) for path in sorted(SHIPPED.rglob("*.py")) if IMPORTS.search(path.read_text())
    }
    inside = {name for path, names in names_by_path.items() if path.parent == CLIENT for name in names}
    assert inside == {name for name in listed_names if name.startswith("_") and not name.startswith("__")}
    assert {path: names for path, names in names_by_path.items() if path.parent != CLIENT and names} == {}


def _private_names(path: Path) -> set[str]:
    """The library's private names that a file uses or defines, but those that it sets itself."""
    tree = ast.parse(path.read_text())
    names = {getattr(node, "attr", getattr(node, "name", None)) for node in ast.walk(tree)} - set(_set(tree))
    return {name for name in names & library() if name.startswith("_") and not name.startswith("__")}
