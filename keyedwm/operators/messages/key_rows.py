"""The counts of each key in each topic and partition, for windows that count a key's messages.

Rule: a key that behaves like a new one has no row, so closed windows leave nothing behind.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from keyedwm.arrow.columns import Flags, Ints
from keyedwm.operators.state.keyed_log import KeyedLog, KeyedRows
from keyedwm.operators.state.store import TableLogs

_CHANNELS = 2**20


@dataclass(frozen=True, slots=True)
class KeyPlaces(KeyedRows):
    """Keys on channels: number of messages so far, first and last offset held, and bytes held."""

    IDENTITY: ClassVar[tuple[str, ...]] = ("channels",)
    channels: Ints
    counts: Ints
    first: Ints
    last: Ints
    sizes: Ints

    @classmethod
    def of(cls, codes: Ints, counts: Ints, first: Ints, last: Ints, sizes: Ints) -> KeyPlaces:
        """Return the entries of these codes."""
        return cls(keys_of(codes), channels_of(codes), counts, first, last, sizes)

    @property
    def codes(self) -> Ints:
        """The number of the key and the number of the channel in one; codes mean nothing outside their log."""
        return self.keys * _CHANNELS + self.channels

    def is_alive(self) -> Flags:
        """An entry with count 0 is removed."""
        return self.counts > 0


class OpenKeys(KeyedLog[KeyPlaces]):
    """The counts of each key on each channel; a key that would behave like a new one is not stored."""

    def __init__(self, by: Sequence[pa.Field], logs: TableLogs, name: str) -> None:
        super().__init__(KeyPlaces, by, logs, name)

    def codes(self, rows: pa.Table, channels: Ints) -> Ints:
        """Return the codes of rows with the key columns."""
        return self.numbers(rows) * _CHANNELS + channels

    def places_of(self, codes: Ints) -> KeyPlaces:
        """Return the places of these codes, zeros for codes without messages."""
        at, known = _places(self.rows.codes, codes)
        counts, *columns = self.rows.columns()[2:]
        return KeyPlaces.of(codes, *(_where(known, column, at) for column in (counts, *columns)))

    def live(self, codes: Ints, offsets: Ints, has_messages: Flags) -> Flags:
        """Return which messages are still held. has_messages: flags of known keys with messages."""
        some = self.rows.take_rows(has_messages)
        at, known = _places(some.codes, codes)
        return known & (offsets >= _where(known, some.first, at))


def _places(known: Ints, codes: Ints) -> tuple[Ints, Flags]:
    """Return the places of codes among the known codes, which ascend, and flags of the known ones."""
    at = np.minimum(np.searchsorted(known, codes), max(len(known) - 1, 0))
    return at, known[at] == codes if len(known) else np.zeros(len(codes), np.bool_)


def _where(known: Flags, column: Ints, at: Ints) -> Ints:
    return np.where(known, column[at], 0) if len(column) else np.zeros(len(at), np.int64)


def channels_of(codes: Ints) -> Ints:
    """Return the number of the channel of each code."""
    return codes % _CHANNELS


def keys_of(codes: Ints) -> Ints:
    """Return the number of the key of each code."""
    return codes // _CHANNELS
