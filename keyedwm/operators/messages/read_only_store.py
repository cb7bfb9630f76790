"""Lists the state of windows that keep their messages, by the ordinary operator opened read-only on its blobs.

Rule: listing changes nothing, and takes only a description of the plan and the blobs that are asked for.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from keyedwm.core.errors import OptionError
from keyedwm.operators.messages.driver import MessageOperator
from keyedwm.operators.messages.store_description import plan_of, read_window
from keyedwm.operators.messages.timeline import HIGHEST, LOWEST
from keyedwm.operators.messages.windows import HoppingWindow, RowWindow
from keyedwm.operators.state.blobs import damaged
from keyedwm.operators.state.manifest import MANIFEST
from keyedwm.operators.state.store import PART, BlobStore
from keyedwm.operators.summary import Summary

MESSAGES = "messages-"  # how the names of blobs of messages begin
ALL = (LOWEST, HIGHEST)
# The columns of windows behind those of their keys, and the columns that say which window it is.
EDGES, CHANNEL, COMPLETE = ("start", "end"), ("topic", "partition"), "is_complete"
HELD = ("first_offset", "last_offset", "messages", "bytes")

Offsets = dict[tuple[str, int], int]


class Listed(Protocol):
    """A store, or a side of a join."""

    def windows(self, *, by_key: bool) -> pa.Table:
        """Return the windows that are held: the columns of keys, EDGES, CHANNEL, HELD and COMPLETE."""

    def messages(self) -> pa.Table:
        """Return the messages that are held, as they came."""

    def oldest_offsets(self) -> Offsets:
        """Return for each channel where its records must be read from to have what is held again."""


@dataclass(frozen=True, slots=True)
class ReadBlobs:
    """Blobs of a bucket that were read. sizes: of all its blobs; state: the content of its operator's manifest."""

    sizes: Mapping[str, int]
    blobs: Mapping[str, bytes]
    state: Mapping[str, Any]

    def get(self, name: str) -> bytes:
        """Return one of them; raise DamagedError if it is missing."""
        if name == MANIFEST:
            return json.dumps({name: value for name, value in self.state.items() if name != "checksum"}).encode()
        if name not in self.blobs:
            raise damaged(name, "is missing")
        return self.blobs[name]


class ListedStore:
    """A store whose plan has this description."""

    def __init__(self, description: Mapping[str, Any], store: BlobStore) -> None:
        self._plan = plan_of(description)
        self._are_of_keys = are_of_keys(description)
        self._operator = MessageOperator(self._plan, store)

    def windows(self, *, by_key: bool) -> pa.Table:
        """See `Listed`; windows that are each of one key are listed with it anyway."""
        found = self._operator.windows(*ALL, by_key=by_key or self._are_of_keys)
        return without_channels(found, self._plan.by, self._plan.record)

    def messages(self) -> pa.Table:
        """See `Listed`."""
        return self._operator.messages(ALL, {})

    def oldest_offsets(self) -> Offsets:
        """See `Listed`; nothing of a channel is held whose oldest offset is the next one."""
        channels, oldest = self._operator.channels, self._operator.oldest_offsets()
        following = dict(zip(channels.known, channels.next, strict=True))
        return {channel: offset for channel, offset in oldest.items() if offset < following[channel]}


def are_of_keys(description: Mapping[str, Any]) -> bool:
    """Whether each window is that of one key, beside which it is listed."""
    return description["window"]["kind"] not in {"time", "rows"}


def check_by_key(description: Mapping[str, Any]) -> None:
    """Refuse to list windows key by key that are listed so anyway."""
    if are_of_keys(description):
        raise OptionError(
            "windows of a key's messages, windows on demand, and sessions are listed key by key anyway: leave by_key "
            "out"
        )


def without_channels(found: pa.Table, by: tuple[str, ...], record: tuple[str, str, str]) -> pa.Table:
    """Return windows without keys that are topic or partition, which every window has."""
    keys = found.column_names[: -len((*EDGES, *CHANNEL, *HELD, COMPLETE))]
    return found.drop_columns([shown for shown, name in zip(keys, by, strict=False) if name in record[:2]])


def summary(description: Mapping[str, Any], sizes: Mapping[str, int], state: Mapping[str, Any]) -> Summary:
    """Return what a bucket holds, from its manifest alone: how many windows (`frames`) and messages (`rows`).

    sizes: of its blobs; state: the content of its operator's manifest.
    """
    windows, rows, oldest = state["open"] if "open" in state else _on_axes(description, sizes, state)
    return Summary(frames=windows, rows=rows, size_bytes=sum(sizes.values()), oldest_ms=oldest if windows else None)


def _on_axes(
    description: Mapping[str, Any], sizes: Mapping[str, int], state: Mapping[str, Any]
) -> tuple[int, int, int | None]:
    """Return how many windows and messages windows of time or rows hold, and of time the first start."""
    kind, ends = read_window(description["window"]), set[tuple[str, int]]()
    logs = {name.partition(PART)[0] for name in sizes if name.startswith(MESSAGES)}
    for axis, _, start in (log.removeprefix(MESSAGES).partition("-") for log in logs):
        floor = state["axes"][axis]["floor"]
        if isinstance(kind, RowWindow):
            held = kind.grid(state["channels"][int(axis)][2]).ends_of(int(start))
        elif isinstance(kind, HoppingWindow):
            held = kind.grid().ends_of(int(start))
        ends.update((axis, end) for end in held if floor is None or end > floor)
    starts = [end - kind.size_ms for _, end in ends] if isinstance(kind, HoppingWindow) else []
    return len(ends), sum(state["rows"].get(log, 0) for log in logs), min(starts, default=None)
