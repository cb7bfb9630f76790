"""The counter of a store's messages: counts that add up, and the rejected messages with their reasons.

Rule: each message is a replay, rejected or taken. A taken message is held until it is released, or later rejected if no
window was opened for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, fields

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from keyedwm.arrow.columns import Flags, Ints
from keyedwm.operators.batch_figures import StoreCounts
from keyedwm.operators.messages.arguments import validate_messages, validate_times
from keyedwm.operators.messages.channels import Channels
from keyedwm.operators.messages.message_plan import MessageLayout
from keyedwm.operators.messages.messages import places
from keyedwm.operators.messages.plan import Reason


@dataclass(frozen=True, slots=True)
class Messages:
    """Messages of one input. at: their places, event times in ms or offsets. channels: a number for each."""

    rows: pa.Table
    at: Ints
    channels: Ints
    input_number: int = 0

    def __len__(self) -> int:
        return len(self.at)

    def filter(self, flags: Flags) -> Messages:
        """Return the messages with these flags."""
        rows = self.rows.filter(pa.array(flags))
        return Messages(rows, self.at[flags], self.channels[flags], self.input_number)

    def take_rows(self, places: Ints) -> Messages:
        """Return the messages at these places, in this order."""
        rows = self.rows.take(pa.array(places))
        return Messages(rows, self.at[places], self.channels[places], self.input_number)

    def part(self, first: int, behind: int | None = None) -> Messages:
        """Return the messages from place `first` to before `behind`, or to the end."""
        span = slice(first, behind)
        rows = self.rows.slice(first, None if behind is None else behind - first)
        return Messages(rows, self.at[span], self.channels[span], self.input_number)


class MessageCounter:
    """The counts since the store was new, and the messages that were rejected since the last call."""

    def __init__(self, plan: MessageLayout, state: Mapping[str, int]) -> None:
        """state: the result of `state`."""
        self._plan = plan
        self.late_rows = 0
        self._counts = Counter(state)
        self._rejected: list[pa.Table] = []

    @property
    def counts(self) -> StoreCounts:
        """The counts of all messages."""
        return StoreCounts(**{one.name: self._counts[one.name] for one in fields(StoreCounts)})

    def state(self) -> dict[str, int]:
        """Return the state for a later instance, ready for JSON."""
        return {name: count for name, count in sorted(self._counts.items()) if count}

    def count_input(self, rows: int, fresh: int) -> None:
        """Count received messages. fresh: the number of new messages among them."""
        self._add(given=rows, replayed=rows - fresh)

    def admit(self, messages: Messages, reasons: Mapping[Reason, Flags]) -> Messages:
        """Reject messages for these reasons; count the others as taken, and return them."""
        is_admitted = None
        for reason, flags in reasons.items():
            if flags.any():
                self.reject(messages.rows.filter(pa.array(flags)), reason)
                is_admitted = ~flags if is_admitted is None else is_admitted & ~flags
        admitted = messages if is_admitted is None else messages.filter(is_admitted)
        self._add(taken=len(admitted))
        return admitted

    def release(self, messages: int, size: int = 0, windows: int = 0, *, over_limit: bool = False) -> None:
        """Count released messages, and their bytes and windows if a limit of size dropped them."""
        if over_limit:
            self._add(dropped_messages=messages, dropped_bytes=size, dropped_windows=windows)
        else:
            self._add(expired=messages)

    def give_back(self, rows: pa.Table, reason: Reason) -> None:
        """Reject messages that were taken."""
        self.reject(rows, reason)
        self._add(taken=-rows.num_rows)

    def reject(self, rows: pa.Table, reason: Reason) -> None:
        """Reject messages."""
        if not rows.num_rows:
            return
        self._add(rejected=rows.num_rows)
        self.late_rows += rows.num_rows if reason is Reason.RETENTION else 0
        reasons = pa.repeat(reason.value, rows.num_rows)
        self._rejected.append(
            pa.Table.from_arrays([*rows.columns, reasons], schema=self._plan.rejected_schema).combine_chunks()
        )

    def rejected(self) -> pa.Table:
        """Return the messages that were rejected since the last call (`plan.rejected_schema`)."""
        tables, self._rejected = self._rejected, []
        return pa.concat_tables([self._plan.rejected_schema.empty_table(), *tables])

    def _add(self, **counts: int) -> None:
        self._counts.update({name: int(count) for name, count in counts.items()})


@dataclass(frozen=True, slots=True)
class Input:
    """An input of messages: their columns, their channels, and their counter. number: the input's number."""

    number: int
    columns: MessageLayout
    channels: Channels
    counter: MessageCounter

    def validated(self, rows: pa.Table) -> pa.Table:
        """Return messages in their columns; raise InputError if they do not fit."""
        columns = self.columns
        rows = validate_messages(columns.schema, rows, columns.offset)
        if not columns.is_rows:
            validate_times(columns.time, places(columns, rows.filter(pc.is_valid(rows[columns.time]))))
        return rows

    def fresh(self, rows: pa.Table) -> Messages:
        """Return the new messages; count replayed messages, and reject messages without a time."""
        numbers = self.channels.numbers(rows)
        fresh = self.channels.fresh(rows, numbers)
        self.counter.count_input(rows.num_rows, len(fresh))
        rows, numbers = rows.take(pa.array(fresh)), numbers[fresh]
        if not self.columns.is_rows and rows[self.columns.time].null_count:
            missing = pc.is_null(rows[self.columns.time])
            self.counter.reject(rows.filter(missing), Reason.NO_TIME)
            with_time = np.flatnonzero(~missing.to_numpy())
            rows, numbers = rows.take(pa.array(with_time)), numbers[with_time]
        return Messages(rows, places(self.columns, rows), numbers, self.number)
