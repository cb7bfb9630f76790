"""State as bytes: the metadata of a committed offset (DESIGN section 5), and its readable form.

Rule: `MARK + version`, then base64 of a body that ends in a checksum. Encoding and decoding are inverse, equal states
give equal strings, and a string that is not ours is never taken for ours.

Body, version 2: token length and token, snapshot id, bad count, late count, number of axes, then per axis in order of
its key: the key, 0 or 1 and the last watermark sent, number of policy numbers and these. Numbers are zigzag varints,
each time relative to the one before.
"""

from __future__ import annotations

import binascii
import zlib
from collections.abc import Mapping
from dataclasses import dataclass

from keyedwm.core.axis import AxisState
from keyedwm.core.counts import Counts
from keyedwm.core.errors import FormatError, InputError

MARK = "keyedwm"
VERSION = 2
METADATA_BYTES = 4096  # what a broker takes by default (offset.metadata.max.bytes)
_CHECKSUM_BYTES = 4
_CONTINUES = 0x80
_LOW_BITS = 0x7F
_ONE_BYTE = tuple(bytes([number]) for number in range(_LOW_BITS + 1))


@dataclass(frozen=True, slots=True)
class CommittedState:
    """What a reading task leaves at a committed offset: whose it is, which batch, and the state of every time axis."""

    token: str
    snapshot_id: int
    counts: Counts
    axes: Mapping[int, AxisState]


def encode_committed(token: str, snapshot_id: int, counts: Counts, axes: Mapping[int, AxisState]) -> str:
    """The metadata string of a committed offset, ASCII; the caller compares its length with METADATA_BYTES."""
    if not 8 <= len(token) <= 16 or not token.isascii():
        raise InputError(f"a query token has {len(token)} characters, it must have 8 to 16 of ASCII")
    body = bytearray(_varint(len(token)))
    body += token.encode("ascii")
    body += _varint(snapshot_id) + _varint(counts.bad) + _varint(counts.late) + _varint(len(axes))
    before_ms = 0
    for key in sorted(axes):
        state = axes[key]
        numbers = state.policy if state.emitted_ms is None else (state.emitted_ms, *state.policy)
        body += _varint(key) + _varint(int(state.emitted_ms is not None)) + _varint(len(numbers))
        for number in numbers:
            body += _varint(number - before_ms)
            before_ms = number
    return f"{MARK}{VERSION}:" + _text(bytes(body) + _checksum(body))


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
        raw = binascii.a2b_base64(text)
    except ValueError:
        raw = b""
    if _text(raw) != text:
        raise InputError("offset metadata with the mark of keyedwm is not base64")
    body = raw[:-_CHECKSUM_BYTES]
    if len(raw) <= _CHECKSUM_BYTES or raw[-_CHECKSUM_BYTES:] != _checksum(body):
        raise InputError("offset metadata with the mark of keyedwm has a wrong checksum")
    try:
        return _read_body(body)
    except (ValueError, IndexError):
        raise InputError("offset metadata with the mark of keyedwm has a body that keyedwm never writes") from None


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
        "badCount": state.counts.bad,
        "lateCount": state.counts.late,
        "axes": {str(key): axis.as_list() for key, axis in sorted(state.axes.items())},
    }


def _read_body(body: bytes) -> CommittedState:
    start = 1
    length = body[0] >> 1  # a token has 8 to 16 characters: one byte of zigzag
    token = body[start : start + length].decode("ascii")
    numbers = _numbers(body[start + length :])
    snapshot_id, bad, late, count = numbers[:4]
    at = 4
    axes = {}
    before_ms = 0
    for _ in range(count):
        key, sent, length = numbers[at : at + 3]
        at += 3
        times = []
        for step in numbers[at : at + length]:
            before_ms += step
            times.append(before_ms)
        at += length
        axes[key] = AxisState(policy=tuple(times[sent:]), emitted_ms=times[0] if sent else None)
    return CommittedState(token=token, snapshot_id=snapshot_id, counts=Counts(bad, late), axes=axes)


def _numbers(body: bytes) -> list[int]:
    numbers = []
    rest = shift = 0
    for byte in body:
        rest |= (byte & _LOW_BITS) << shift
        if byte < _CONTINUES:
            numbers.append(-((rest + 1) >> 1) if rest & 1 else rest >> 1)
            rest = shift = 0
        else:
            shift += 7
    return numbers


def _text(raw: bytes) -> str:
    return binascii.b2a_base64(raw, newline=False).decode("ascii")


def _checksum(body: bytes | bytearray) -> bytes:
    return zlib.crc32(body).to_bytes(_CHECKSUM_BYTES, "big")


def _varint(number: int) -> bytes:
    rest = number << 1 if number >= 0 else (-number << 1) - 1
    if rest <= _LOW_BITS:
        return _ONE_BYTE[rest]
    out = bytearray()
    while rest > _LOW_BITS:
        out.append(rest & _LOW_BITS | _CONTINUES)
        rest >>= 7
    out.append(rest)
    return bytes(out)
