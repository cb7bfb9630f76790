"""The frames of one connection: the longest permitted answer, and the errors for broken answers.

Rule: before the login a peer may send little; after it, not much more than was requested. A frame's length is checked
before its memory is allocated.
"""

from __future__ import annotations

import functools
import logging
import time
from typing import Any, NamedTuple

import kafka.errors as wire_errors
import numpy as np
from kafka.future import Future
from kafka.net.connection import KafkaConnection
from kafka.protocol.consumer import FetchResponse
from kafka.protocol.metadata import ApiVersionsResponse
from kafka.protocol.parser import KafkaProtocol
from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

from keyedwm.kafka.client.blocking_calls import BlockingCalls
from keyedwm.kafka.client.errors import MechanismError
from keyedwm.kafka.client.login import known_mechanisms, login_wait_of, mechanism_of

# The most bytes of a login's answers: versions, mechanisms and tokens; Kerberos has the longest.
LOGIN_BYTES = 256 << 10
_FETCH, _LOGIN_APIS = 1, frozenset({17, 18, 36})  # SaslHandshake, ApiVersions, SaslAuthenticate
# The most bytes of metadata, offsets or transactions of a large cluster.
OTHER_BYTES = 64 << 20
_SHOWN_BYTES = 64
_API_VERSIONS, _UNSUPPORTED_VERSION = 18, 35
_log = logging.getLogger(__name__)
_LENGTH_BYTES = 4
_NO_ROOM = memoryview(bytearray())
_COPIED_BYTES = 1 << 10


def _without_payload(record: logging.LogRecord) -> bool:
    """Keep whole requests and answers out of the log: they can hold a login or records."""
    if record.levelno <= logging.DEBUG:
        return False
    if isinstance(record.args, tuple):
        record.args = tuple(a[:_SHOWN_BYTES] if isinstance(a, (bytes, bytearray)) else a for a in record.args)
    return True


for _name in ("kafka.net.connection", "kafka.protocol.parser", "kafka.net.sasl.oauth", "kafka.net.sasl.scram"):
    logging.getLogger(_name).addFilter(_without_payload)


class _Frame:
    """One answer: received here, then read by kafka-python's decoder, whose own buffer would copy it five times."""

    def __init__(self, size: int) -> None:
        # Not a bytearray, which is filled with zeros first.
        self._bytes: memoryview = np.empty(size, np.uint8).data
        self._at = 0

    @property
    def room(self) -> memoryview:
        """The room for the bytes that are still missing."""
        return self._bytes[self._at :]

    def fill(self, count: int) -> None:
        """Count bytes that were written into the room."""
        self._at += count

    def append(self, data: memoryview) -> memoryview:
        """Append the bytes that still fit, and return the rest."""
        count = min(len(self._bytes) - self._at, len(data))
        self._bytes[self._at : self._at + count] = data[:count]
        self._at += count
        return data[count:]

    def seek(self, at: int) -> None:
        """Go to a place to read from."""
        self._at = at

    def tell(self) -> int:
        """Return that place."""
        return self._at

    def read(self, size: int | None = None) -> bytes | memoryview:
        """Return the next bytes; for an answer longer than any of a login, the rest without a copy."""
        end = len(self._bytes) if size is None else min(self._at + size, len(self._bytes))
        part, self._at = self._bytes[self._at : end], end
        return part.toreadonly() if size is None and len(part) > LOGIN_BYTES else bytes(part)


class _Parser(KafkaProtocol):
    """Frames no longer than the oldest unanswered request allows."""

    def __init__(self, connection: KafkaConnection, **config: Any) -> None:
        super().__init__(**config)
        self._connection = connection
        self._length = bytearray()
        self._frame: _Frame | None = None

    @property
    def room(self) -> memoryview:
        """The room for the rest of the present answer; empty between answers."""
        return _NO_ROOM if self._frame is None else self._frame.room

    def fill(self, count: int) -> None:
        """Count bytes that were written into the room; `receive_bytes` then returns the answer that they complete."""
        if self._frame is not None:
            self._frame.fill(count)

    def receive_bytes(self, data: bytes | memoryview) -> list[tuple[int, Any]]:
        """Process received bytes and return complete answers with their correlation ids; `data` itself is not kept."""
        answers, data = [], memoryview(data)
        while data or self._frame is not None:
            if self._frame is None:
                count = _LENGTH_BYTES - len(self._length)
                self._length += data[:count]
                data = data[count:]
                if len(self._length) < _LENGTH_BYTES:
                    break
                length = int.from_bytes(self._length, "big", signed=True)
                self._length.clear()
                self._validate_frame_size(length)
                self._frame = _Frame(length)
            data = self._frame.append(data)
            if self._frame.room:
                break
            frame, self._frame = self._frame, None
            frame.seek(0)
            answers.append(self._process_response(frame))
        return answers

    def _process_response(self, read_buffer: Any) -> tuple[int, Any]:
        request = self.in_flight_requests[0] if self.in_flight_requests else None
        if request is not None and request.request_api_key == _API_VERSIONS and _refuses_version(read_buffer, request):
            # Its body may be of any version: the next request is the same in version 0, which all servers know.
            self.in_flight_requests.popleft()
            return request.correlation_id, ApiVersionsResponse(error_code=_UNSUPPORTED_VERSION, api_keys=[])
        if request is not None and request.request_api_key == _FETCH:
            _leave_records(request.request_api_version)
        correlation_id, answer = super()._process_response(read_buffer)
        if (
            self._connection.initializing
            and isinstance(answer, ApiVersionsResponse)
            and answer.error_code == _UNSUPPORTED_VERSION
        ):
            raise wire_errors.KafkaProtocolError("the server there supports no version of ApiVersions")
        _check_arrays(answer, _required_arrays(answer.__class__, answer.API_VERSION))
        return correlation_id, answer

    def _validate_frame_size(self, nbytes: int) -> None:
        most, why = self._limit()
        if not 0 <= nbytes <= most:
            head = nbytes.to_bytes(4, "big", signed=True)
            if self._connection.initializing and all(0x20 <= byte < 0x7F for byte in head):
                raise wire_errors.InvalidReceiveError(
                    f"the server there does not speak Kafka, its answer begins with {head.decode()!r}"
                )
            raise wire_errors.InvalidReceiveError(f"an answer of {nbytes} bytes was announced, above {most} {why}")

    def _limit(self) -> tuple[int, str]:
        if not self.in_flight_requests:
            return 0, "as nothing was asked"
        api_key = self.in_flight_requests[0].request_api_key
        if self._connection.initializing or api_key in _LOGIN_APIS:
            return LOGIN_BYTES, "before the login"
        if api_key == _FETCH:
            return int(self._max_frame_size), "for a fetch (a larger kafka.fetch.max.bytes allows more)"
        return OTHER_BYTES, "for an answer without records"


def _refuses_version(answer: Any, request: Any) -> bool:
    """Whether an answer to ApiVersions rejects its version, which is not 0.

    In every version the code follows the correlation id.
    """
    head = bytes(answer.read(6))
    answer.seek(0)
    return request.request_api_version > 0 and int.from_bytes(head[4:], "big", signed=True) == _UNSUPPORTED_VERSION


@functools.cache
def _leave_records(version: int) -> None:
    """Make the decoder of fetched records leave them in their frame: kafka-python's own code copies them."""
    flexible = FetchResponse.flexible_version_q(version)
    decode = FetchResponse._struct.compiled_decode_from(  # noqa: SLF001 (no public way to ask)
        version, compact=flexible, tagged=flexible, data_class=FetchResponse[None]
    )
    decode.__globals__["bytes"] = _bytes


def _bytes(data: Any) -> bytes | memoryview:
    """Replace `bytes`: do not copy long values."""
    return data if isinstance(data, memoryview) and len(data) > _COPIED_BYTES else bytes(data)


class LimitedConnection(KafkaConnection):
    """A connection whose answers are limited, and whose login ends with a reason.

    kafka-python's manager creates plain connections: `of` turns one into this class before anything was sent.
    """

    _blocking: BlockingCalls
    _most_throttle_s: float
    _throttle_time: float

    @classmethod
    def of(cls, connection: KafkaConnection, blocking: BlockingCalls, most_throttle_ms: float) -> LimitedConnection:
        """Turn a connection that was just made into a limited one.

        most_throttle_ms: the longest throttling time that is obeyed.
        """
        connection.__class__ = cls
        limited: LimitedConnection = connection
        limited._blocking, limited._most_throttle_s = blocking, most_throttle_ms / 1_000
        return limited

    @property
    def free_at(self) -> float:
        """The time, by the monotonic clock, at which the broker's throttling ends; 0 without one."""
        return float(self._throttle_time)

    def send_request(self, request: Any, request_timeout_ms: float | None = None) -> Future:
        """Send a request; wait if the broker throttles or its socket is full.

        kafka-python would raise an error instead: the caller would then look for another leader, and be throttled
        again.
        """
        if not self.connected or not self.paused or self._reauth.is_reauthenticating:
            return super().send_request(request, request_timeout_ms=request_timeout_ms)
        later: Future = Future()
        begins = max(time.monotonic(), self.free_at)
        self._request_buffer.append((request, later, self._timeout_at(now=begins, timeout_ms=request_timeout_ms)))
        return later

    def unpause(self, v: str) -> None:
        """End a pause, and send what waited for its end."""
        super().unpause(v)
        if self.connected and not self.paused and not self._reauth.is_reauthenticating:
            self.send_buffered()

    def _maybe_throttle(self, response: Any) -> None:
        wait_s = min((getattr(response, "throttle_time_ms", 0) or 0) / 1_000, self._most_throttle_s)
        until = time.monotonic() + wait_s
        if wait_s > 0 and until > self._throttle_time:
            _log.debug("%s throttles this client for %d ms", self, wait_s * 1_000)
            self._throttle_time = until
            self.pause("throttle")
            self.net.call_at(until, self._maybe_unthrottle)

    def connection_made(self, transport: Any) -> None:
        """Start the connection, with a parser that knows the requests."""
        super().connection_made(transport)
        names = ("client_id", "receive_message_max_bytes")
        self.parser: KafkaProtocol = _Parser(
            self, ident=f"node={self.node_id}", **{name: self.config[name] for name in names}
        )

    def data_received(self, data: bytes) -> None:
        """Process received bytes; any error of the decoder closes the connection, which could read no more."""
        try:
            super().data_received(data)
        except wire_errors.KafkaProtocolError:
            raise
        except Exception as error:
            raise wire_errors.KafkaProtocolError(
                f"an answer that cannot be decoded ({type(error).__name__})"
            ) from error

    async def _sasl_authenticate(self, timeout_at: float | None = None) -> None:
        deadline_s = self._timeout_at() if timeout_at is None else timeout_at
        name = self.config["sasl_mechanism"]
        answer = await self._send_request(
            SaslHandshakeRequest(mechanism=name, min_version=1, max_version=1), None, deadline_s
        )
        if answer.error_code == wire_errors.UnsupportedSaslMechanismError.errno:
            raise MechanismError(known_mechanisms(answer.mechanisms))
        _check_code(answer.error_code)
        if answer.mechanisms and name not in answer.mechanisms:  # a server that accepts the mechanism may list none
            raise MechanismError(known_mechanisms(answer.mechanisms))
        host = self.transport.host or self.transport.getPeer()[0]
        # Its steps call a token provider or a Kerberos server, or compute for a while.
        api_key = login_wait_of(self.config, host)
        mechanism = await self._blocking.call(api_key, lambda: mechanism_of(self.config, host), deadline_s)
        while not mechanism.is_done():
            if time.monotonic() > deadline_s:
                raise wire_errors.KafkaTimeoutError("the login took too long")
            token = await self._blocking.call(api_key, mechanism.auth_bytes, deadline_s)
            answer = await self._send_request(SaslAuthenticateRequest(token), None, deadline_s)
            _check_code(answer.error_code)
            await self._blocking.call(api_key, functools.partial(mechanism.receive, answer.auth_bytes), deadline_s)
        if not mechanism.is_authenticated():
            raise wire_errors.SaslAuthenticationFailedError(f"the login with {name} was not completed")
        self._reauth.session_updated(answer.session_lifetime_ms)


class _Array(NamedTuple):
    """An array that an answer must have, or an array whose elements have such arrays."""

    name: str
    required: bool
    inner: tuple[_Array, ...]


@functools.cache
def _required_arrays(kind: Any, version: int) -> tuple[_Array, ...]:
    """Return the arrays of a structure that must not be null, and arrays that contain such arrays."""
    arrays = []
    for name, field in kind._struct.fields.items():  # noqa: SLF001 (no public way to ask)
        if field.is_array() and field.for_version_q(version):
            inner = _required_arrays(field.data_class, version) if field.is_struct_array() else ()
            required = not field.nullable_for_version_q(version)
            if required or inner:
                arrays.append(_Array(name, required, inner))
    return tuple(arrays)


def _check_arrays(value: Any, arrays: tuple[_Array, ...]) -> None:
    """Raise an error for an answer in which a required array is null: kafka-python returns None for it."""
    for array in arrays:
        elements = getattr(value, array.name)
        if elements is None and array.required:
            raise wire_errors.KafkaProtocolError(f"an answer without its array {array.name}")
        for element in (elements or ()) if array.inner else ():
            _check_arrays(element, array.inner)


def _check_code(code: int) -> None:
    """Raise the error of a code, without the broker's own text, which may repeat a secret."""
    kind = wire_errors.for_code(code)
    if kind is wire_errors.SaslAuthenticationFailedError:
        raise kind("the broker rejected the login")
    if kind is not wire_errors.NoError:
        raise kind()
