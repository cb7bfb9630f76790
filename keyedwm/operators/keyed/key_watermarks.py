"""The watermarks of single keys.

Rule: the effective watermark of a key is the higher of its own watermark and the floor (`W - behind`). So a key that
the floor has reached needs no row, and its rows are removed later. A batch finds the rows of its keys by their hash
(`key_watermark_log`), and writes those that it changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from keyedwm.arrow.columns import Column, Flags, Ints, contiguous, ints, sorted_distinct
from keyedwm.operators.batch_figures import KeyWatermarkSummary
from keyedwm.operators.keyed.idle_log import IdleLog
from keyedwm.operators.keyed.key_census import KeyCensus, slowest
from keyedwm.operators.keyed.key_watermark_log import OWN, KeyWatermarkLog, KeyWatermarkRows, WatermarkKeyPlan
from keyedwm.operators.keyed.per_key import PerKey
from keyedwm.operators.keyed.watermark_key_slots import NEVER, WatermarkKeySlots
from keyedwm.operators.state.hashed_keys import HASH, HashedKeys, by_hash, hash_of
from keyedwm.operators.state.key_dictionary import KeyDictionary, key_columns
from keyedwm.operators.state.store import TableLogs

__all__ = ["NEVER", "KeyWatermarks", "rescaled_state"]
# The log is searched for keys to forget whenever the floor has risen by this part of `behind`.
_SWEEPS = 4
_NONE = np.empty(0, np.int64)


class KeyWatermarks:
    """Owners by number; for each requested owner its watermark, its highest event time, and W at its last rows."""

    def __init__(
        self, plan: WatermarkKeyPlan, per_key: PerKey, logs: TableLogs, state: Mapping[str, Any], log: str = OWN
    ) -> None:
        """log: the name of the first log of watermarks."""
        self._owner_columns = plan.owners
        self._log = KeyWatermarkLog(plan, per_key, logs, log)
        self._lag_ms, self._behind_ms, self._idle_ms = per_key.lag_ms, per_key.behind_ms, per_key.idle_ms
        self.owners = HashedKeys(plan.owner_fields)
        self._known = 0  # owners with a lower number were looked up
        self._slots = WatermarkKeySlots()
        self._owners_of_keys: tuple[KeyDictionary, Ints] | None = None  # the owner of each key of the last request
        self._own, self._last_w_ms = _NONE, _NONE
        self._floor_ms = self._front_ms = NEVER
        self._swept_ms, self._first_ms = state.get("own_swept_ms", NEVER), state.get("own_first_ms", NEVER)
        self._census_state = state.get("census")
        self._idle_log = None if per_key.idle_ms is None else IdleLog(plan, per_key.idle_ms, logs, state, log)
        self._census: KeyCensus | None = None

    @property
    def front_ms(self) -> int:
        """W, below every event time if there is none."""
        return self._front_ms

    @property
    def count(self) -> int:
        """The number of requested owners."""
        return self._known

    def state(self) -> dict[str, Any]:
        """The state beside the log, ready for JSON."""
        idle = {} if self._idle_log is None else self._idle_log.state()
        return {"own_swept_ms": self._swept_ms, "own_first_ms": self._first_ms, "census": self.census.state(), **idle}

    @property
    def census(self) -> KeyCensus:
        """The figures of the keys; counted from the log if the state has none (moved, or of an older version)."""
        if self._census is None:
            self._census = KeyCensus(self._behind_ms, self._census_state or {})
            if self._census_state is None and self._log.rows:
                self._census.count_move(_NONE, self.live_keys()[1], self._floor_ms)
        return self._census

    def key_summary(self) -> KeyWatermarkSummary:
        """Return the figures of the keys at the end of a batch."""
        return self.census.batch(self._front_ms)

    def live_keys(self) -> tuple[list[pa.Array], Ints]:
        """Return all keys that are held, their columns and their own watermarks; the whole log is read."""
        rows = self._log.every(keys := HashedKeys(self.owners.fields))
        own = np.full(keys.count, NEVER)
        np.maximum.at(own, rows.keys, rows.own)
        alive = np.flatnonzero(own > self._floor_ms)
        return keys.wide_columns(alive), own[alive]

    def count_dropped(self, owners: Ints, rows: Ints) -> None:
        """Count dropped rows of owners."""
        of_owner = np.bincount(owners, rows, self._known).astype(np.int64)
        some = np.flatnonzero(of_owner)
        self.census.count_dropped(self.owners.wide_columns(some), of_owner[some])

    def columns(self, owners: Ints) -> list[Column]:
        """Return the columns of these owners."""
        return self.owners.columns(owners)

    def rise(self, floor_ms: int | None) -> None:
        """Apply the floor; from time to time forget the keys that the floor has reached."""
        if floor_ms is None:
            return
        self._floor_ms, self._front_ms = floor_ms, floor_ms + self._behind_ms
        self._owners_of_keys = None  # keys may have got other numbers
        self._log.floor_ms = floor_ms
        self.census.rise(floor_ms)
        if self._first_ms == NEVER:
            self._swept_ms, self._first_ms = floor_ms, self._front_ms
        if floor_ms - self._swept_ms >= max(1, self._behind_ms // _SWEEPS):
            self._swept_ms = floor_ms
            self._log.sweep()

    def end(self) -> None:
        """Clear the state."""
        self._log.end()
        if self._idle_log is not None:
            self._idle_log.end()
        self._census = KeyCensus(self._behind_ms, {})

    def number_rows(self, rows: pa.Table, *, in_order: bool) -> tuple[pa.Table, Ints]:
        """Return rows and their owners. in_order: keep the order of the rows, else sort them by the owners' hashes."""
        columns = key_columns(self._owner_columns, rows)
        hashes = hash_of(columns, rows.num_rows)
        if not in_order:
            order = by_hash(hashes)
            places, hashes = pa.array(order), hashes[order]
            rows, columns = rows.combine_chunks().take(places), [column.take(places) for column in columns]
        return rows, self.numbers(columns, rows.num_rows, hashes)

    def numbers(self, columns: Sequence[pa.Array], rows: int, hashes: Ints | None = None) -> Ints:
        """Return the number of the owner of each row; look up new owners. hashes: of the rows, None if unknown."""
        numbers = self.owners.numbers(columns, rows, hashes)
        self._look_up()
        return numbers

    def owners_of(self, rows: pa.Table) -> Ints:
        """Return the number of the owner of each stored row, which has its `HASH`; look up new owners."""
        numbers = self.owners.numbers_of(rows, is_hashed=True)
        self._look_up()
        return numbers

    def owners_of_keys(self, keys: KeyDictionary, by: Sequence[str], numbers: Ints) -> Ints:
        """Return the owners of keys; by: the key columns."""
        if keys is self.owners:
            self._look_up()
            return numbers
        if (
            self._owners_of_keys is None
            or self._owners_of_keys[0] is not keys
            or len(self._owners_of_keys[1]) != keys.count
        ):
            columns = dict(zip(by, keys.wide_columns(np.arange(keys.count)), strict=True))
            self._owners_of_keys = keys, self.numbers([columns[name] for name in self._owner_columns], keys.count)
        return self._owners_of_keys[1][numbers]

    def find(self, table: pa.Table, is_asked: Flags | None) -> tuple[Ints, Ints]:
        """Return the rows of looked-up owners, and their owners. is_asked: flags of the owners to find, None for all.

        table: rows with the columns of their owners, and HASH.
        """
        keys = [contiguous(table[name]) for name in self._owner_columns]
        rows, owners = self.owners.find(keys, ints(contiguous(table[HASH])))
        is_known = owners < (self._known if is_asked is None else len(is_asked))
        rows, owners = rows[is_known], owners[is_known]
        if is_asked is None:
            return rows, owners
        return rows[is_asked[owners]], owners[is_asked[owners]]

    def hashes(self, keys: KeyDictionary, by: Sequence[str], numbers: Ints) -> Ints:
        """Return the hashes of the owners of keys, without a look-up; by: the key columns."""
        if isinstance(keys, HashedKeys) and tuple(by) == self._owner_columns:
            return keys.hashes[numbers]
        columns = dict(zip(by, keys.wide_columns(np.arange(keys.count)), strict=True))
        return hash_of([columns[name] for name in self._owner_columns], keys.count)[numbers]

    def effective_ms(self) -> Ints:
        """Return the effective watermark of each owner: its own, W if it is idle, or the floor."""
        return np.maximum(self._effective(), self._floor_ms)

    def stored_ms(self) -> Ints:
        """Return the effective watermark of each owner, but for an idle owner its own watermark."""
        return np.maximum(self._own, self._floor_ms)

    def tops(self) -> Ints:
        """Return the highest event time of each owner of which the state may hold a row."""
        tops = np.full(self._known, NEVER if self._floor_ms == NEVER else self._floor_ms + self._lag_ms)
        np.maximum.at(tops, self._slots.owners, self._slots.highs)
        return tops

    def advance(self, owners: Ints, channels: Ints | None, times: Ints, *, row_by_row: bool) -> Ints:
        """Apply event times of rows, or highest ones of partials; return the effective watermark before each.

        Without `row_by_row`: the effective watermark before all of the rows.
        """
        self._owners_of_keys = None  # as in `rise`
        channels = np.zeros(len(owners), np.int64) if channels is None else channels
        slots, own = self._slots.slots_of(owners, channels, self._known), self._effective()
        has_rows = self._flags(owners)
        self._wake(has_rows)
        before = self._slots.follow(owners, slots, times, own, self._floor_ms, self._lag_ms, row_by_row=row_by_row)
        self.census.count_move(self._own[has_rows], own[has_rows], self._floor_ms)
        live_owners = np.flatnonzero(has_rows & (own > self._floor_ms))
        slow = live_owners[slowest(own[live_owners])]
        self.census.note_slowest(self.owners.wide_columns(slow), own[slow])
        self._own = np.where(has_rows, own, self._own)
        self._last_w_ms[has_rows] = self._front_ms
        self._write(has_rows)
        return before

    def idle_owners(self, done_ms: Callable[[Ints], Ints]) -> Ints:
        """Return the owners that are idle and may have a window open up to W.

        done_ms: computes from highest event times the times from which no row is held. The owners' watermarks do not
        rise, so idle keys are forgotten like other keys.
        """
        owners = self._perhaps_idle()
        if not len(owners) or self._idle_log is None:
            return _NONE
        highs = np.full(self._known, NEVER)
        np.maximum.at(highs, self._slots.owners, self._slots.highs)
        own, last_w_ms, until_ms = self._own[owners], self._last_w_ms[owners], done_ms(highs[owners])
        reach = np.maximum(own, highs[owners] - self._lag_ms)
        idle = self._is_idle(reach, last_w_ms)
        # Owners with windows open beyond W are examined again with the next W.
        again_ms = np.where(idle, self._front_ms + 1, np.maximum(last_w_ms, self._first_ms) + (self._idle_ms or 0))
        again = np.flatnonzero((reach > self._floor_ms) & (~idle | (until_ms > self._front_ms)))
        self._idle_log.add(self.owners, owners[again], again_ms[again])
        return owners[idle & (np.minimum(self._front_ms, until_ms) > own)]

    def close_idle(self, owners: Ints, done_ms: Callable[[Ints], Ints]) -> None:
        """Note that W has closed the open windows of these idle owners, see `idle_owners`."""
        closed_ms = np.minimum(self._front_ms, done_ms(self.tops()[owners]))
        before = self._own[owners]
        self._own[owners] = np.maximum(before, closed_ms)
        self.census.count_move(before, self._own[owners], self._floor_ms)
        self._write(self._flags(owners))

    def _perhaps_idle(self) -> Ints:
        """Return the owners that may be idle now, and were not idle at the W before."""
        if self._idle_log is None or self._front_ms == NEVER:
            return _NONE
        tables = self._idle_log.pop_due(self._front_ms)
        if tables is None:  # state that has no entries yet
            self._log.every(keys := HashedKeys(self.owners.fields))
            return sorted_distinct(self.numbers(keys.wide_columns(np.arange(keys.count)), keys.count, keys.hashes))
        due_owners = [self.owners_of(table) for table in tables]
        return sorted_distinct(np.concatenate(due_owners)) if due_owners else _NONE

    def _wake(self, has_rows: Flags) -> None:
        """Note when these owners may be idle next, if the log does not have it: they are new, or were idle."""
        if self._idle_log is None:
            return
        reach = np.maximum(self._own, self.tops() - self._lag_ms)
        woken = np.flatnonzero(has_rows & ((reach <= self._floor_ms) | self._is_idle(reach, self._last_w_ms)))
        due_ms = NEVER if self._front_ms == NEVER else self._front_ms + (self._idle_ms or 0)
        self._idle_log.add(self.owners, woken, np.full(len(woken), due_ms))

    def _flags(self, owners: Ints) -> Flags:
        flags = np.zeros(self._known, np.bool_)
        flags[owners] = True
        return flags

    def _effective(self) -> Ints:
        """The watermark of each owner, W for an idle owner; owners that the floor has reached count as new."""
        own = self._own.copy()
        if self._idle_ms is not None:
            idle = self._is_idle(np.maximum(own, self.tops() - self._lag_ms), self._last_w_ms)
            own[idle] = np.maximum(own[idle], self._front_ms)
        return own

    def _is_idle(self, reach: Ints, last_w_ms: Ints) -> Flags:
        """Return whether each owner is idle: the floor has not reached it, and W rose by `idle` since its last rows."""
        rose_ms = self._front_ms - np.maximum(last_w_ms, self._first_ms)
        return (reach > self._floor_ms) & (rose_ms >= (self._idle_ms or 0)) & (self._front_ms > NEVER)

    def _look_up(self) -> None:
        """Read the log's rows of owners that have no slots yet."""
        first, self._known = self._known, self.owners.count
        if first == self._known:
            return
        nothing = np.full(self._known - first, NEVER)
        self._own, self._last_w_ms = np.concatenate([self._own, nothing]), np.concatenate([self._last_w_ms, nothing])
        log_rows = self._log.find(self.owners, first)
        self._slots.raise_to(self._slots.slots_of(log_rows.keys, log_rows.channels, self._known), log_rows.highs)
        np.maximum.at(self._own, log_rows.keys, log_rows.own)
        np.maximum.at(self._last_w_ms, log_rows.keys, log_rows.last_w_ms)

    def _write(self, has_rows: Flags) -> None:
        """Write the slots of owners that changed."""
        slots = self._slots
        slot_numbers = np.flatnonzero(has_rows[slots.owners])
        owners = slots.owners[slot_numbers]
        rows = KeyWatermarkRows(
            owners, slots.channels[slot_numbers], slots.highs[slot_numbers], self._own[owners], self._last_w_ms[owners]
        )
        self._log.write(self.owners, rows, slots.is_single[slot_numbers], has_rows)


def rescaled_state(state: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the state of watermarks in a new bucket, from the states of all old buckets, which had the same W."""
    names = ("own_swept_ms", "own_first_ms", "own_idle_ms")
    return {name: state[0][name] for name in names if name in state[0]}
