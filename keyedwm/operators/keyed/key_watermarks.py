"""The watermarks that keys have of their own: how far each has come, in a log of the operator's state.

Rule: what counts of a key is the higher of its own watermark and the floor (`W - behind`), so a key that the floor has
reached means nothing and is forgotten, sooner or later, without a trace. A batch reads the rows of the keys that it
asks for, which lie in order of a hash of the key, and appends rows of those that it brought; of several rows of a key
and partition the newest one counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from keyedwm.arrow.columns import Flags, Ints, contiguous, ints
from keyedwm.arrow.hashing import hashed_rows
from keyedwm.operators.keyed.per_key import PerKey
from keyedwm.operators.names import CHANNEL, HIDDEN
from keyedwm.operators.state.key_dictionary import KeyDictionary, key_columns
from keyedwm.operators.state.store import TableLogs
from keyedwm.runtime.compiled import compiled

OWN = "own"
# Before every event time, and far enough from the end of 64 bits to be added to.
NEVER = -(2**54)
_HASH, _HIGH, _OWN, _SEEN = (f"{HIDDEN}{name}" for name in ("hash", "high", "own", "seen"))
# The log is looked over for keys to forget whenever the floor has risen by this part of `behind`.
_SWEEPS = 4
_NONE = np.empty(0, np.int64)


class OwnersPlan(Protocol):
    """The plan of an operator whose keys have watermarks of their own."""

    @property
    def owners(self) -> tuple[str, ...]:
        """The key columns that own a watermark."""

    @property
    def owner_fields(self) -> list[pa.Field]:
        """The same with their types."""

    @property
    def channel(self) -> tuple[str, ...]:
        """The columns that tell the partition of a row, none where partitions are not told apart."""


class KeyWatermarks:
    """Owners by number, and of each that was asked for: its watermark, its highest event time, and W when rows came.

    A slot is an owner and a partition that brought it; slots are in order of owner and partition.
    """

    def __init__(self, plan: OwnersPlan, per_key: PerKey, logs: TableLogs, state: Mapping[str, Any]) -> None:
        self._by = plan.owners
        self._fields = plan.owner_fields
        self._names = _names(plan, per_key)
        self._schema = pa.schema([*self._fields, *((name, pa.int64()) for name in self._names)])
        self._logs = logs
        self._lag_ms, self._behind_ms, self._idle_ms = per_key.lag_ms, per_key.behind_ms, per_key.idle_ms
        self._owners = KeyDictionary(self._fields)
        self._known = 0  # owners with a number below this one were looked up
        self._hashes = _NONE
        self._mapped: tuple[KeyDictionary, Ints] | None = None  # the owner of each key that was asked for last
        self._slot_owners, self._slot_channels, self._slot_highs = _NONE, _NONE, _NONE
        self._own, self._seen = _NONE, _NONE
        self._floor_ms = self._front_ms = NEVER
        self._swept_ms, self._first_ms = state.get("own_swept_ms", NEVER), state.get("own_first_ms", NEVER)

    @property
    def front_ms(self) -> int:
        """W, below every event time if there is none."""
        return self._front_ms

    def state(self) -> dict[str, Any]:
        """What must be known beside the log, ready for JSON."""
        return {"own_swept_ms": self._swept_ms, "own_first_ms": self._first_ms}

    @staticmethod
    def owns(log: str) -> bool:
        """Return whether this is the log of watermarks."""
        return log == OWN

    def rise(self, floor_ms: int | None) -> None:
        """Take the floor; forget keys now and then, which the floor has reached."""
        if floor_ms is None:
            return
        self._floor_ms, self._front_ms = floor_ms, floor_ms + self._behind_ms
        self._mapped = None  # keys may have other numbers since
        if self._first_ms == NEVER:
            self._swept_ms, self._first_ms = floor_ms, self._front_ms
        if floor_ms - self._swept_ms >= max(1, self._behind_ms // _SWEEPS):
            self._swept_ms = floor_ms
            tables = self._logs.read(OWN)
            if tables:
                alive = self.merge(tables)
                if 2 * alive.num_rows <= sum(table.num_rows for table in tables):
                    self._logs.drop(OWN)
                    if alive.num_rows:
                        self._logs.append(OWN, alive)

    def end(self) -> None:
        """Keep nothing."""
        self._logs.drop(OWN)

    def places(self, keys: KeyDictionary, by: Sequence[str], owners: Ints) -> Ints:
        """Return where the owner of each key stands among these, -1 where it does not; nothing is looked up."""
        among = KeyDictionary(self._fields)
        among.numbers(self._owners.wide_columns(owners), len(owners))
        columns = dict(zip(by, keys.wide_columns(np.arange(keys.count)), strict=True))
        places = among.numbers([columns[name] for name in self._by], keys.count)
        return np.where(places < len(owners), places, -1)

    def numbers(self, columns: Sequence[pa.Array], rows: int) -> Ints:
        """Return the number of the owner of each row, and look up those that are new."""
        numbers = self._owners.numbers(columns, rows)
        self._look_up()
        return numbers

    def of_keys(self, keys: KeyDictionary, by: Sequence[str], numbers: Ints) -> Ints:
        """Return the owners of keys; by: the key columns."""
        if self._mapped is None or self._mapped[0] is not keys or len(self._mapped[1]) != keys.count:
            columns = dict(zip(by, keys.wide_columns(np.arange(keys.count)), strict=True))
            self._mapped = keys, self.numbers([columns[name] for name in self._by], keys.count)
        return self._mapped[1][numbers]

    def reached(self) -> Ints:
        """Return what counts for each owner: its own watermark, W if it is idle, or the floor."""
        return np.maximum(self._effective(), self._floor_ms)

    def recorded(self) -> Ints:
        """Return what counts for each owner, but that an idle one counts by its own watermark still."""
        return np.maximum(self._own, self._floor_ms)

    def tops(self) -> Ints:
        """Return the highest event time that may be held of each owner."""
        tops = np.full(self._known, NEVER if self._floor_ms == NEVER else self._floor_ms + self._lag_ms)
        np.maximum.at(tops, self._slot_owners, self._slot_highs)
        return tops

    def advance(self, owners: Ints, channels: Ints | None, times: Ints, *, row_by_row: bool) -> Ints:
        """Take the event times of rows, or the highest ones of partials; return what counted before each of them.

        That is what counted before all of them, but for `row_by_row`.
        """
        self._mapped = None  # as in `rise`
        channels = np.zeros(len(owners), np.int64) if channels is None else channels
        slots = self._with_slots(owners, channels)
        first = np.searchsorted(self._slot_owners, np.arange(self._known + 1))
        own = self._effective()
        before = follow(owners, slots, times, first, self._slot_highs, own, self._floor_ms, self._lag_ms, row_by_row)
        touched = np.zeros(self._known, np.bool_)
        touched[owners] = True
        changed = np.flatnonzero(touched)
        self._own[changed] = own[changed]
        self._seen[changed] = self._front_ms
        self._write(touched)
        return before

    def idle(self, done_ms: Callable[[Ints], Ints]) -> Ints:
        """Return the owners that are idle and may have something open up to W.

        done_ms: from their highest event times, when nothing of them is held any more. Their watermarks go no further,
        so idle keys are forgotten as others are.
        """
        if self._idle_ms is None or self._front_ms == NEVER:
            return _NONE
        tables = [table for table in self._logs.read(OWN) if table.num_rows]
        if not tables:
            return _NONE
        table = pa.concat_tables(tables)
        columns = [ints(contiguous(table[name])) for name in (_HASH, _HIGH, _OWN, _SEEN)]
        _, first, at = np.unique(columns[0], return_index=True, return_inverse=True)
        high, own, seen = (np.full(len(first), NEVER) for _ in range(3))
        for highest, column in zip((high, own, seen), columns[1:], strict=True):
            np.maximum.at(highest, at, column)
        idle = self._is_idle(np.maximum(own, high - self._lag_ms), seen)
        idle &= np.minimum(self._front_ms, done_ms(high)) > own
        chosen = table.take(pa.array(first[idle]))
        return np.unique(self.numbers(key_columns(self._by, chosen), chosen.num_rows))

    def close_idle(self, owners: Ints, done_ms: Callable[[Ints], Ints]) -> None:
        """Note that W has closed what these idle owners had open, see `idle`."""
        closed_ms = np.minimum(self._front_ms, done_ms(self.tops()[owners]))
        self._own[owners] = np.maximum(self._own[owners], closed_ms)
        touched = np.zeros(self._known, np.bool_)
        touched[owners] = True
        self._write(touched)

    def merge(self, tables: Sequence[pa.Table]) -> pa.Table:
        """Merge parts of the log: of each owner and partition the newest row, if the floor has not reached it."""
        table = pa.concat_tables(tables)
        keys = KeyDictionary(self._fields)
        numbers = keys.numbers(key_columns(self._by, table), table.num_rows)
        channels = self._column(table, CHANNEL)
        order = np.lexsort((channels, numbers))
        last = np.append((np.diff(numbers[order]) != 0) | (np.diff(channels[order]) != 0), True)[: len(order)]
        newest = table.take(pa.array(order[last]))
        newest = newest.take(pa.array(np.flatnonzero(self._alive(newest))))
        return newest.take(pa.array(np.argsort(ints(contiguous(newest[_HASH])), kind="stable"))).combine_chunks()

    def _effective(self) -> Ints:
        """The watermark of each owner, that of an idle one W; those that the floor has reached are as if new."""
        own = self._own.copy()
        if self._idle_ms is not None:
            idle = self._is_idle(np.maximum(own, self.tops() - self._lag_ms), self._seen)
            own[idle] = np.maximum(own[idle], self._front_ms)
        return own

    def _is_idle(self, reach: Ints, seen: Ints) -> Flags:
        """Which owners are idle: the floor has not reached them, and W rose by so much since rows came of them."""
        rose_ms = self._front_ms - np.maximum(seen, self._first_ms)
        return (reach > self._floor_ms) & (rose_ms >= (self._idle_ms or 0)) & (self._front_ms > NEVER)

    def _look_up(self) -> None:
        """Read what the log holds of owners that have no slots yet."""
        count = self._owners.count
        if count == self._known:
            return
        new = np.arange(self._known, count)
        hashes = hashed_rows(self._owners.wide_columns(new), len(new)).view(np.int64)
        self._hashes = np.concatenate([self._hashes, hashes])
        self._own, self._seen = (np.concatenate([one, np.full(len(new), NEVER)]) for one in (self._own, self._seen))
        first, self._known = self._known, count
        wanted = np.unique(hashes)
        found = [_rows_of(table, wanted) for table in self._logs.read(OWN) if table.num_rows]
        table = pa.concat_tables(found) if found else self._schema.empty_table()
        if not table.num_rows:
            return
        table = table.filter(pa.array(self._alive(table)))
        owners = self._owners_of(table, new)
        mine = np.flatnonzero((owners >= first) & (owners < count))
        table, owners = table.take(pa.array(mine)), owners[mine]
        slots = self._with_slots(owners, self._column(table, CHANNEL))
        np.maximum.at(self._slot_highs, slots, self._column(table, _HIGH))
        np.maximum.at(self._own, owners, self._own_of(table))
        np.maximum.at(self._seen, owners, self._column(table, _SEEN))

    def _owners_of(self, table: pa.Table, new: Ints) -> Ints:
        """Return the owners of rows that were found by their hash, which are theirs unless two keys have one hash."""
        by_hash = new[np.argsort(self._hashes[new], kind="stable")]
        at = np.searchsorted(self._hashes[by_hash], ints(contiguous(table[_HASH])))
        owners = by_hash[np.minimum(at, len(by_hash) - 1)]
        columns = zip(key_columns(self._by, table), self._owners.wide_columns(owners), strict=True)
        if all(pc.all(pc.equal(one, other), skip_nulls=False).as_py() for one, other in columns):
            return owners
        return self._owners.numbers(key_columns(self._by, table), table.num_rows)

    def _with_slots(self, owners: Ints, channels: Ints) -> Ints:
        """Return the slot of each (owner, partition), which may be a new one."""
        held = len(self._slot_owners)
        all_owners = np.concatenate([self._slot_owners, owners])
        all_channels = np.concatenate([self._slot_channels, channels])
        order = np.lexsort((all_channels, all_owners))
        begins = np.append(True, (np.diff(all_owners[order]) != 0) | (np.diff(all_channels[order]) != 0))[: len(order)]
        slots = np.empty(len(order), np.int64)
        slots[order] = np.cumsum(begins) - 1
        highs = np.full(int(begins.sum()), NEVER)
        highs[slots[:held]] = self._slot_highs
        self._slot_owners, self._slot_channels = all_owners[order][begins], all_channels[order][begins]
        self._slot_highs = highs
        return slots[held:]

    def _write(self, touched: Flags) -> None:
        """Append the slots of touched owners, but for those that the floor has reached already."""
        chosen = touched[self._slot_owners]
        chosen &= np.maximum(self._own[self._slot_owners], self._slot_highs - self._lag_ms) > self._floor_ms
        places = np.flatnonzero(chosen)
        places = places[np.argsort(self._hashes[self._slot_owners[places]], kind="stable")]
        if not len(places):
            return
        owners = self._slot_owners[places]
        columns = {
            _HASH: self._hashes[owners], _HIGH: self._slot_highs[places], CHANNEL: self._slot_channels[places],
            _OWN: self._own[owners], _SEEN: self._seen[owners],
        }  # fmt: skip
        others = [pa.array(columns[name]) for name in self._names]
        self._logs.append(OWN, pa.Table.from_arrays([*self._owners.columns(owners), *others], schema=self._schema))

    def _alive(self, table: pa.Table) -> Flags:
        return np.maximum(self._own_of(table), self._column(table, _HIGH) - self._lag_ms) > self._floor_ms

    def _own_of(self, table: pa.Table) -> Ints:
        return self._column(table, _OWN) if _OWN in self._names else self._column(table, _HIGH) - self._lag_ms

    def _column(self, table: pa.Table, name: str) -> Ints:
        if name in self._names:
            return ints(contiguous(table[name]))
        return np.full(table.num_rows, 0 if name == CHANNEL else NEVER)


def _names(plan: OwnersPlan, per_key: PerKey) -> list[str]:
    """The columns beside the owner's: without partitions and idle keys, a watermark follows from the event time."""
    has_idle = per_key.idle_ms is not None
    own = [_OWN] if plan.channel or has_idle else []
    return [_HASH, _HIGH, *([CHANNEL] if plan.channel else []), *own, *([_SEEN] if has_idle else [])]


def rescaled_state(state: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the facts of watermarks in a new bucket, from those of all old ones, which had the same W."""
    return {name: state[0][name] for name in ("own_swept_ms", "own_first_ms") if name in state[0]}


def _rows_of(table: pa.Table, wanted: Ints) -> pa.Table:
    """Return the rows of a table in order of hash whose hash is one of these, which are in order."""
    hashes = ints(contiguous(table[_HASH]))
    first, behind = np.searchsorted(hashes, wanted), np.searchsorted(hashes, wanted, side="right")
    count = behind - first
    places = np.repeat(first - np.append(0, np.cumsum(count)[:-1]), count) + np.arange(count.sum())
    return table.take(pa.array(places))


@compiled
def follow(  # noqa: PLR0917  a loop over plain arrays
    owners: Ints, slots: Ints, times: Ints, first: Ints, highs: Ints, own: Ints, floor: int, lag: int, row_by_row: bool
) -> Ints:  # fmt: skip
    """Raise the slots' highest event times and the owners' watermarks by rows; return what counted before each row.

    first: the first slot of each owner. An owner's watermark follows the lowest of its slots above the floor.
    """
    before = np.empty(owners.shape[0], np.int64)
    rounds = 1 if row_by_row else 2
    for turn in range(rounds):
        for at in range(owners.shape[0]):
            owner, slot = owners[at], slots[at]
            if turn == 0:
                before[at] = max(own[owner], floor)
                highs[slot] = max(highs[slot], times[at])
            if turn == rounds - 1:
                lowest = np.int64(2**62)
                for other in range(first[owner], first[owner + 1]):
                    if highs[other] - lag > floor:
                        lowest = min(lowest, highs[other] - lag)
                if lowest != np.int64(2**62):
                    own[owner] = max(own[owner], lowest)
    return before
