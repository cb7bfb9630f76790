"""A coalescer's state as bytes: many channels, column by column.

Rule: a mark and a version, then one compressed body. Encoding and decoding are inverse, equal states give equal bytes
(channels and keys are sorted), and an unknown version is refused before anything is read.
"""

from __future__ import annotations

import json
import struct
import zlib

from keyedwm.core.coalescer import CoalescerState, CommonState
from keyedwm.core.errors import FormatError, InputError
from keyedwm.core.parsing import inflated, parse_json
from keyedwm.core.text import error_text
from keyedwm.core.watermark import Status

MARK = b"kwmc"
VERSION = 1
_BODY_BYTES_MAX = 256 << 20
_LENGTH = struct.Struct("<I")
_FAST = 1  # zlib's level: the columns are so regular that more effort gains nothing


def encode_channels(state: CoalescerState) -> bytes:
    """A coalescer's state; channel names must not hold a NUL."""
    names = sorted(state.channels)
    if any("\0" in name for name in names):
        raise InputError("a channel name holds a NUL character")
    entries = [state.channels[name] for name in names]
    keys = sorted({key for _, watermarks in entries for key in watermarks})
    head = {"channels": len(names), "keys": keys, "common": state.common.as_json()}
    body = [
        _block(json.dumps(head, separators=(",", ":"), sort_keys=True).encode()),
        _block("\0".join(names).encode()),
        bytes([status.value for status, _ in entries]),
    ]
    for key in keys:
        column = [watermarks.get(key) for _, watermarks in entries]
        known = [time_ms for time_ms in column if time_ms is not None]
        body.append(bytes([time_ms is not None for time_ms in column]))
        body.append(struct.pack(f"<{len(known)}q", *known))
    return MARK + bytes([VERSION]) + zlib.compress(b"".join(body), _FAST)


def decode_channels(data: bytes) -> CoalescerState:
    """The inverse of `encode_channels`. Raises InputError for what is not ours, FormatError for another version."""
    if data[: len(MARK)] != MARK or len(data) <= len(MARK):
        raise InputError(f"{len(data)} bytes of channel state were not written by keyedwm")
    version = data[len(MARK)]
    if version != VERSION:
        raise FormatError(f"channel state has version {version}, this keyedwm reads version {VERSION}")
    try:
        return _read_body(inflated(data[len(MARK) + 1 :], _BODY_BYTES_MAX))
    except (ValueError, TypeError, KeyError, IndexError, struct.error) as error:
        raise InputError(f"{len(data)} bytes of channel state are cut or changed: {error_text(error)}") from None


def _read_body(body: bytes) -> CoalescerState:
    packed, at = _read_block(body, 0)
    head = parse_json(packed)
    joined, at = _read_block(body, at)
    count = head["channels"]
    names = joined.decode().split("\0") if count else []
    statuses = body[at : at + count]
    at += count
    watermarks: list[dict[int, int]] = [{} for _ in names]
    for key in head["keys"]:
        has = body[at : at + count]
        at += count
        values = struct.unpack_from(f"<{sum(has)}q", body, at)
        at += 8 * len(values)
        known = iter(values)
        for index, one in enumerate(has):
            if one:
                watermarks[index][key] = next(known)
    channels = {
        name: (Status(status), of_channel) for name, status, of_channel in zip(names, statuses, watermarks, strict=True)
    }
    return CoalescerState(channels=channels, common=CommonState.from_json(head["common"]))


def _block(content: bytes) -> bytes:
    return _LENGTH.pack(len(content)) + content


def _read_block(body: bytes, at: int) -> tuple[bytes, int]:
    (length,) = _LENGTH.unpack_from(body, at)
    start = at + _LENGTH.size
    return body[start : start + length], start + length
