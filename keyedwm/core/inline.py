"""Control rows inside a topic, format version 1: what `controlRows=inline` writes and `propagate=true` reads.

Rule: a record is ours if its first header is HEADER; the header's value is the version, the value is JSON with sorted
names. Records of kind watermark, idle and active contain one channel's change. A barrier closes a snapshot in one
output partition, after all of the snapshot's rows there. It contains the state of every upstream channel at that cut:
a reader that has read one barrier needs nothing before it.

The code that proves a record's author, HMAC-SHA-256 with a secret of writer and readers, is the first member of the
JSON, `mac`: a reader without the secret reads the record as usual; a reader with the secret checks the bytes before it
parses any. The code covers the rest of the value, the format's version, and the topic and partition that the record was
written for: a record that was changed, moved or forged has a wrong code.
"""

from __future__ import annotations

import hmac
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from keyedwm.core.coalescer import Change, ChannelAdded, ChannelWentIdle, Coalescer, WatermarkAdvanced
from keyedwm.core.errors import FormatError, InputError
from keyedwm.core.parsing import parse_json
from keyedwm.core.rows import ControlKind
from keyedwm.core.text import error_text, short_repr
from keyedwm.core.watermark import MAX_KEY, MIN_KEY, IdleMarker

HEADER = "keyedwm.control"
VERSION = b"1"
# The most bytes of a value: some 40,000 upstream channels. A value that compresses well could otherwise cost readers
# seconds.
MOST_BYTES = 4 << 20
# A channel has two objects in 40 bytes or more; the barrier itself has two.
_FIRST_BRACKETS, _BRACKET_BYTES = 8, 16
_ROOM_FOR_CODE = 128
_COUNTS = range(2**63)
# The range of Spark's timestamps, in ms.
_TIMES = range(-(2**63 // 1_000), 2**63 // 1_000 + 1)
_KEY = re.compile(r"-?[0-9]{1,3}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Upstream:
    """One upstream channel at a cut: its next offset (None: it has none), whether it is idle, its watermarks (ms)."""

    offset: int | None = None
    idle: bool = False
    watermarks: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class UpstreamBarrier:
    """A barrier: snapshot `snapshot` of the writing query ends here."""

    query: str
    snapshot: int
    channels: Mapping[str, Upstream]

    def promise(self) -> tuple[dict[int, int], bool]:
        """The common promise of the channels: the coalesced watermark (ms) of each key, and whether all are idle."""
        coalescer = Coalescer()
        outputs = coalescer.step(self._changes(), 0)
        return dict(coalescer.snapshot().common.emitted), IdleMarker() in outputs

    def _changes(self) -> Iterator[Change]:
        for name in sorted(self.channels):
            channel = self.channels[name]
            yield ChannelAdded(name)
            for key, ms in sorted(channel.watermarks.items()):
                yield WatermarkAdvanced(name, key, ms)
            if channel.idle:
                yield ChannelWentIdle(name)


def encode_cut(barrier: UpstreamBarrier) -> bytes:
    """Return the value of a barrier record; raises InputError for more channels than readers accept."""
    channels = {
        name: {
            "idle": channel.idle,
            "offset": channel.offset,
            "watermarks": {str(key): ms for key, ms in channel.watermarks.items()},
        }
        for name, channel in barrier.channels.items()
    }
    value = _json(
        {"kind": ControlKind.BARRIER.value, "query": barrier.query, "snapshot": barrier.snapshot, "channels": channels}
    )
    if len(value) > MOST_BYTES - _ROOM_FOR_CODE:
        raise InputError(
            f"the barrier of snapshot {barrier.snapshot} lists {len(channels)} channels in {len(value)} bytes, at "
            f"most {MOST_BYTES - _ROOM_FOR_CODE} are expected: write without controlRows=inline, or read fewer "
            "partitions"
        )
    return value


def encode_change(
    kind: ControlKind,
    query: str,
    snapshot: int,
    channel: str,
    *,
    key: int | None = None,
    watermark_ms: int | None = None,
) -> bytes:
    """The value of a watermark, idle or active record."""
    value: dict[str, object] = {"kind": kind.value, "query": query, "snapshot": snapshot, "channel": channel}
    if kind is ControlKind.WATERMARK:
        value |= {"key": key, "watermark": watermark_ms}
    return _json(value)


def decode_cut(version: bytes | None, value: bytes | None, where: str) -> UpstreamBarrier | None:
    """Return the cut of a barrier record, None for other kinds. where: the record's place, for the error.

    Raises FormatError for another version, and for a value that is not ours.
    """
    if version != VERSION:
        version_text = "none" if version is None else short_repr(version.decode("utf-8", "replace"))
        raise FormatError(
            f"the control record at {where} has format version {version_text}, this keyedwm reads version "
            f"{VERSION.decode()}"
        )
    try:
        return _read_cut(_parsed(value))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        why = error_text(error)
    raise FormatError(f"the control record at {where} is not one that keyedwm writes: {why}")


def query_of(value: bytes | None) -> str | None:
    """Return the query that a control record names, None if the value is unreadable."""
    try:
        query = _parsed(value)["query"]
    except (ValueError, TypeError, KeyError):
        return None
    return query if isinstance(query, str) else None


def _parsed(value: bytes | None) -> Any:
    if value is not None and len(value) > MOST_BYTES:
        raise ValueError(f"{len(value)} bytes are above {MOST_BYTES}")
    # Each object or list takes some 90 bytes of memory, and could be two bytes long.
    if value is not None and value.count(b"{") + value.count(b"[") > _FIRST_BRACKETS + len(value) // _BRACKET_BYTES:
        raise ValueError("it has more objects and lists than the channels of a barrier take")
    return parse_json(value or b"")


def _read_cut(content: Any) -> UpstreamBarrier | None:
    if ControlKind(content["kind"]) is not ControlKind.BARRIER:
        return None
    query = content["query"]
    if not isinstance(query, str):
        raise TypeError("the query is no text")
    query.encode()  # half of a surrogate pair is no text either
    channels = {}
    for name, channel in content["channels"].items():
        name.encode()
        if not isinstance(channel["idle"], bool):
            raise TypeError("idle is neither true nor false")
        watermarks = {_key(key): _whole("a watermark", ms, _TIMES) for key, ms in channel["watermarks"].items()}
        offset = None if channel["offset"] is None else _whole("an offset", channel["offset"], _COUNTS)
        channels[name] = Upstream(offset=offset, idle=channel["idle"], watermarks=watermarks)
    return UpstreamBarrier(
        query=query, snapshot=_whole("the snapshot", content["snapshot"], _COUNTS), channels=channels
    )


def _whole(subject: str, value: object, allowed: range) -> int:
    if type(value) is not int or value not in allowed:
        raise ValueError(f"{subject} is no whole number from {allowed[0]} to {allowed[-1]}")
    return value


def _key(text: str) -> int:
    if not _KEY.fullmatch(text):
        raise ValueError("a watermark key is no number")
    return _whole("a watermark key", int(text), range(MIN_KEY, MAX_KEY + 1))


def _json(value: Mapping) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


_OPEN, _CLOSE = b'{"mac":"', b'",'
_DIGITS = 64
_HEAD = len(_OPEN) + _DIGITS + len(_CLOSE)


def sign(value: bytes, secret: bytes, version: bytes, topic: str, partition: int) -> bytes:
    """Return a record's JSON object with its code as the first member; `value` must have a member."""
    return _OPEN + _code(value, secret, version, topic, partition) + _CLOSE + value[1:]


def is_genuine(value: bytes | None, secret: bytes, version: bytes | None, topic: str, partition: int) -> bool:
    """Whether a control record has the code of this secret for this place."""
    if value is None or version is None or not value.startswith(_OPEN) or value[_HEAD - len(_CLOSE) : _HEAD] != _CLOSE:
        return False
    code = value[len(_OPEN) : len(_OPEN) + _DIGITS]
    return hmac.compare_digest(code, _code(b"{" + value[_HEAD:], secret, version, topic, partition))


def _code(value: bytes, secret: bytes, version: bytes, topic: str, partition: int) -> bytes:
    # Lengths separate parts that could otherwise form the same text.
    place = topic.encode()
    covered = b"keyedwm.control %d:%b %d:%b %d %b" % (len(version), version, len(place), place, partition, value)
    return hmac.digest(secret, covered, "sha256").hex().encode()
