"""State as bytes: the metadata of a committed offset (DESIGN section 5), and its readable form.

Rule: `MARK + version`, then base85 of a body that ends in a checksum. Encoding and decoding are inverse, equal states
give equal strings, and a string that is not ours is never taken for ours.

Body, version 1: token length and token, snapshot id, bad count, number of axes, then per axis in order of its key: the
key, 0 or 1 and the last watermark sent, number of policy numbers and these. Numbers are zigzag varints, each time
relative to the one before.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from keyedwm.core.axis import AxisState
from keyedwm.core.errors import FormatError, InputError
from keyedwm.core.watermark import check_key

MARK = "keyedwm"
VERSION = 1
METADATA_BYTES = 4096  # what a broker takes by default (offset.metadata.max.bytes)
_CHECKSUM_BYTES = 4
_CONTINUES = 0x80
_LOW_BITS = 0x7F


@dataclass(frozen=True, slots=True)
class CommittedState:
    """What a reading task leaves at a committed offset: whose it is, which batch, and the state of every time axis."""

    token: str
    snapshot_id: int
    bad_count: int
    axes: Mapping[int, AxisState]


def encode_committed(token: str, snapshot_id: int, bad_count: int, axes: Mapping[int, AxisState]) -> str:
    """The metadata string of a committed offset, ASCII; the caller compares its length with METADATA_BYTES."""
    if not 8 <= len(token) <= 16 or not token.isascii():
        raise InputError(f"a query token has {len(token)} characters, it must have 8 to 16 of ASCII")
    body = bytearray(_varint(len(token)))
    body += token.encode("ascii")
    body += _varint(snapshot_id) + _varint(bad_count) + _varint(len(axes))
    before_ms = 0
    for key in sorted(axes):
        state = axes[key]
        numbers = state.policy if state.emitted_ms is None else (state.emitted_ms, *state.policy)
        body += _varint(key) + _varint(int(state.emitted_ms is not None)) + _varint(len(numbers))
        for number in numbers:
            body += _varint(number - before_ms)
            before_ms = number
    return f"{MARK}{VERSION}:" + base64.b85encode(body + _checksum(body)).decode("ascii")


def decode_committed(metadata: str) -> CommittedState:
    """The inverse of `encode_committed`.

    Raises FormatError for another version of ours, InputError for what is not ours or was cut.
    """
    head, separator, text = metadata.partition(":")
    version = head.removeprefix(MARK)
    if not separator or not head.startswith(MARK) or not (version.isascii() and version.isdigit()):
        raise InputError(f"offset metadata of {len(metadata)} characters was not written by keyedwm")
    if version != str(VERSION):
        raise FormatError(f"offset metadata has version {version}, this keyedwm reads version {VERSION}")
    try:
        raw = base64.b85decode(text)
    except ValueError:
        raise InputError("offset metadata with the mark of keyedwm is not base85") from None
    body = raw[:-_CHECKSUM_BYTES]
    if len(raw) <= _CHECKSUM_BYTES or raw[-_CHECKSUM_BYTES:] != _checksum(body):
        raise InputError("offset metadata with the mark of keyedwm has a wrong checksum")
    return _read_body(body)


def try_decode(metadata: str | None) -> CommittedState | None:
    """The state in a metadata string, None for anything that is not ours to read (which costs time only)."""
    if not metadata:
        return None
    try:
        return decode_committed(metadata)
    except (InputError, FormatError):
        return None


def readable(state: CommittedState) -> dict:
    """A committed state as plain names and numbers, for `inspect`."""
    return {
        "token": state.token,
        "snapshotId": state.snapshot_id,
        "badCount": state.bad_count,
        "axes": {str(key): axis.as_list() for key, axis in sorted(state.axes.items())},
    }


def _read_body(body: bytes) -> CommittedState:
    length, at = _read_varint(body, 0)
    token = body[at : at + length].decode("ascii")
    (snapshot_id, bad_count, count), at = _read_varints(body, at + length, 3)
    axes = {}
    before_ms = 0
    for _ in range(count):
        (key, sent, length), at = _read_varints(body, at, 3)
        steps, at = _read_varints(body, at, length)
        numbers = []
        for step in steps:
            before_ms += step
            numbers.append(before_ms)
        check_key(key)
        axes[key] = AxisState(policy=tuple(numbers[sent:]), emitted_ms=numbers[0] if sent else None)
    return CommittedState(token=token, snapshot_id=snapshot_id, bad_count=bad_count, axes=axes)


def _checksum(body: Iterable[int]) -> bytes:
    return zlib.crc32(bytes(body)).to_bytes(_CHECKSUM_BYTES, "big")


def _varint(number: int) -> bytes:
    rest = number << 1 if number >= 0 else (-number << 1) - 1
    out = bytearray()
    while rest > _LOW_BITS:
        out.append(rest & _LOW_BITS | _CONTINUES)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def _read_varint(body: bytes, at: int) -> tuple[int, int]:
    rest = 0
    shift = 0
    while True:
        byte = body[at]
        at += 1
        rest |= (byte & _LOW_BITS) << shift
        shift += 7
        if byte < _CONTINUES:
            return (rest >> 1 if not rest & 1 else -((rest + 1) >> 1)), at


def _read_varints(body: bytes, at: int, count: int) -> tuple[list[int], int]:
    numbers = []
    for _ in range(count):
        number, at = _read_varint(body, at)
        numbers.append(number)
    return numbers, at
