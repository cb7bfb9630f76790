"""A coalescer's state as bytes: many channels, column by column.

Rule: a mark and a version, then one compressed body. Encoding and decoding are inverse. Equal states give equal bytes
(channels and keys are sorted). An unknown version is an error before anything is read.

Each bucket of an operator holds all channels of its input, so the bytes of a channel are stored once a bucket. Names
are runs of numbers. A watermark is stored as its number of steps above the lowest watermark. All numbers have the bytes
that the largest needs, lowest bytes first. Version 1, of 0.2.0, has every name and eight bytes a watermark.
"""

from __future__ import annotations

import functools
import json
import math
import struct
import zlib
from collections.abc import Sequence

from keyedwm.core.channel_names import pack_names, unpack_names
from keyedwm.core.coalescer import CoalescerState, CommonState
from keyedwm.core.errors import FormatError, InputError
from keyedwm.core.parsing import inflated, parse_json
from keyedwm.core.text import error_text
from keyedwm.core.watermark import Status

MARK = b"kwmc"
VERSION = 2
_BODY_BYTES_MAX = 256 << 20
_LENGTH = struct.Struct("<I")
_FAST = 1  # zlib's level: the columns are so regular that more effort gains nothing
_NUMBER_BYTES = 8
_CACHE_SIZE = 4  # the number of cached inputs and axes


def encode_channels(state: CoalescerState) -> bytes:
    """Return the bytes of a coalescer's state."""
    packed = pack_names(state.channels)
    names = unpack_names(packed, len(state.channels))
    entries = [state.channels[name] for name in names]
    keys = sorted({key for _, watermarks in entries for key in watermarks})
    key_heads: list[tuple[int, int, int, int]] = []
    columns = [bytes([status.value for status, _ in entries])]
    for key in keys:
        column = [watermarks.get(key) for _, watermarks in entries]
        known = [time_ms for time_ms in column if time_ms is not None]
        lowest, step, width, steps = _steps(known)
        key_heads.append((key, lowest, step, width))
        columns += (bytes([time_ms is not None for time_ms in column]), steps)
    head = {"channels": len(names), "names": packed, "keys": key_heads, "common": state.common.as_json()}
    body = _block(json.dumps(head, separators=(",", ":"), sort_keys=True).encode())
    return MARK + bytes([VERSION]) + zlib.compress(b"".join([body, *columns]), _FAST)


@functools.lru_cache(maxsize=_CACHE_SIZE)
def decode_channels(data: bytes) -> CoalescerState:
    """The inverse of `encode_channels`. Raises InputError for foreign bytes, FormatError for another version.

    The last results are cached and must not be changed: the buckets of a process read the same bytes, one after
    another.
    """
    if data[: len(MARK)] != MARK or len(data) <= len(MARK):
        raise InputError(f"{len(data)} bytes of channel state were not written by keyedwm")
    version = data[len(MARK)]
    if version not in (1, VERSION):
        raise FormatError(f"channel state has version {version}, this keyedwm reads version 1 and {VERSION}")
    try:
        return _read_body(inflated(data[len(MARK) + 1 :], _BODY_BYTES_MAX), version)
    except (ValueError, TypeError, KeyError, IndexError, OverflowError, struct.error) as error:
        raise InputError(f"{len(data)} bytes of channel state are cut or changed: {error_text(error)}") from None


def _read_body(body: bytes, version: int) -> CoalescerState:
    packed, at = _read_block(body, 0)
    head = parse_json(packed)
    count = head["channels"]
    if version == 1:
        joined, at = _read_block(body, at)
        names = joined.decode().split("\0") if count else []
    else:
        names = unpack_names(head["names"], len(body) - at)  # each has a byte of status
    statuses = body[at : at + count]
    at += count
    watermarks: list[dict[int, int]] = [{} for _ in names]
    for key_head in head["keys"]:
        key, *span = [key_head] if version == 1 else key_head
        has = body[at : at + count]
        at += count
        values, size = (_numbers if span else _eights)(body[at:], sum(has), *span)
        at += size
        known = iter(values)
        for index, one in enumerate(has):
            if one:
                watermarks[index][key] = next(known)
    channels = {
        name: (Status(status), of_channel) for name, status, of_channel in zip(names, statuses, watermarks, strict=True)
    }
    return CoalescerState(channels=channels, common=CommonState.from_json(head["common"]))


def _steps(known: Sequence[int]) -> tuple[int, int, int, bytes]:
    """Return times as four parts: the lowest time, the step (all distances from the lowest time are multiples of it),
    the bytes of a number of steps, and these numbers: the lowest bytes of all, then the next bytes.
    """
    lowest = min(known)
    distances = [time_ms - lowest for time_ms in known]
    step = math.gcd(*distances) or 1
    width = -(-(max(distances) // step).bit_length() // 8)
    whole = struct.pack(f"<{len(known)}Q", *(distance // step for distance in distances))
    return lowest, step, width, b"".join(whole[place::_NUMBER_BYTES] for place in range(width))


def _numbers(body: bytes, count: int, lowest: int, step: int, width: int) -> tuple[Sequence[int], int]:
    """The inverse of `_steps`: times, and the number of their bytes."""
    whole = bytearray(_NUMBER_BYTES * count)
    for place in range(width):
        whole[place::_NUMBER_BYTES] = body[place * count : (place + 1) * count]
    return [lowest + step * steps for steps in struct.unpack(f"<{count}Q", whole)], width * count


def _eights(body: bytes, count: int) -> tuple[Sequence[int], int]:
    """Return times of version 1, and the number of their bytes."""
    return struct.unpack_from(f"<{count}q", body), _NUMBER_BYTES * count


def _block(content: bytes) -> bytes:
    return _LENGTH.pack(len(content)) + content


def _read_block(body: bytes, at: int) -> tuple[bytes, int]:
    (length,) = _LENGTH.unpack_from(body, at)
    start = at + _LENGTH.size
    return body[start : start + length], start + length
