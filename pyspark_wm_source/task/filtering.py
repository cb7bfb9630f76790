"""The option `where` in a reading task: it drops the records that do not meet the condition.

Rule: control rows keep their places among the remaining records. A rejected record is dropped only if the condition is
false: an unreadable record may be one that the user needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from keyedwm.arrow.columns import Flags
from keyedwm.arrow.places import FieldColumns
from keyedwm.arrow.rows import Events, Rejects, RowBuilder
from keyedwm.core.errors import InputError
from pyspark_wm_source.options.record_filter import RecordFilter
from pyspark_wm_source.task.empty_fields import Asker, warn_of_missing
from pyspark_wm_source.task.items import ControlRun, EventRun, Item, PlacedControl


def filtered(items: Iterable[Item], where: RecordFilter, stamps: Mapping[str, int | None]) -> Iterator[Item]:
    """Yield the items without the records for which the condition is not true. stamps: the batch's watermarks."""
    builder = RowBuilder(where.columns, stamps, FieldColumns(where.fields, where.columns.names))
    for item in items:
        yield from _with_flags(item, _flags(item.events, where, builder)) if isinstance(item, EventRun) else (item,)


def _flags(events: Events, where: RecordFilter, builder: RowBuilder) -> Flags:
    """Return a flag per event: true if the event stays."""
    rows = builder.events(replace(events, rejects=None))  # as records, which have values
    try:
        truth = where.condition.truth(rows)
    except InputError as error:
        first, last = events.offset[0], events.offset[-1]
        raise InputError(f"{events.topic}-{events.partition}, offsets {first} to {last}: {error.message}") from error
    warn_of_missing(events, where.fields.values(), Asker.WHERE)
    flags: Flags = pc.fill_null(truth, fill_value=False).to_numpy(zero_copy_only=False)
    if events.rejects is not None:
        flags |= events.rejects.marked & truth.is_null().to_numpy(zero_copy_only=False)
    return flags


def _with_flags(item: EventRun, flags: Flags) -> Iterator[Item]:
    if flags.all():
        yield item
    elif flags.any():
        before = np.append(0, np.cumsum(flags))
        control = tuple(PlacedControl(before=int(before[one.before]), row=one.row) for one in item.control)
        yield EventRun(events=_flagged_events(item.events, flags), control=control)
    elif item.control:
        yield ControlRun(rows=tuple(one.row for one in item.control))


def _flagged_events(events: Events, flags: Flags) -> Events:
    """Return the flagged events, with their rejects."""
    remaining, rejects = events.where(flags), events.rejects
    if rejects is None:
        return remaining
    reasons = rejects.reasons.filter(pa.array(flags[rejects.marked]))
    return replace(remaining, rejects=Rejects(marked=rejects.marked[flags], reasons=reasons))
