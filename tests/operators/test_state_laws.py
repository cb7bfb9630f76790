"""The state of windows cannot be seen: any cut of a batch, moment of compaction, restart or crash gives the same bits.

The reference takes every batch whole, in one instance that is never built anew and writes nothing down.
"""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance.driver import DrivenOperator
from keyedwm.core.window_rules import LatePolicy, LateRule
from keyedwm.operators.frames.partials import combine_rows
from keyedwm.operators.frames.plan import SessionWindow
from keyedwm.operators.panes import Early, EveryBy
from keyedwm.operators.state.store import StateLimits
from tests.operators.streams import WINDOWS, Event, plan_of, rows_of, table
from tests.seeds import times

EARLY = (
    None, None, Early(rows=2), Early(every_ms=20), Early(rows=3, every_ms=30), Early(every_ms=9, by=EveryBy.EVENT),
)  # fmt: skip
events = st.tuples(st.sampled_from("abcdef"), st.integers(-30, 40), st.integers(-3, 3))
# Rows; how far the watermark and the clock rise; the tasks that the rows are cut into; from how many parts on logs are
# compacted, and whether they are written anew as a whole; whether the batch is lost once, and a restart follows.
batches = st.lists(
    st.tuples(
        st.lists(events, max_size=6), st.integers(0, 12), st.integers(0, 25), st.integers(1, 3),
        st.sampled_from([2, 3, 16]), st.booleans(), st.booleans(), st.booleans(),
    ),
    min_size=3,
    max_size=14,
)  # fmt: skip


@st.composite
def plans(draw):
    """Every window, all aggregates, with and without panes and lateness."""
    window = draw(st.sampled_from((*WINDOWS, SessionWindow(80))))
    rules = (LateRule.WINDOW, LateRule.EVENT if isinstance(window, SessionWindow) else LateRule.FRAME)
    rule = draw(st.sampled_from(rules))
    how = {"early": draw(st.sampled_from(EARLY)), "accumulating": draw(st.booleans())}
    how["lateness_ms"] = draw(st.sampled_from([0, 0, 9])) if rule is LateRule.WINDOW else 0
    if how["early"] is None and not how["lateness_ms"]:
        how["accumulating"] = True
    return plan_of(window, late=LatePolicy.EMIT, late_rule=rule, **how)


def result_rows_of(plan, operator, tasks, watermark_ms, now_ms) -> list[dict]:
    """What a batch shows."""
    partials = [combine_rows(plan, table(rows)) for rows in tasks if rows]
    outputs = [operator.take(pa.concat_tables(partials), now_ms)] if partials else []
    outputs += [operator.clock(now_ms), operator.advance(watermark_ms)]
    return [row for one in outputs for row in rows_of(one)]


def with_parts(fan_out, is_whole):
    """Compaction from so many parts on, and of everything in every batch."""
    return StateLimits(
        fan_out=fan_out, class_bytes=1 << 20, whole_bytes=1 if is_whole else 8 << 20,
        session_steps=4, due_rows=2, undivided_rows=3, session_shards=3,
    )  # fmt: skip


@settings(max_examples=times(8), deadline=None)
@given(plans(), batches)
def test_neither_cut_nor_compaction_nor_restart_nor_a_lost_batch_can_be_seen(plan, steps):
    reference, operator, blobs = DrivenOperator(plan), DrivenOperator(plan), {}
    watermark_ms = now_ms = number = late_rows = 0
    for step, (ahead, rise_ms, clock_ms, tasks, fan_out, is_whole, is_lost, restarts) in enumerate(steps):
        rows = []
        for key, ahead_ms, n in ahead:
            rows.append(Event(key, watermark_ms + ahead_ms, n or None, n / 3, "pqr"[n % 3], number))
            number += 1
        watermark_ms, now_ms = watermark_ms + rise_ms, now_ms + clock_ms
        expected_rows = result_rows_of(plan, reference, [rows], watermark_ms, now_ms)
        limits = with_parts(fan_out, is_whole)
        task_rows = [rows[task::tasks] for task in range(tasks)]
        if plan.late_rule is LateRule.EVENT:  # what a task brought of a session is judged together
            task_rows = [rows]
        if is_lost:  # its state is never written, and it comes again
            lost_operator = DrivenOperator(plan, blobs, limits)
            assert result_rows_of(plan, lost_operator, task_rows, watermark_ms, now_ms) == expected_rows, step
            lost_operator.changed()
            operator, late_rows = DrivenOperator(plan, blobs, limits), late_rows + operator.late_rows
        assert result_rows_of(plan, operator, task_rows, watermark_ms, now_ms) == expected_rows, step
        blobs = operator.snapshot()
        if restarts:
            operator, late_rows = DrivenOperator(plan, blobs, limits), late_rows + operator.late_rows
    assert rows_of(operator.complete()) == rows_of(reference.complete())
    assert late_rows + operator.late_rows == reference.late_rows
