"""The state of a channel as the metadata of a committed offset (docs/design/state.md).

Rule: `MARK + version`, a colon, then base64 of a body and its authentication code. Readers of the metadata, and clients
that may commit to the group, do not know the state key. So only a state that this query wrote for this place is
accepted: the code is checked before the body is read. Equal states give equal strings.

Body, version 3: snapshot id, counts (bad, late, control), number of axes. Then for each axis, in order of watermark
keys: the key; twice the kind of state (0 policy, 1 propagated), plus 1 with a watermark; how many numbers follow; and
these numbers: the last watermark sent, if there is one, and the numbers of the state. All are zigzag varints; each of
these numbers is relative to the number before. Version 4, written if event times were too far ahead, has their count
after the three counts. Version 5, written if values with a schema were bad, has after these four counts the number of
reasons, and each reason with its count.
"""

from __future__ import annotations

import binascii
import functools
import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn

from keyedwm.core.axis import NO_COUNTS, AxisState, Counts, StateTag
from keyedwm.core.errors import FormatError, InputError
from keyedwm.core.watermark import MAX_KEY, MIN_KEY

MARK = "keyedwm"
VERSION = 5
_WITHOUT_BAD_VALUES = 4
_WITHOUT_FUTURE = 3
_VERSIONS = (_WITHOUT_FUTURE, _WITHOUT_BAD_VALUES, VERSION)
_HEADS = {f"{MARK}{version}": version for version in _VERSIONS}
METADATA_BYTES = 4096  # the limit of brokers by default (offset.metadata.max.bytes)
KEY_BYTES = 32
_LONGEST = 1 << 16  # characters; no broker is set to take metadata of this length
_CODE_BYTES = 16
_CONTINUES = 0x80
_LOW_BITS = 0x7F
_LONGEST_SHIFT = 63  # 10 bytes: a difference of two 64-bit numbers as zigzag
_INNER, _OUTER = (bytes(byte ^ mask for byte in range(256)) for mask in (0x36, 0x5C))
_ONE_BYTE = tuple(bytes([number]) for number in range(_LOW_BITS + 1))
_OF_ONE_BYTE = tuple(-((byte + 1) >> 1) if byte & 1 else byte >> 1 for byte in range(_CONTINUES))
_TAGS = tuple(StateTag)
_POLICY = _TAGS.index(StateTag.POLICY)


@dataclass(frozen=True, slots=True)
class CommittedState:
    """The state that a reading task leaves at a committed offset: its batch, and the state of every time axis."""

    snapshot_id: int
    counts: Counts
    axes: Mapping[int, AxisState]


def encode_committed(state: CommittedState, key: bytes, place: str) -> str:
    """Return the metadata string of a committed offset, ASCII; the caller compares its length with METADATA_BYTES.

    key: the query's secret. place: a text that names the state's place; `decode_committed` needs the same text.
    """
    if len(key) != KEY_BYTES:
        raise InputError(f"a state key has {len(key)} bytes, it must have {KEY_BYTES}")
    counts = state.counts
    body = bytearray(_varint(state.snapshot_id))
    body += _varint(counts.bad) + _varint(counts.late) + _varint(counts.control)
    version = _version(counts)
    if version != _WITHOUT_FUTURE:
        body += _varint(counts.future)
    if version == VERSION:
        body += _varint(len(counts.bad_values))
        for reason, count in counts.bad_values:
            body += _varint(reason) + _varint(count)
    body += _varint(len(state.axes))
    before = 0
    for axis_key in sorted(state.axes):
        axis = state.axes[axis_key]
        tag, numbers = axis.numbers()
        emitted = () if axis.emitted_ms is None else (axis.emitted_ms,)
        body += _varint(axis_key) + _varint(2 * _TAGS.index(tag) + len(emitted)) + _varint(len(emitted) + len(numbers))
        for number in (*emitted, *numbers):
            body += _varint(number - before)
            before = number
    return f"{MARK}{version}:" + _text(bytes(body) + _code(key, _covered_text(place, version), body))


def _version(counts: Counts) -> int:
    """Return the lowest version that can hold these counts."""
    if counts.bad_values:
        return VERSION
    return _WITHOUT_BAD_VALUES if counts.future else _WITHOUT_FUTURE


def decode_committed(metadata: str, key: bytes, place: str) -> CommittedState:
    """The inverse of `encode_committed`.

    Raises FormatError for another version of ours, InputError for metadata that this query did not write for this
    place.
    """
    head, separator, text = metadata[:_LONGEST].partition(":")
    version = _HEADS.get(head) if separator else None
    if version is None:
        _refuse(metadata, head if separator else "")
    try:
        raw = binascii.a2b_base64(text)
    except ValueError:
        raw = b""
    if len(metadata) > _LONGEST or _text(raw) != text:
        raise InputError("offset metadata with the mark of keyedwm is not base64")
    body = raw[:-_CODE_BYTES]
    if not body or not hmac.compare_digest(raw[-_CODE_BYTES:], _code(key, _covered_text(place, version), body)):
        raise InputError("offset metadata with the mark of keyedwm was not written by this query for this place")
    return _read_body(body, version)


def _refuse(metadata: str, head: str) -> NoReturn:
    """Say why metadata that begins like this is not read."""
    version = head.removeprefix(MARK)
    if not head.startswith(MARK) or not (version.isascii() and version.isdigit()):
        raise InputError(f"offset metadata of {len(metadata)} characters was not written by keyedwm")
    raise FormatError(
        f"offset metadata has version {version[:9]}, this keyedwm reads versions {_VERSIONS[0]} to {VERSION}"
    )


def try_decode(metadata: str | None, key: bytes, place: str) -> CommittedState | None:
    """Return the state in a metadata string, None for any other metadata (which costs time only)."""
    if not metadata:
        return None
    try:
        return decode_committed(metadata, key, place)
    except (InputError, FormatError):
        return None


def _read_body(body: bytes, version: int) -> CommittedState:
    """Read a body. Every length in it is checked against the remaining bytes before it is used."""
    numbers = _numbers(body)
    counts = numbers[1 : 4 if version == _WITHOUT_FUTURE else 5]
    by_reason = _bad_values(numbers[len(counts) + 1 :]) if version == VERSION else ()
    at = len(counts) + 2  # after the snapshot id, the counts and the number of axes
    if version == VERSION:
        at += 1 + 2 * len(by_reason)
    if at > len(numbers) or not 0 <= numbers[at - 1] <= len(numbers) - at:
        raise _never_written()
    axes: dict[int, AxisState] = {}
    before = 0
    for _ in range(numbers[at - 1]):
        if at + 3 > len(numbers):
            raise _never_written()
        key, tagged, count = numbers[at : at + 3]
        tag, has_emitted = tagged >> 1, tagged & 1
        at += 3
        is_known = MIN_KEY <= key <= MAX_KEY and key not in axes and 0 <= tag < len(_TAGS)
        if not is_known or not has_emitted <= count <= len(numbers) - at:
            raise _never_written()
        values = []
        for number in numbers[at : at + count]:
            before += number
            values.append(before)
        at += count
        emitted_ms = values[0] if has_emitted else None
        if tag == _POLICY:
            axes[key] = AxisState(tuple(values[has_emitted:]), emitted_ms)
        else:
            axes[key] = AxisState.of_numbers(_TAGS[tag], values[has_emitted:], emitted_ms)
    if at != len(numbers):
        raise _never_written()
    if any(counts) or by_reason:
        return CommittedState(numbers[0], Counts(*counts, bad_values=by_reason), axes)
    return CommittedState(numbers[0], NO_COUNTS, axes)


def _bad_values(numbers: list[int]) -> tuple[tuple[int, int], ...]:
    """Read the number of reasons, and then the counts by reason, from the beginning of these numbers."""
    if not numbers or not 0 < numbers[0] <= (len(numbers) - 1) // 2:
        raise _never_written()
    pairs = numbers[1 : 1 + 2 * numbers[0]]
    return tuple(zip(pairs[::2], pairs[1::2], strict=True))


def _never_written() -> InputError:
    return InputError("offset metadata with the mark of keyedwm has a body that keyedwm never writes")


def _numbers(body: bytes) -> list[int]:
    numbers = []
    rest = shift = 0
    for byte in body:
        if byte < _CONTINUES and not shift:  # most of them
            numbers.append(_OF_ONE_BYTE[byte])
            continue
        rest |= (byte & _LOW_BITS) << shift
        if byte < _CONTINUES:
            numbers.append(-((rest + 1) >> 1) if rest & 1 else rest >> 1)
            rest = shift = 0
        elif shift >= _LONGEST_SHIFT:
            raise _never_written()
        else:
            shift += 7
    if shift:
        raise _never_written()
    return numbers


def _text(raw: bytes) -> str:
    return binascii.b2a_base64(raw, newline=False).decode("ascii")


def _covered_text(place: str, version: int) -> str:
    """Return the text that the code covers; it has the version, so that a body cannot pass for another version's."""
    return place if version == _WITHOUT_FUTURE else f"{place} version {version}"


def _code(key: bytes, place: str, body: bytes | bytearray) -> bytes:
    # The length separates place and body, which could otherwise form the same text.
    place_bytes = place.encode()
    prefix, outer = _hash_halves(key)
    inner, outer = prefix.copy(), outer.copy()
    inner.update(b"%d:%b%b" % (len(place_bytes), place_bytes, bytes(body)))
    outer.update(inner.digest())
    return outer.digest()[:_CODE_BYTES]


@functools.lru_cache(maxsize=16)
def _hash_halves(key: bytes) -> tuple[hashlib._Hash, hashlib._Hash]:
    """Return the two halves of HMAC-SHA-256 with the key in them (RFC 2104): this setup costs more than a body."""
    size = hashlib.sha256().block_size
    block = (key if len(key) <= size else hashlib.sha256(key).digest()).ljust(size, b"\0")
    return hashlib.sha256(block.translate(_INNER)), hashlib.sha256(block.translate(_OUTER))


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
