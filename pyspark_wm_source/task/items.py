"""The items of a reading task before they are laid out: runs of events, and control rows with their places.

Rule: what `run_stage` ships is what the operator's own stage one ships, made by the same code.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from keyedwm.arrow.rows import Events, RowBuilder, grouped, rejected_records
from keyedwm.core.control_row import ControlRow
from keyedwm.operators.shuffle import GROUP_BYTES, GROUP_ROWS, shipped
from pyspark_wm_source.options.stage import Stage


@dataclass(frozen=True, kw_only=True, slots=True)
class PlacedControl:
    """A control row within a run of events: it stands before event number `before`."""

    before: int
    row: ControlRow


@dataclass(frozen=True, kw_only=True, slots=True)
class EventRun:
    """Consecutive events of one channel, and the control rows among them in ascending places."""

    events: Events
    control: tuple[PlacedControl, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class ControlRun:
    """Consecutive control rows without an event between them."""

    rows: tuple[ControlRow, ...]


Item = EventRun | ControlRun


def events_of(items: Iterable[Item], control: list[ControlRow], rejected: list[pa.Array]) -> Iterator[Events]:
    """Yield the events; add control rows to `control` and rejected records to `rejected`.

    Both lists are complete when the items have ended.
    """
    for item in items:
        if isinstance(item, EventRun):
            control += (mark.row for mark in item.control)
            events = item.events
            if events.rejects is not None:
                rejected.append(rejected_records(events, events.rejects))
                events = events.where(~events.rejects.marked)
            yield events
        else:
            control += item.rows


def lay_out(items: Iterable[Item], builder: RowBuilder) -> Iterator[pa.RecordBatch]:
    """Build the rows that a stream of the source has."""
    for item in items:
        if isinstance(item, ControlRun):
            yield builder.control(item.rows)
            continue
        batch = builder.events(item.events)
        if item.control:
            places = [mark.before for mark in item.control]
            batch = builder.interleave(batch, [mark.row for mark in item.control], places)
        yield batch


def run_stage(items: Iterable[Item], stage: Stage, builder: RowBuilder, task: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows that the task sends to the operator's buckets (`EXCHANGE_SCHEMA`).

    These are rows or partials, control rows, and rejected records. builder: builds the stage's columns.
    """
    control: list[ControlRow] = []
    rejected: list[pa.Array] = []
    each = (stage.rows(one, builder) for one in events_of(items, control, rejected))
    rows = grouped(each, GROUP_ROWS, GROUP_BYTES, lambda: sum(one.nbytes for one in rejected) >= GROUP_BYTES)
    inputs = {stage.number: stage.shipped}
    yield from shipped(inputs, stage.ids, task, ([group] for group in rows), control, rejected=rejected)
