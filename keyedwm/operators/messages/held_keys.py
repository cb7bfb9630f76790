"""What the state of windows that count a key's messages holds, read from its blobs; see `held`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from keyedwm.operators.messages.channels import Channels
from keyedwm.operators.messages.key_grid import KeyGrid
from keyedwm.operators.messages.key_rows import KeyPlaces, OpenKeys, channels_of
from keyedwm.operators.messages.marks import OF_KEYS, is_marked
from keyedwm.operators.messages.windows import Full
from keyedwm.operators.state.store import logs_of
from keyedwm.operators.summary import Summary

INDEX = "open-keys"


@dataclass(frozen=True, slots=True)
class HeldWindow:
    """A window of one topic and partition; start and end in ms of event time, or offsets; the end is behind it."""

    start: int
    end: int
    topic: str
    partition: int
    first_offset: int
    last_offset: int
    messages: int
    bytes: int
    is_complete: bool

    def joined(self, other: HeldWindow) -> HeldWindow:
        """Return what two buckets hold of it."""
        return replace(
            self,
            first_offset=min(self.first_offset, other.first_offset),
            last_offset=max(self.last_offset, other.last_offset),
            messages=self.messages + other.messages,
            bytes=self.bytes + other.bytes,
            is_complete=self.is_complete and other.is_complete,
        )


def counts_keys(told: Mapping[str, Any]) -> bool:
    """Return whether the windows of a plan count the messages of a key; told: of the plan."""
    return is_marked(told, OF_KEYS)


def windows(told: Mapping[str, Any], facts: Mapping[str, Any], blobs: Mapping[str, bytes]) -> Iterator[HeldWindow]:
    """Return of each key, topic and partition the window that is complete next; blobs: the log of keys."""
    keys = _keys(blobs)
    if keys is None:
        return
    held = _grid(told).held(keys.rows.counts)
    places = keys.rows.take(held > 0)
    columns = (
        column.tolist()
        for column in (channels_of(places.codes), places.first, places.last, places.sizes, held[held > 0])
    )
    for number, first, last, size, rows in zip(*columns, strict=True):
        topic, partition = facts["channels"][number][:2]
        yield HeldWindow(first, last + 1, topic, partition, first, last, rows, size, is_complete=False)


def messages(told: Mapping[str, Any], facts: Mapping[str, Any], blobs: Mapping[str, bytes], rows: pa.Table) -> pa.Table:
    """Return those of some messages of a bucket that are held still; blobs: the log of keys."""
    keys = _keys(blobs)
    if keys is None:
        return rows.slice(0, 0)
    channels = Channels(tuple(told["record"]), facts["channels"])
    codes = keys.codes(rows, channels.numbers(rows))
    live = keys.live(codes, channels.offsets(rows), _grid(told).held(keys.rows.counts) > 0)
    return rows.filter(pa.array(live))


def summary(blobs: Mapping[str, int], facts: Mapping[str, Any]) -> Summary:
    """Return what a bucket holds, from its notes alone; `frames` are the keys that have a window."""
    windows_held, rows = facts.get("open", (0, 0))
    return Summary(frames=windows_held, rows=rows, size_bytes=sum(blobs.values()), oldest_ms=None)


def _grid(told: Mapping[str, Any]) -> KeyGrid:
    size, step, _ = told["grid"]
    return KeyGrid(size, step, known_ahead=told["store"][2] == str(Full.WATERMARK))


def _keys(blobs: Mapping[str, bytes]) -> OpenKeys | None:
    """What is known of each key, None if nothing ever was."""
    logs = logs_of(blobs)
    tables = logs.read(INDEX)
    return OpenKeys(KeyPlaces.key_fields(tables[0]), logs, INDEX) if tables else None
