"""A limit on what closes in one batch: the rest leaves in the next ones, and the watermark follows what has left."""

from __future__ import annotations

import pytest

from keyedwm.operators.aggregates import functions as agg
from keyedwm.operators.frames.partials import combine_rows
from keyedwm.operators.frames.plan import SessionWindow, SlidingWindow
from keyedwm.operators.protocol import operator_of
from keyedwm.operators.state.store import MemoryStore
from tests.operators.streams import Event, events, plan_of, rows_of, table

SUM = (("total", agg.sum("n")),)
WINDOWS = (SlidingWindow(10, 10), SlidingWindow(20, 5), SessionWindow(4))
KEYS = 6


class Batches:
    """A batch a call, each from what the one before left: a watermark, perhaps rows, and what leaves."""

    def __init__(self, plan):
        self.plan, self.store = plan, MemoryStore()

    def __call__(self, watermark_ms, rows=()):
        operator = operator_of(self.plan, self.store)
        outputs = list(operator.on_watermark(0, 0, watermark_ms))
        if rows:
            outputs += operator.on_rows(0, combine_rows(self.plan, table(rows)), None)
        outputs += operator.on_watermark(0, 0, watermark_ms)
        changes = operator.drain()
        kept_blobs = {name: blob for name, blob in self.store.blobs.items() if name not in changes.removed}
        self.store = MemoryStore(kept_blobs | changes.blobs)
        self.passed_on_ms = operator.output_watermark_ms(watermark_ms)
        self.earliest_ms = min((int(output.event_ms.min()) for output in outputs), default=None)
        return [row for output in outputs for row in rows_of(output.rows)]


def keyed(rows):
    return sorted(rows, key=repr)


@pytest.mark.parametrize("lateness_ms", [0, 3])
@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_what_a_limit_holds_back_leaves_in_the_next_batches_in_order(window, lateness_ms):
    free = Batches(plan_of(window, aggregates=SUM, lateness_ms=lateness_ms))
    limited_batches = Batches(plan_of(window, aggregates=SUM, lateness_ms=lateness_ms, most_rows=2))
    assert limited_batches.plan.digest() == free.plan.digest()
    rows = events(4, 80, keys=KEYS)
    expected_rows = free(-1_000, rows) + free(500)
    result_rows, before_ms, batches = limited_batches(-1_000, rows), None, 0
    while batches == 0 or limited_batches.passed_on_ms < 500 - lateness_ms:
        batch_rows = limited_batches(500)
        assert len(batch_rows) <= 2 + KEYS  # those that end with the last one leave with it
        assert before_ms is None or limited_batches.earliest_ms is None or limited_batches.earliest_ms >= before_ms
        result_rows += batch_rows
        before_ms, batches = limited_batches.passed_on_ms, batches + 1
    assert keyed(result_rows) == keyed(expected_rows)
    assert batches > 5
    assert set(limited_batches.store.blobs) == {"note"}


@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_rows_of_a_window_that_is_held_back_are_not_late(window):
    limited_batches = Batches(plan_of(window, aggregates=SUM, most_rows=1))
    first = [Event(f"k{number}", 20 * number, 1, None, None, number) for number in range(5)]
    result_rows = limited_batches(-1, first) + limited_batches(100)
    assert limited_batches.passed_on_ms < 100
    result_rows += limited_batches(100, [Event("k4", 81, 1, None, None, 9)])
    while limited_batches.passed_on_ms < 100:
        result_rows += limited_batches(100)
    totals = {row["k"]: row["total"] for row in result_rows if row["start"] <= 80 < row["end"]}
    assert totals["k4"] == 2
