"""A sample's figures as one value: losses by lag, figures of each partition, and the recommended options.

Rule: event times that look wrong are counted and ignored in the losses: one of them would decide all others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from keyedwm.arrow.columns import sorted_distinct
from keyedwm.cli.advise.losses import (
    TIMEOUTS_MS,
    Flow,
    Losses,
    Numbers,
    highest_before,
    highest_so_far,
    late_with_idleness,
    silences,
    zone_sentences,
)
from keyedwm.cli.advise.read import Sample, TimeFate, in_arrival_order
from keyedwm.core.errors import InputError

ONE, PER_PARTITION, PER_KEY = "one watermark", "per partition", "per key"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionFigures:
    """One partition; a figure is None without a counted record.

    behind_ms: how far its highest event time is below the highest of all, at the end. median_behind_ms: the median of
    this distance over its records. longest_silence_ms: the longest time between two records. silent_at_end_ms: the time
    from its last record to the sample's last record.
    """

    partition: int
    records: int
    highest_event_ms: int | None
    behind_ms: int | None
    median_behind_ms: int | None
    longest_silence_ms: int | None
    silent_at_end_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Idle:
    """The recommended idleTimeout; None: no timeout leaves few enough late, so none should be set.

    silences: how many silences of the sample were longer. late: the most records that are late because of them.
    """

    timeout_ms: int | None
    silences: int
    late: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Advice:
    """The figures of a sample. record_count: the records of the losses; ways: the losses by the kind of watermark."""

    records: int
    record_count: int
    begin_ms: int
    end_ms: int
    appended: bool
    stamped_by_event: bool
    fates: Mapping[TimeFate, int]
    hints: tuple[str, ...]
    zones: tuple[tuple[int, int], ...]
    ways: Mapping[str, Losses]
    keys: int | None
    partitions: tuple[PartitionFigures, ...]
    most_late: int
    lag_ms: int
    idle: Idle

    @property
    def late(self) -> int:
        """The number of records that the recommended lag leaves late behind their own partition's watermark."""
        return self.ways[PER_PARTITION].late(self.lag_ms)

    def share(self, count: int) -> float:
        """Return `count` as a share of the counted records."""
        return count / self.record_count


def advice_of(sample: Sample, topic: str, share: float, window_ms: int) -> Advice:
    """Return the advice for a sample; share: the share of the records that may be late.

    Raises InputError if none has a sound time.
    """
    rows = in_arrival_order(sample)
    sound = rows.fate == TimeFate.SOUND
    counted_all = sound & (rows.arrival_ms >= rows.begin_ms)
    if not counted_all.any():
        where = "set --event-time and --unit to where and how the event time is written"
        hints = (*sample.hints, *zone_sentences(dict(sample.zones)), where)
        raise InputError(f"topic {topic}: none of {len(sound)} records has an event time to advise from; {hints[0]}")
    event, partition, selection = rows.event_ms[sound], rows.partition[sound], counted_all[sound]
    of_all = highest_before(event, np.zeros(len(event), np.int64))
    own = highest_before(event, partition)
    ways = {ONE: of_all, PER_PARTITION: own}
    if rows.keys is not None:
        ways[PER_KEY] = highest_before(event, rows.keys[sound])
    losses = {name: Losses.of(event, before, selection, window_ms) for name, before in ways.items()}
    most_late = int(share * np.count_nonzero(selection))
    lag_ms = losses[PER_PARTITION].least_lag_ms(most_late)
    # A partition is idle without records of any kind; only records with a sound time show the cost.
    silence = silences(rows.arrival_ms, rows.partition, rows.begin_ms)
    flow = Flow(event, partition, silences(rows.arrival_ms[sound], partition, rows.begin_ms), of_all, own)
    behind = np.maximum(of_all, event) - highest_so_far(event, partition)
    return Advice(
        records=len(sound),
        record_count=int(np.count_nonzero(selection)),
        begin_ms=rows.begin_ms,
        end_ms=int(rows.arrival_ms[-1]),
        appended=rows.appended,
        stamped_by_event=rows.stamped_by_event,
        fates={fate: int(np.count_nonzero(rows.fate == fate)) for fate in TimeFate},
        hints=rows.hints,
        zones=rows.zones,
        ways=losses,
        keys=None if rows.keys is None else len(sorted_distinct(rows.keys[sound])),
        partitions=tuple(_figures(rows, silence, sound, behind)),
        most_late=most_late,
        lag_ms=lag_ms,
        idle=_idle(flow, selection, lag_ms, most_late),
    )


def _idle(flow: Flow, selection: NDArray[np.bool_], lag_ms: int, most_late: int) -> Idle:
    without = late_with_idleness(flow, lag_ms, int(flow.silence_ms.max()))
    for timeout_ms in TIMEOUTS_MS:
        late = int(np.count_nonzero(late_with_idleness(flow, lag_ms, timeout_ms) & ~without & selection))
        if late <= most_late:
            longer = int(np.count_nonzero((flow.silence_ms > timeout_ms) & selection))
            return Idle(timeout_ms=timeout_ms, silences=longer, late=late)
    return Idle(timeout_ms=None, silences=0, late=0)


def _figures(
    rows: Sample, silence: Numbers, sound: NDArray[np.bool_], behind: Numbers
) -> list[PartitionFigures]:  # fmt: skip
    highest = int(rows.event_ms[sound].max())
    everything, readable = _rows_by_partition(rows.partition), _rows_by_partition(rows.partition[sound])
    event, end_ms = rows.event_ms[sound], int(rows.arrival_ms[-1])
    nothing = np.empty(0, np.int64)
    figures = []
    for number in rows.partitions:
        own, timed = everything.get(number, nothing), readable.get(number, nothing)
        top = int(event[timed].max()) if len(timed) else None
        figures.append(
            PartitionFigures(
                partition=number,
                records=len(own),
                highest_event_ms=top,
                behind_ms=None if top is None else highest - top,
                median_behind_ms=int(np.median(behind[timed])) if len(timed) else None,
                longest_silence_ms=int(silence[own].max()) if len(own) else None,
                silent_at_end_ms=end_ms - int(rows.arrival_ms[own].max()) if len(own) else None,
            )
        )
    return figures


def _rows_by_partition(partition: Numbers) -> dict[int, Numbers]:
    order = np.argsort(partition, kind="stable")
    numbers, first = np.unique(partition[order], return_index=True)
    return dict(zip(numbers.tolist(), np.split(order, first[1:]), strict=True))
