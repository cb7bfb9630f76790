"""The output of any operator, names and types of columns that operators share, and calls that most operators ignore."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from keyedwm.arrow.columns import Ints
from keyedwm.operators.batch_figures import KeyWatermarkSummary, StoreCounts

WINDOW, PANE, CONTROL = "window", "pane", "control"
# The prefix of keyedwm's own columns.
HIDDEN_PREFIX = "__"
START, END, LAST, ROWS = "__start", "__end", "__last", "__rows"
# The number that stands for the partition of a partial.
CHANNEL = "__channel"
_MICROS = pa.timestamp("us", tz="UTC")
WINDOW_TYPE = pa.struct([("start", _MICROS), ("end", _MICROS)])
PANE_TYPE = pa.struct([("timing", pa.string()), ("index", pa.int32()), ("last", pa.bool_())])


@dataclass(frozen=True, slots=True)
class Output:
    """Rows that an operator emits, and their event times; None if the rows have a column of times for each axis."""

    rows: pa.Table
    event_ms: Ints | None


class QuietOperator:
    """The calls of an operator (`protocol.Operator`) that are equal for most operators: `drain` returns its state after
    each batch, only watermarks cause results, and no clock matters. Each result has one event time.
    """

    @property
    def batch_counts(self) -> StoreCounts:
        """Return counts of zero: the operator keeps no messages."""
        return StoreCounts()

    def key_summary(self) -> KeyWatermarkSummary | None:
        """Return None: keys have no watermarks of their own."""
        return None

    def output_watermark_ms(self, watermark_ms: int) -> int | None:
        """Return the watermark of the results for this watermark of the inputs, None for none yet."""
        return watermark_ms

    def output_watermarks_ms(self, watermark_ms: int | None) -> Mapping[int, int]:
        """Return the watermark of the only axis of results, once all inputs have one."""
        kept_ms = None if watermark_ms is None else self.output_watermark_ms(watermark_ms)
        return {} if kept_ms is None else {0: kept_ms}

    @property
    def next_timer_ms(self) -> int | None:
        """None: results do not depend on processing time."""
        return None

    def on_idle(self, input_number: int) -> Iterator[Output]:  # noqa: ARG002
        """Yield nothing: watermarks stay where they are."""
        return iter(())

    def on_barrier(self, snapshot: int) -> Iterator[Output]:  # noqa: ARG002
        """Yield nothing: a barrier changes no state."""
        return iter(())

    def on_timer(self, now_ms: int) -> Iterator[Output]:  # noqa: ARG002
        """Yield nothing: the clock causes no results."""
        return iter(())


def no_times(count: int) -> Ints:
    """Return null event times."""
    return np.ma.MaskedArray(np.zeros(count, np.int64), mask=True)


def window_column(starts_ms: Ints, ends_ms: Ints) -> pa.Array:
    """Return windows with these edges as a column of results."""
    return pa.StructArray.from_arrays([instants(starts_ms), instants(ends_ms)], fields=list(WINDOW_TYPE))


def pane_column(timing: str, index: Ints, *, last: bool) -> pa.Array:
    """Return a column of panes. index: the number of each among the panes of its window."""
    columns = [pa.repeat(timing, len(index)), pa.array(index.astype(np.int32)), pa.repeat(last, len(index))]
    return pa.StructArray.from_arrays(columns, fields=list(PANE_TYPE))


def instants(times_ms: Ints) -> pa.Array:
    """Return times as Spark's timestamps."""
    return pa.array(times_ms * 1000).view(_MICROS)
