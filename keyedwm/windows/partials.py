"""Stage one: rows become partials, one for each key and frame, or for each key and run of rows within a session's gap.

Rule: it knows no watermark and keeps nothing. Rows without an event time belong to no window and are left out. Partials
stand in order of frame (or start).
"""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from keyedwm.core.errors import InputError
from keyedwm.core.late import LateRule
from keyedwm.windows.columns import Column, Ints, contiguous, ints, to_arrow
from keyedwm.windows.keys import distinct_codes, row_groups
from keyedwm.windows.kinds import Groups, Rows
from keyedwm.windows.loops import count_by_group, frames_of, lowest_by_group
from keyedwm.windows.plan import FARTHEST_MS, Plan, Session, Sliding
from keyedwm.windows.sessions import joined_runs

_UNITS = {"s": 1000, "ms": 1, "us": 1000, "ns": 1_000_000}


def combine_rows(plan: Plan, batch: pa.RecordBatch | pa.Table) -> pa.Table:
    """Return the partials of these rows (`plan.partial_schema`). InputError if a column of the plan is missing."""
    for name in plan.columns:
        if name not in batch.schema.names:
            raise InputError(f"the rows have no column {name!r}, they have {', '.join(batch.schema.names)}")
    if batch.num_rows and batch[plan.time].null_count:
        batch = batch.filter(pc.is_valid(batch[plan.time]))
    if not batch.num_rows:
        return plan.partial_schema.empty_table()
    times = millis(contiguous(batch[plan.time]))
    if max(-int(times.min()), int(times.max())) > FARTHEST_MS:
        raise InputError(
            f"an event time in {plan.time!r} lies between {times.min()} and {times.max()} ms, farther from 1970 than "
            f"{FARTHEST_MS} ms; is its unit right?"
        )
    keys = [_as_key(contiguous(batch[name])) for name in plan.by]
    numbers = row_groups(keys, len(times))
    if isinstance(plan.window, Session):
        groups, first, interval = _session_groups(plan.window, numbers, times)
    else:
        groups, first, interval = _frame_groups(plan.window, numbers, times)
    rows = Rows(times, tuple(contiguous(batch[name]) for name in plan.order))
    columns: list[Column] = [*(key.take(pa.array(first)) for key in keys), *interval]
    if plan.late_rule is LateRule.EVENT:
        columns.append(~lowest_by_group(~times, groups.ids, groups.count))
    columns.append(count_by_group(groups.ids, groups.count))
    for (_, spec), kind in zip(plan.aggregates, plan.kinds, strict=True):
        values = None if spec.column is None else contiguous(batch[spec.column])
        columns += kind.gather(values, rows, groups)
    return pa.Table.from_arrays([to_arrow(column) for column in columns], schema=plan.partial_schema)


def millis(times: pa.Array) -> Ints:
    """Event times as whole milliseconds, finer ones floored (DESIGN section 12)."""
    if pa.types.is_int64(times.type):
        return ints(times)
    ticks = ints(times.cast(pa.timestamp(times.type.unit)).view(pa.int64()))
    unit = times.type.unit
    if unit == "s":
        return ticks * _UNITS[unit]
    return ticks if unit == "ms" else ticks // _UNITS[unit]


def _as_key(values: pa.Array) -> pa.Array:
    """Floats as Spark groups them: -0.0 is 0.0, and all NaN are one."""
    if not pa.types.is_floating(values.type):
        return values
    plain = pc.add(values, pa.scalar(0.0, values.type))
    return pc.if_else(pc.is_nan(plain), pa.scalar(math.nan, values.type), plain)


def _frame_groups(window: Sliding, numbers: Ints, times: Ints) -> tuple[Groups, Ints, list[Column]]:
    """Groups in order of frame, the first row of each, and its frame's start."""
    frames, low, high = frames_of(times, window.slide_ms, window.offset_ms)
    width = int(numbers.max()) + 1
    if (high - low + 1) * width >= 2**62:  # times far apart: number the frames that occur
        distinct, frames_at = np.unique(frames, return_inverse=True)
    else:
        distinct, frames_at = None, frames - low
    size = (len(distinct) if distinct is not None else int(high - low) + 1) * width
    ids, codes = distinct_codes(frames_at * width + numbers, size)
    found = codes // width
    starts = distinct[found] if distinct is not None else found + low
    return (
        Groups(ids, len(codes)),
        _first_rows(ids, len(codes)),
        [window.offset_ms + starts * window.slide_ms],
    )


def _session_groups(window: Session, numbers: Ints, times: Ints) -> tuple[Groups, Ints, list[Column]]:
    """Groups in order of start, the first row of each, and its interval."""
    ids, starts, ends = joined_runs(window, numbers, times, times + window.gap_ms)
    return Groups(ids, len(starts)), _first_rows(ids, len(starts)), [starts, ends]


def _first_rows(ids: Ints, count: int) -> Ints:
    first = np.empty(count, np.int64)
    first[ids[::-1]] = np.arange(len(ids) - 1, -1, -1)
    return first
