"""Stage one: rows are combined into partials, one for each key and frame, or for each key and session of the batch.

Rule: stage one knows no watermark and holds no state. Rows without an event time belong to no window and are dropped.
Partials are ordered by frame (or by start). Rows whose lateness is decided one by one are not combined, and keep their
order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from keyedwm.arrow.columns import Column, Ints, as_key, contiguous, ints, millis, to_arrow
from keyedwm.arrow.hashing import hashed_rows
from keyedwm.core.errors import InputError, OptionError
from keyedwm.core.window_rules import LateRule
from keyedwm.operators.aggregates.aggregate_function import Groups, RowOrder
from keyedwm.operators.aggregates.spec import aggregate_of
from keyedwm.operators.exchange_input import ExchangeInput
from keyedwm.operators.frames.plan import FrameWindow, RowGapWindow, SessionWindow, WindowPlan, window_of
from keyedwm.operators.frames.session_parts import joined_runs
from keyedwm.operators.frames.zoned import ZonedWindow
from keyedwm.operators.grouping import pair_groups, row_groups
from keyedwm.operators.kernels import count_by_group, lowest_by_group
from keyedwm.operators.keyed.per_key import PerKey
from keyedwm.operators.plan_checks import FARTHEST_MS
from keyedwm.operators.results import LAST


@dataclass(frozen=True)
class ExchangePartials(ExchangeInput):
    """The rows of an aggregation as stage one sends them: combined into partials."""

    kind = "frames"
    plan: WindowPlan

    @property
    def schema(self) -> pa.Schema:
        """The columns of the rows."""
        return self.plan.schema

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are read: those in use."""
        return self.plan.columns

    @property
    def spread_by(self) -> tuple[str, ...]:
        """The key columns that own a watermark, by default all."""
        return self.plan.owners

    def description(self) -> dict[str, Any]:
        """Return the part of the plan's description that decides partials; see `ExchangeInput`."""
        plan = self.plan.description()
        zone = {"rules": self.plan.window.rules_digest} if isinstance(self.plan.window, ZonedWindow) else {}
        return {
            "kind": self.kind, "time": self.plan.time, "order": list(self.plan.order), "by": list(self.plan.by),
            "window": plan["window"], **zone, "late_rule": plan["late_rule"],
            "aggregates": [[name, text] for name, text, _ in plan["aggregates"]],
            "key_watermark": plan.get("key_watermark"),
        }  # fmt: skip

    @classmethod
    def of(cls, description: Mapping[str, Any], schema: pa.Schema) -> ExchangePartials:
        """Return the input. Raises OptionError if the window's time zone has other rules here than described."""
        window = window_of(description["window"])
        if isinstance(window, ZonedWindow) and window.rules_digest != description["rules"]:
            raise OptionError(
                f"option stage: the rules of the time zone {window.zone!r} differ between this machine and the driver: "
                "install the same tzdata on driver and workers, or load() the source"
            )
        per_key = description["key_watermark"]
        plan = WindowPlan(
            schema=schema, by=tuple(description["by"]), window=window, time=description["time"],
            order=tuple(description["order"]), late_rule=LateRule(description["late_rule"]),
            aggregates=tuple((name, aggregate_of(text)) for name, text in description["aggregates"]),
            key_watermark=None if per_key is None else PerKey.of(per_key),
        )  # fmt: skip
        return cls(plan)

    def exchange_rows(self, rows: pa.Table) -> pa.Table:
        """Return the partials."""
        return combine_rows(self.plan, rows)

    def null_event_times(self, rows: pa.Table) -> int:
        """Return how many rows lack an event time."""
        return rows.column(self.plan.time).null_count

    def rows_without_gap(self, rows: pa.Table) -> int:
        """Return how many rows lack the gap of their session."""
        return rows_without_gap(self.plan, rows)


def combine_rows(plan: WindowPlan, batch: pa.RecordBatch | pa.Table) -> pa.Table:
    """Return the partials of these rows (`plan.partial_schema`); raise InputError if a column is missing."""
    for name in plan.columns:
        if name not in batch.schema.names:
            raise InputError(f"the rows have no column {name!r}, they have {', '.join(batch.schema.names)}")
    if batch.num_rows and batch[plan.time].null_count:
        batch = batch.filter(pc.is_valid(batch[plan.time]))
    if batch.num_rows and isinstance(plan.window, RowGapWindow):
        batch = batch.filter(_has_gap(plan.window, batch))
    if not batch.num_rows:
        return plan.partial_schema.empty_table()
    times = millis(contiguous(batch[plan.time]))
    if max(-int(times.min()), int(times.max())) > FARTHEST_MS:
        raise _too_far(plan, batch, times)
    keys = [as_key(contiguous(batch[name])) for name in plan.by]
    channels = _channels(plan, batch) if plan.channel else None
    groups, first, interval = _groups(plan, batch, _numbers(plan, keys, channels, len(times)), times)
    rows = RowOrder(times, tuple(contiguous(batch[name]) for name in plan.order))
    columns: list[Column] = [*(key.take(pa.array(first)) for key in keys), *interval]
    if LAST in plan.partial_schema.names:
        columns.append(~lowest_by_group(~times, groups.ids, groups.count))
    if channels is not None:
        columns.append(channels[first])
    columns.append(count_by_group(groups.ids, groups.count))
    for (_, spec), function in zip(plan.aggregates, plan.functions, strict=True):
        columns += function.gather(spec.values_of(batch, plan.schema), rows, groups)
    partials = pa.Table.from_arrays([to_arrow(column) for column in columns], schema=plan.partial_schema)
    return partials.take(pa.array(np.argsort(first))) if plan.row_by_row else partials


def _numbers(plan: WindowPlan, keys: list[pa.Array], channels: Ints | None, rows: int) -> Ints:
    """Return a number for each row, the same for rows that may be combined."""
    if plan.row_by_row:
        return np.arange(rows)
    numbers = row_groups(keys, rows)
    if channels is None or (channels == channels[0]).all():
        return numbers
    return row_groups([pa.array(numbers), pa.array(channels)], rows)


def _groups(
    plan: WindowPlan, batch: pa.RecordBatch | pa.Table, numbers: Ints, times: Ints
) -> tuple[Groups, Ints, list[Column]]:
    """Return the groups in order of frame or start, the first row of each, and its interval."""
    if isinstance(plan.window, SessionWindow):
        return _session_groups(plan.window, numbers, times, times + _gaps_ms(plan, plan.window, batch))
    return _frame_groups(plan.window, numbers, times)


def _channels(plan: WindowPlan, batch: pa.RecordBatch | pa.Table) -> Ints:
    """Return a number for the partition of each row, the same in every task."""
    return hashed_rows([contiguous(batch[name]) for name in plan.channel], batch.num_rows).view(np.int64)


def rows_without_gap(plan: WindowPlan, batch: pa.RecordBatch | pa.Table) -> int:
    """Return how many rows with an event time belong to no session, as their gap is null, 0 or less."""
    if not batch.num_rows or not isinstance(plan.window, RowGapWindow):
        return 0
    timed = batch.filter(pc.is_valid(batch[plan.time]))
    return timed.num_rows - int(pc.sum(_has_gap(plan.window, timed), min_count=0).as_py())


def _has_gap(window: RowGapWindow, batch: pa.RecordBatch | pa.Table) -> pa.Array:
    """Return which rows belong to a session; null if the gap is null."""
    return pc.greater_equal(_gaps(window, batch), window.gap_ms)


def _too_far(plan: WindowPlan, batch: pa.RecordBatch | pa.Table, times: Ints) -> InputError:
    """Return the error about the farthest event time; name its row."""
    at = int(np.argmax(np.maximum(times, -times)))
    places = ", ".join(f"{name} {batch[name][at].as_py()}" for name in plan.order)
    return InputError(
        f"the event time {times[at]} ms{places and f' of {places},'} is farther from 1970 than {FARTHEST_MS} ms; is "
        f"its unit right?"
    )


def _frame_groups(window: FrameWindow, numbers: Ints, times: Ints) -> tuple[Groups, Ints, list[Column]]:
    """Return the groups in order of frame, the first row of each, and the start of its frame."""
    frames = window.frames_of(times)
    ids, starts, _ = pair_groups(frames, numbers, int(numbers.max()) + 1)
    first = _first_rows(ids, len(starts))
    return Groups(ids, len(starts)), first, [window.starts_of(starts)]


def _gaps(window: RowGapWindow, batch: pa.RecordBatch | pa.Table) -> pa.Array:
    """Return the gap of each row in whole milliseconds, rounded down."""
    return contiguous(batch[window.gap_column]).cast(pa.duration("ms"), safe=False).cast(pa.int64())


def _gaps_ms(plan: WindowPlan, window: SessionWindow, batch: pa.RecordBatch | pa.Table) -> Ints | int:
    """Return how long a session lasts after each row; raise InputError if it is too long."""
    if not isinstance(window, RowGapWindow):
        return window.gap_ms
    gaps = ints(_gaps(window, batch))
    at = int(np.argmax(gaps))
    if gaps[at] > FARTHEST_MS:
        places = ", ".join(f"{name} {batch[name][at].as_py()}" for name in plan.order)
        raise InputError(
            f"the gap {gaps[at]} ms of a session{places and f' at {places}'} in column {window.gap_column!r} is longer "
            f"than {FARTHEST_MS} ms"
        )
    return gaps


def _session_groups(
    window: SessionWindow, numbers: Ints, times: Ints, until: Ints
) -> tuple[Groups, Ints, list[Column]]:
    """Return the groups in order of start, the first row of each, and its interval; until: the end of each row."""
    ids, starts, ends = joined_runs(window, numbers, times, until)
    return Groups(ids, len(starts)), _first_rows(ids, len(starts)), [starts, ends]


def _first_rows(ids: Ints, count: int) -> Ints:
    first = np.empty(count, np.int64)
    first[ids[::-1]] = np.arange(len(ids) - 1, -1, -1)
    return first
