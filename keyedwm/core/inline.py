"""Control rows inside a topic, format version 1: what `controlRows=inline` writes and `propagate=true` reads.

Rule: a record is ours if its first header is HEADER; the header's value is the version, the value is JSON with sorted
names. Records of kind watermark, idle and active tell one channel's change. A barrier closes a snapshot in one output
partition, behind all of the snapshot's rows there, and holds the state of every upstream channel at that cut: who has
read one barrier needs nothing that stands before it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from keyedwm.core.coalescer import Added, Advanced, Change, Coalescer, WentIdle
from keyedwm.core.errors import FormatError
from keyedwm.core.rows import Kind
from keyedwm.core.watermark import IdleMarker

HEADER = "keyedwm.control"
VERSION = b"1"


@dataclass(frozen=True, kw_only=True, slots=True)
class Upstream:
    """One upstream channel at a cut: its next offset (None: it has none), whether it is idle, its watermarks (ms)."""

    offset: int | None = None
    idle: bool = False
    watermarks: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Cut:
    """A barrier: snapshot `snapshot` of the writing query ends here."""

    query: str
    snapshot: int
    channels: Mapping[str, Upstream]

    def promise(self) -> tuple[dict[int, int], bool]:
        """What the channels promise together: the coalesced watermark (ms) of each key, and whether all are idle."""
        coalescer = Coalescer()
        made = coalescer.step(self._changes(), 0)
        return dict(coalescer.snapshot().common.emitted), IdleMarker() in made

    def _changes(self) -> Iterator[Change]:
        for name in sorted(self.channels):
            channel = self.channels[name]
            yield Added(name)
            for key, ms in sorted(channel.watermarks.items()):
                yield Advanced(name, key, ms)
            if channel.idle:
                yield WentIdle(name)


def encode_cut(cut: Cut) -> bytes:
    """The value of a barrier record."""
    channels = {
        name: {"idle": of.idle, "offset": of.offset, "watermarks": {str(key): ms for key, ms in of.watermarks.items()}}
        for name, of in cut.channels.items()
    }
    return _json({"kind": Kind.BARRIER.value, "query": cut.query, "snapshot": cut.snapshot, "channels": channels})


def encode_change(
    kind: Kind, query: str, snapshot: int, channel: str, *, key: int | None = None, watermark_ms: int | None = None
) -> bytes:
    """The value of a watermark, idle or active record."""
    value: dict[str, object] = {"kind": kind.value, "query": query, "snapshot": snapshot, "channel": channel}
    if kind is Kind.WATERMARK:
        value |= {"key": key, "watermark": watermark_ms}
    return _json(value)


def decode_cut(version: bytes | None, value: bytes | None, where: str) -> Cut | None:
    """The cut of a barrier record, None for the other kinds; `where` the record stands, for the error.

    Raises FormatError for another version, and for a value that is not ours.
    """
    if version != VERSION:
        shown = "none" if version is None else repr(version.decode("utf-8", "replace"))
        raise FormatError(
            f"the control record at {where} has format version {shown}, this keyedwm reads version {VERSION.decode()}"
        )
    try:
        found = json.loads(value or b"")
        if Kind(found["kind"]) is not Kind.BARRIER:
            return None
        return Cut(
            query=found["query"],
            snapshot=int(found["snapshot"]),
            channels={
                name: Upstream(
                    offset=of["offset"],
                    idle=of["idle"],
                    watermarks={int(key): ms for key, ms in of["watermarks"].items()},
                )
                for name, of in found["channels"].items()
            },
        )
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise FormatError(f"the control record at {where} is not one that keyedwm writes: {error!r}") from error


def _json(value: Mapping) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
