"""Lists the state of windows that keep their messages, by the ordinary operator opened read-only on its blobs.

Rule: listing changes nothing, and needs only a description of the plan and the blobs to list.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from keyedwm.core.errors import OptionError
from keyedwm.operators.messages.driver import MessageOperator, message_operator
from keyedwm.operators.messages.grid import HIGHEST, LOWEST
from keyedwm.operators.messages.store_description import plan_of, read_window
from keyedwm.operators.messages.window_content import Offsets
from keyedwm.operators.messages.windows import WindowKind, kind_of
from keyedwm.operators.state.blobs import damaged
from keyedwm.operators.state.manifest import MANIFEST
from keyedwm.operators.state.store import BlobStore

MESSAGES = "messages-"  # the beginning of the names of blobs of messages
ALL = (LOWEST, HIGHEST)
# The columns of windows after their key columns, and the columns that identify a window.
EDGES, CHANNEL, COMPLETE = ("start", "end"), ("topic", "partition"), "is_complete"
COUNTS = ("first_offset", "last_offset", "messages", "bytes")


class Listed(Protocol):
    """A store, or a side of a join."""

    def windows(self, *, by_key: bool) -> pa.Table:
        """Return the held windows: the columns of keys, EDGES, CHANNEL, HELD and COMPLETE."""

    def messages(self) -> pa.Table:
        """Return the messages that are held, as they came."""

    def oldest_offsets(self) -> Offsets:
        """Return for each channel the offset from which its records must be read to rebuild the held messages."""


@dataclass(frozen=True, slots=True)
class ReadBlobs:
    """Blobs of a bucket that were read.

    sizes: the sizes of all its blobs. state: the content of its operator's manifest.
    """

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


class ListedInput:
    """The held messages of an input. of_keys: whether each window belongs to one key, which is listed with it."""

    def __init__(self, operator: MessageOperator, number: int = 0, *, of_keys: bool = False) -> None:
        self._operator, self._number, self._of_keys = operator, number, of_keys

    def windows(self, *, by_key: bool) -> pa.Table:
        """See `Listed`; windows that belong to one key are always listed with it."""
        columns = self._operator.inputs[self._number].columns
        listing = self._operator.windows(*ALL, by_key=by_key or self._of_keys, input_number=self._number)
        return without_channels(listing, columns.by, columns.record)

    def messages(self) -> pa.Table:
        """Return the messages that are held, as they came."""
        return self._operator.messages(ALL, {}, self._number)

    def oldest_offsets(self) -> Offsets:
        """See `Listed`; a channel whose oldest offset is its next offset has no held message."""
        following = self._operator.next_offsets(self._number)
        oldest = self._operator.oldest_offsets(self._number)
        return {channel: offset for channel, offset in oldest.items() if offset < following[channel]}


def listed_store(description: Mapping[str, Any], store: BlobStore) -> Listed:
    """Return the windows of a plan with this description."""
    return ListedInput(message_operator(plan_of(description), store), of_keys=kind_in(description).is_of_key)


def kind_in(description: Mapping[str, Any]) -> WindowKind:
    """Return the kind of the windows of a plan with this description."""
    return kind_of(read_window(description["window"]))


def check_by_key(kind: WindowKind) -> None:
    """Raise OptionError for by_key with windows that are listed key by key anyway."""
    if kind.is_of_key:
        raise OptionError(
            "windows of a key's messages, windows on demand, and sessions are listed key by key anyway: leave by_key "
            "out"
        )


def without_channels(listing: pa.Table, by: tuple[str, ...], record: tuple[str, str, str]) -> pa.Table:
    """Return windows without topic and partition among the keys, since every window has these columns."""
    keys = listing.column_names[: -len((*EDGES, *CHANNEL, *COUNTS, COMPLETE))]
    return listing.drop_columns([column for column, name in zip(keys, by, strict=False) if name in record[:2]])
