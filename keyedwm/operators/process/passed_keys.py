"""The keys of rows that passed, with their event times, for as long as a row may repeat them.

Rule: a log holds the keys of a slice of event time. A slice with many keys continues in more logs, each for some of the
hashes; earlier logs are not rewritten. A batch reads only the logs that can have its times and hashes, and a slice is
dropped without reading it. Slices farther ahead of the watermark are wider, so that their number is bounded for any
`within`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from keyedwm.arrow.columns import Ints, as_key, contiguous, ints, sorted_distinct
from keyedwm.arrow.hashing import hashed_rows
from keyedwm.core.lateness import has_ended
from keyedwm.operators.process.processor import ProcessState
from keyedwm.operators.state.key_dictionary import key_columns

NOT_PASSED = np.int64(-(2**63))
# The columns of a log beside the keys.
STATE_COLUMNS = ("__passed_ms", "__passed_hash")
_MS, _HASH = STATE_COLUMNS
_LOG = "passed"
_BITS, _ALL_BITS = 4, 64
_SLICES = 8


class PassedRows(NamedTuple):
    """Rows that passed: their keys, as `key_columns` gives them, and event times."""

    keys: list[pa.Array]
    times: Ints


class _Log(NamedTuple):
    """A log: the keys of `[low_ms, low_ms + width_ms)` whose hash begins with `begin`, 4 bits for each level."""

    low_ms: int
    width_ms: int
    level: int
    begin: int

    @property
    def name(self) -> str:
        return f"{_LOG}:{self.low_ms}:{self.width_ms}:{self.level}:{self.begin}"

    @classmethod
    def of(cls, name: str) -> _Log:
        return cls(*map(int, name.split(":")[1:]))


class PassedKeys:
    """The keys that passed, in the state of one bucket."""

    def __init__(self, state: ProcessState, fields: Sequence[pa.Field]) -> None:
        self._state = state
        self._names = [field.name for field in fields]
        self._fields = fields

    def near(self, keys: Sequence[pa.Array], times: Ints, within_ms: int) -> PassedRows:
        """Return rows that passed within `within_ms` of these rows, and perhaps further rows of their keys."""
        hashes, in_order = sorted_distinct(hashed_rows(keys, len(times)).view(np.int64)), np.sort(times)
        tables = [self._of(log, hashes) for log in self._logs() if _in_reach(log, in_order, within_ms)]
        table = pa.concat_tables([self._empty(), *tables])
        return PassedRows(key_columns(self._names, table), ints(contiguous(table[_MS])))

    def add(self, rows: pa.Table, times: Ints, within_ms: int, from_ms: int) -> None:
        """Add rows that passed. from_ms: the watermark, or without one the first of their times."""
        columns = [rows[name] for name in self._names]
        columns = [as_key(contiguous(one)) if pa.types.is_floating(one.type) else one for one in columns]
        table = pa.table(columns, self._names)
        hashes = hashed_rows(key_columns(self._names, table), len(times)).view(np.int64)
        table = table.append_column(_MS, pa.array(times)).append_column(_HASH, pa.array(hashes))
        widths_ms = self._widths_ms(times, within_ms, from_ms)
        rows_of_slice = self._rows_by_slice()
        lows_ms = times // widths_ms * widths_ms
        order = np.lexsort((lows_ms, widths_ms))
        begins = (np.diff(lows_ms[order]) != 0) | (np.diff(widths_ms[order]) != 0)
        for places in np.split(order, np.flatnonzero(begins) + 1):
            low_ms, width_ms = int(lows_ms[places[0]]), int(widths_ms[places[0]])
            level = _level(rows_of_slice.get((low_ms, width_ms), 0), self._state.limits.passed_keys)
            begins = _begins(hashes[places], level)
            for begin in sorted_distinct(begins).tolist():
                piece = table.take(pa.array(places[begins == begin]))
                self._state.append(_Log(low_ms, width_ms, level, begin).name, piece)

    def forget(self, below_ms: int) -> None:
        """Drop the slices that lie below a time."""
        for log in self._logs():
            if has_ended(log.low_ms + log.width_ms, below_ms):
                self._state.drop(log.name)

    def _logs(self) -> Iterator[_Log]:
        return map(_Log.of, self._state.logs(f"{_LOG}:"))

    def _of(self, log: _Log, hashes: Ints) -> pa.Table:
        """Return the rows of a log with one of these hashes, which ascend."""
        if log.level:
            hashes = hashes[_begins(hashes, log.level) == log.begin]
        table = self._state.read(log.name) if len(hashes) else None
        if table is None:
            return self._empty()
        row_hashes = ints(contiguous(table[_HASH]))
        places = np.minimum(np.searchsorted(hashes, row_hashes), len(hashes) - 1)
        return table.filter(pa.array(hashes[places] == row_hashes))

    def _widths_ms(self, times: Ints, within_ms: int, from_ms: int) -> Ints:
        """Return the width of each row's slice: a power of two times the smallest, so that few slices precede it.

        With powers of two batches share slices and there are few widths. A row far ahead, whose time may be wrong, gets
        its own wide slice: the slices of other rows stay narrow and are dropped as early as without it.
        """
        narrow_ms = max(1, within_ms // _SLICES)
        ahead = np.maximum(times - from_ms, 0) // (narrow_ms * self._state.limits.passed_slices)
        _, doubled = np.frexp(ahead.astype(np.float64))  # the number of bits
        return narrow_ms << doubled.astype(np.int64)

    def _rows_by_slice(self) -> dict[tuple[int, int], int]:
        """Return how many keys each slice holds."""
        rows_of_slice: dict[tuple[int, int], int] = {}
        for log in self._logs():
            slice_of = log.low_ms, log.width_ms
            rows_of_slice[slice_of] = rows_of_slice.get(slice_of, 0) + self._state.count(log.name)
        return rows_of_slice

    def _empty(self) -> pa.Table:
        return pa.schema([*self._fields, (_MS, pa.int64()), (_HASH, pa.int64())]).empty_table()


def _level(rows: int, most: int) -> int:
    """Return the level at which a slice with `rows` keys continues: each level holds 16 times the one before.

    most: keys of a log of the first level.
    """
    level = 0
    while rows >= most << _BITS * level and level < _ALL_BITS // _BITS - 1:
        rows -= most << _BITS * level
        level += 1
    return level


def _begins(hashes: Ints, level: int) -> Ints:
    """Return the first bits of hashes, 4 for each level."""
    if not level:
        return np.zeros(len(hashes), np.int64)
    return (hashes.view(np.uint64) >> np.uint64(_ALL_BITS - _BITS * level)).astype(np.int64)


def _in_reach(log: _Log, times: Ints, within_ms: int) -> bool:
    """Return whether one of these times, which ascend, is at most `within_ms` from a time of the log."""
    first = np.searchsorted(times, log.low_ms - within_ms)
    return bool(first < len(times) and times[first] < log.low_ms + log.width_ms + within_ms)
