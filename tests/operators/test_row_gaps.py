"""Sessions whose rows say their gap, against plain Python: for any cut and after every restart."""

from __future__ import annotations

import random
import re
from datetime import timedelta

import pyarrow as pa
import pytest

from keyedwm.core.errors import InputError, OptionError
from keyedwm.core.window_rules import Touching
from keyedwm.operators.aggregates import functions as agg
from keyedwm.operators.buckets import bucket_ids
from keyedwm.operators.frames.partials import ExchangePartials, combine_rows
from keyedwm.operators.frames.plan import RowGapWindow, WindowPlan
from keyedwm.operators.messages.arguments import check_gap
from keyedwm.operators.panes import Early
from keyedwm.operators.protocol import operator_of
from keyedwm.operators.shuffle import shipped
from keyedwm.operators.state.store import MemoryStore
from keyedwm.spark.api.window_specs import session

SCHEMA = pa.schema([("k", pa.string()), ("gap", pa.duration("ms")), ("event_time", pa.int64())])


def plan_of(window, schema=SCHEMA, **how) -> WindowPlan:
    return WindowPlan(schema=schema, by=("k",), window=window, aggregates=(("n", agg.count()),), **how)


def model(rows: list[tuple], touching: Touching) -> set[tuple]:
    """(key, start, end, rows) of intervals [time, time + gap) that overlap, or touch; without a gap there is none."""
    sessions: list[list] = []
    for key, gap, ms in sorted(rows, key=lambda one: (str(one[0]), one[2])):
        if gap is None or gap <= 0:
            continue
        last = sessions[-1] if sessions and sessions[-1][0] == key else None
        if last and (ms < last[2] or (touching is Touching.MERGE and ms == last[2])):
            last[2], last[3] = max(last[2], ms + gap), last[3] + 1
        else:
            sessions.append([key, ms, ms + gap, 1])
    return {tuple(one) for one in sessions}


def session_counts(plan: WindowPlan, batches) -> set[tuple]:
    store, counts_by_session = MemoryStore(), {}
    for rows, watermark_ms in batches:
        operator = operator_of(plan, store)
        table = pa.table([pa.array(one, of.type) for one, of in zip(zip(*rows, strict=True), SCHEMA, strict=True)]
                         if rows else SCHEMA.empty_table().columns, schema=SCHEMA)  # fmt: skip
        for output in [
            *operator.on_rows(0, combine_rows(plan, table), None),
            *operator.on_watermark(0, 0, watermark_ms),
        ]:
            for row in output.rows.to_pylist():
                start, end = (round(row["window"][edge].timestamp() * 1_000) for edge in ("start", "end"))
                if row["pane"]["timing"] == "on_time":
                    counts_by_session[row["k"], start, end] = row["n"]
        store.apply(operator.drain())
    return {(*window, n) for window, n in counts_by_session.items()}


@pytest.mark.parametrize("touching", list(Touching))
@pytest.mark.parametrize("how", [{}, {"early": Early(rows=2)}])
def test_rows_are_one_session_while_the_gap_of_an_earlier_one_lasts(touching, how, seed):
    for number in range(10):
        rng = random.Random(f"{seed} {touching} {how} {number}")
        rows = [
            (rng.choice(["a", "b", None]), rng.choice([None, 0, -5, 1, 10, 30, 400]), 10 * n - rng.choice([0, 0, 50]))
            for n in range(120)
        ]
        batches, at = [], 0
        while at < len(rows):
            behind = at + rng.choice([1, 4, 30])
            batches.append((rows[at:behind], min((one[2] for one in rows[behind:]), default=0) - rng.choice([0, 20])))
            at = behind
        plan = plan_of(RowGapWindow(touching=touching, gap_column="gap"), **how)
        assert session_counts(plan, [*batches, ([], 10**6)]) == model(rows, touching)


def test_rows_without_a_gap_or_with_less_than_a_millisecond_belong_to_no_session():
    schema = SCHEMA.set(1, pa.field("gap", pa.duration("us")))
    plan = plan_of(session(gap_column="gap"), schema)
    rows = [["a"] * 4, [timedelta(seconds=1), None, timedelta(microseconds=999), timedelta(seconds=-1)], [0, 5, 7, 9]]
    partials = combine_rows(
        plan, pa.table([pa.array(one, of.type) for one, of in zip(rows, schema, strict=True)], schema=schema)
    )
    assert [(one["__start"], one["__end"], one["__rows"]) for one in partials.to_pylist()] == [(0, 1_000, 1)]


def test_rows_without_a_gap_are_counted_once_and_those_without_a_time_are_not_among_them():
    plan = plan_of(session(gap_column="gap"))
    rows = [["a"] * 5, pa.array([5, None, 0, -1, None], SCHEMA.field("gap").type), [0, 1, 2, 3, None]]
    assert left_out(plan, rows) == (3, 1)
    assert left_out(plan_of(session("5 seconds")), rows) == (0, 1)


def left_out(plan: WindowPlan, rows: list) -> tuple[int, int]:
    """How many rows without a gap, and without an event time, all buckets are told of."""
    shuffled = pa.Table.from_batches(
        shipped({0: ExchangePartials(plan)}, bucket_ids(3), 0, [[pa.table(rows, schema=SCHEMA)]], [])
    )
    return sum(shuffled["no_gaps"].to_pylist()), sum(shuffled["null_event_times"].to_pylist())


def test_a_gap_beyond_all_time_is_named():
    plan = plan_of(session(gap_column="gap"))
    with pytest.raises(InputError, match=r"the gap 9007199254740992 ms of a session in column 'gap' is longer than"):
        combine_rows(plan, pa.table([["a"], pa.array([2**53], pa.duration("ms")), [0]], schema=SCHEMA))


def test_states_of_sessions_with_one_gap_are_named_as_before():
    assert str(session("5 seconds")) == "SessionWindow(gap_ms=5000, touching=<Touching.MERGE: 'merge'>)"


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (session, "session: a gap such as '10 minutes' is expected"),
        (lambda: session("5 minutes", gap_column="gap"), "a gap or the name of a column is expected"),
        (lambda: session("5 minutes", zone="Europe/Berlin"), "zone='Europe/Berlin': a gap is a length of time"),
        (lambda: session(gap_column=""), "a gap or the name of a column is expected"),
        (lambda: plan_of(session(gap_column="k")), "the gap column 'k' of a session is of type string, it must be"),
        (lambda: plan_of(session(gap_column="no")), "'no'"),
        (lambda: check_gap(session(gap_column="gap")), "sessions that keep their messages have one gap"),
    ],
)  # fmt: skip
def test_a_wrong_gap_is_refused_in_one_sentence(call, sentence):
    with pytest.raises((OptionError, InputError), match=re.escape(sentence)):
        call()
