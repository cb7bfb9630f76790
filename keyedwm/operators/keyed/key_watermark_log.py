"""The stored watermarks of keys: a row for each owner and partition, in logs of the operator's state.

Rule: every number of a row only rises. So all rows of an owner and partition may be read, and the highest numbers
count. The watermark of an owner with one partition follows from its highest event time; with several partitions, or
idle keys, a row has it. A row that the floor has reached is ignored.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from keyedwm.arrow.columns import Flags, Ints, contiguous, ints
from keyedwm.operators.grouping import pair_groups
from keyedwm.operators.keyed.per_key import PerKey
from keyedwm.operators.keyed.watermark_key_slots import NEVER
from keyedwm.operators.results import CHANNEL, HIDDEN_PREFIX
from keyedwm.operators.state.hashed_keys import HASH, HashedKeys
from keyedwm.operators.state.keyed_log import KeyedRows
from keyedwm.operators.state.store import TableLogs
from keyedwm.operators.state.table import StateTable

OWN, _SEVERAL = "own", "-several"
KEYS_LOG = "__own"  # the column of a processor, which does not see it
DUE = f"{HIDDEN_PREFIX}due"
_HIGH, _OWN, _LAST_W = (f"{HIDDEN_PREFIX}{name}" for name in ("high", "own", "seen"))


def logs_named(name: str = OWN) -> tuple[str, str]:
    """Return the names of the logs of watermarks; name: the name of the first of them."""
    return name, f"{name}{_SEVERAL}"


def is_own(log: str, name: str = OWN) -> bool:
    """Return whether this is a log of watermarks; name: the name of the first of them."""
    return log in logs_named(name) or log.startswith(idle_prefix(name))


def idle_prefix(name: str = OWN) -> str:
    """Return the prefix of the logs with the times at which keys may be idle. name: the first log of watermarks."""
    return f"{name}-idle@"


class WatermarkKeyPlan(Protocol):
    """The plan of an operator whose keys have their own watermarks."""

    @property
    def owners(self) -> tuple[str, ...]:
        """The key columns that own a watermark."""

    @property
    def owner_fields(self) -> list[pa.Field]:
        """The key columns that own a watermark, with their Arrow types."""

    @property
    def channel(self) -> tuple[str, ...]:
        """The columns with the partition of a row; none if all partitions count as one."""


@dataclass(frozen=True, slots=True)
class KeyWatermarkRows(KeyedRows):
    """The keys are owners. own: the watermark, NEVER if it follows from the highest event time."""

    IDENTITY: ClassVar[tuple[str, ...]] = ("channels",)
    channels: Ints
    highs: Ints
    own: Ints
    last_w_ms: Ints


class KeyWatermarkLog:
    """The rows of one bucket."""

    def __init__(self, plan: WatermarkKeyPlan, per_key: PerKey, logs: TableLogs, name: str = OWN) -> None:
        self._single_log, self._several_log = (StateTable(logs, log, self._merge) for log in logs_named(name))
        self._owner_columns = plan.owners
        self._fields = plan.owner_fields
        self._lag_ms = per_key.lag_ms
        self._has_channel, self._has_idle = bool(plan.channel), per_key.idle_ms is not None
        self._lookups: list[tuple[pa.Table, Ints, Ints]] = []  # a table of a log, its matching rows and their owners
        self.floor_ms = NEVER

    @property
    def rows(self) -> int:
        """The number of rows that are held."""
        return self._single_log.rows + self._several_log.rows

    def find(self, owners: HashedKeys, first: int) -> KeyWatermarkRows:
        """Return the rows of the owners with a number from `first` on; an owner and partition may have several."""
        parts = []
        for table in self._tables():
            rows, numbers = owners.find(self._keys(table), ints(contiguous(table[HASH])), first)
            if len(rows):
                parts.append(self._read(table.drop_columns([*self._owner_columns, HASH]).take(pa.array(rows)), numbers))
                self._lookups.append((table, rows, numbers))
        return self._alive(KeyWatermarkRows.none().with_others(*parts))

    def every(self, owners: HashedKeys) -> KeyWatermarkRows:
        """Return all rows; their owners are numbered."""
        parts = [self._read(table, owners.numbers_of(table, is_hashed=True)) for table in self._tables()]
        return self._alive(KeyWatermarkRows.none().with_others(*parts))

    def write(self, owners: HashedKeys, rows: KeyWatermarkRows, is_single: Flags, has_rows: Flags) -> None:
        """Add all rows of the batch's owners. is_single: flags of rows that are the only row of their owner."""
        alive = np.maximum(rows.own, rows.highs - self._lag_ms) > self.floor_ms
        follows = is_single & (rows.own == rows.highs - self._lag_ms) & (not self._has_idle)
        if not self._has_channel and not self._has_idle:
            follows[:] = True
        for table, belongs in (
            (self._single_log, follows | self._has_idle),
            (self._several_log, ~follows & (not self._has_idle)),
        ):
            places = np.flatnonzero(alive & belongs)
            new = [self._rows_as_table(table, owners, rows.take_rows(places))] if len(places) else []
            self._add(table, new, has_rows)

    def sweep(self) -> None:
        """Forget the owners that the floor has reached, if that halves a log."""
        for table in (self._single_log, self._several_log):
            if parts := table.read():
                alive = self._merge(parts)
                if 2 * alive.num_rows <= table.rows:
                    table.replace(alive)

    def end(self) -> None:
        """Clear the state."""
        for table in (self._single_log, self._several_log):
            table.drop()

    def _merge(self, tables: Sequence[pa.Table]) -> pa.Table:
        """Merge parts of a log: keep the newest row of each owner and partition, unless the floor has reached it."""
        keys = HashedKeys(self._fields)
        parts = [self._read(table, keys.numbers_of(table, is_hashed=True)) for table in tables]
        rows = KeyWatermarkRows.none().with_others(*parts)
        _, codes = np.unique(rows.channels, return_inverse=True)
        ids, _, _ = pair_groups(codes, rows.keys, max(1, keys.count))
        last = np.empty(int(ids.max(initial=-1)) + 1, np.int64)
        last[ids] = np.arange(len(ids))
        log = self._several_log if _OWN in tables[0].column_names and not self._has_idle else self._single_log
        return self._rows_as_table(log, keys, self._alive(rows.take_rows(np.sort(last))))

    def _tables(self) -> Iterator[pa.Table]:
        for one in (self._single_log, self._several_log):
            yield from (table for table in one.read() if table.num_rows)

    def _keys(self, table: pa.Table) -> list[pa.Array]:
        return [contiguous(table[name]) for name in self._owner_columns]

    def _add(self, log: StateTable, new: list[pa.Table], has_rows: Flags) -> None:
        """Append rows, or rewrite the log if the new rows replace at least half of it."""
        places = {id(table): at for at, table in enumerate(log.read())}
        old_rows: dict[int, list[Ints]] = {at: [] for at in places.values()}
        for table, rows, numbers in self._lookups:
            if id(table) in places:  # else it was merged with others
                old_rows[places[id(table)]].append(rows[has_rows[numbers]])
        outdated = sum(len(rows) for of_table in old_rows.values() for rows in of_table)
        if not outdated or 2 * outdated < log.rows:
            for table in new:
                log.add(table)
            return
        log.replace(*log.without(old_rows), *new)

    def _alive(self, rows: KeyWatermarkRows) -> KeyWatermarkRows:
        alive = np.maximum(rows.own, rows.highs - self._lag_ms) > self.floor_ms
        return rows.where(alive)

    def _read(self, table: pa.Table, owners: Ints) -> KeyWatermarkRows:
        def column(name: str, missing: Ints) -> Ints:
            return ints(contiguous(table[name])) if name in table.column_names else missing

        highs, nothing = ints(contiguous(table[_HIGH])), np.full(table.num_rows, NEVER)
        channels, own = column(CHANNEL, np.zeros(table.num_rows, np.int64)), column(_OWN, highs - self._lag_ms)
        return KeyWatermarkRows(owners, channels, highs, own, column(_LAST_W, nothing))

    def _rows_as_table(self, log: StateTable, owners: HashedKeys, rows: KeyWatermarkRows) -> pa.Table:
        columns = {HASH: pa.array(owners.hashes[rows.keys]), _HIGH: pa.array(rows.highs)}
        if self._has_channel:
            columns[CHANNEL] = _few_values(rows.channels)
        if log is self._several_log or self._has_idle:
            columns[_OWN] = pa.array(rows.own)
        if self._has_idle:
            columns[_LAST_W] = pa.array(rows.last_w_ms)
        table = pa.Table.from_arrays(owners.columns(rows.keys), schema=pa.schema(self._fields))
        for name, values in columns.items():
            table = table.append_column(name, values)
        return table


def _few_values(values: Ints) -> pa.Array:
    """Return a column with few different values, stored in one or two bytes each."""
    coded = pc.dictionary_encode(pa.array(values))
    width = pa.int8() if len(coded.dictionary) < 2**7 else pa.int16() if len(coded.dictionary) < 2**15 else pa.int32()
    return pa.DictionaryArray.from_arrays(coded.indices.cast(width), coded.dictionary)
