"""Watermarks of keys against the book, on random streams: what closes, when, what is late, and what state holds."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from conformance.driver import DrivenOperator
from keyedwm.core.errors import OptionError
from keyedwm.core.window_rules import LateRule
from keyedwm.operators.aggregates import functions as agg
from keyedwm.operators.buckets import bucket_of
from keyedwm.operators.frames.partials import combine_rows
from keyedwm.operators.frames.plan import SessionWindow, SlidingWindow, WindowPlan
from keyedwm.operators.keyed.key_census import SLOTS, key_texts
from keyedwm.operators.keyed.key_watermark_log import idle_prefix
from keyedwm.operators.keyed.per_key import Partitions, PerKey
from keyedwm.operators.protocol import operator_of
from keyedwm.operators.state.manifest import MANIFEST
from keyedwm.operators.state.store import MemoryStore
from keyedwm.spark.api.window_specs import per_key
from pyspark_wm_source.options.stage import STAGE, StageSpec
from tests.operators.laws.small import SMALL
from tests.operators.per_key_model import Model, Row, SessionModel
from tests.operators.streams import rows_of
from tests.support.frame_stage import SOURCE, frame_stage

SCHEMA = pa.schema(
    [("owner", pa.string()), ("page", pa.string()), ("time", pa.int64()), ("partition", pa.int32()), ("at", pa.int64())]
)


def plan_of(window, per_key, **settings) -> WindowPlan:
    return WindowPlan(
        schema=SCHEMA, by=("owner", "page"), time="time", window=window, aggregates=(("rows", agg.count()),),
        order=("partition", "at"), key_watermark=per_key, **settings,
    )  # fmt: skip


def table(rows) -> pa.Table:
    columns = [[getattr(row, name) for row in rows] for name in ("owner", "page", "time_ms", "partition", "offset")]
    return pa.table([pa.array(column, one.type) for column, one in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)


def panes(results) -> list[tuple]:
    return [(row["owner"], row["page"], row["end"], row["rows"], row["pane"]["timing"]) for row in rows_of(results)]


def stream(seed, steps=40):
    """Batches of (rows, W after them): devices of which one is far behind, one ahead, and one rests now and then."""
    rng = random.Random(seed)
    at, front_ms, delays = 0, 0, {"ahead": -30, "even": 0, "behind": 70, "other": 5}
    for step in range(steps):
        rows = []
        for _ in range(rng.randrange(7)):
            owner = rng.choice(list(delays))
            if owner == "other" and step % 20 > 8:
                continue
            time_ms = step * 6 - delays[owner] - rng.randrange(14)
            if owner == "behind" and rng.random() < 0.1:
                time_ms += 70
            rows.append(Row(owner, rng.choice("xy"), rng.randrange(2), time_ms, at))
            at += 1
        rows.sort(key=lambda row: (row.partition, row.offset))
        front_ms = max(front_ms, step * 6 - 20 + rng.randrange(6))
        yield rows, front_ms if step > 3 and rng.random() < 0.7 else None


def shared(seeds):
    """The streams of several seeds as one, each with devices of its own; W is that of the first."""
    for steps in zip(*map(stream, seeds), strict=True):
        rows = [
            replace(row, owner=f"{row.owner} {number}", offset=row.offset * len(steps) + number)
            for number, (of_seed, _) in enumerate(steps)
            for row in of_seed
        ]
        yield sorted(rows, key=lambda row: (row.partition, row.offset)), steps[0][1]


def both(per_key, window, batches, *, steps=1, **settings):
    """The plan's operator, built anew after so many steps, and the book; yields what each shows of a step."""
    rule = settings.get("late_rule", LateRule.WINDOW)
    plan = plan_of(window, per_key, **settings)
    kind, sizes = (SessionModel, (window.gap_ms, 0)) if plan.is_session else (Model, (window.size_ms, window.slide_ms))
    model = kind(
        per_key.lag_ms, per_key.behind_ms, *sizes, per_key.idle_ms, per_key.slowest,
        rule is LateRule.EVENT, settings.get("lateness_ms", 0), per_key.by is not None, rule is LateRule.FRAME,
    )  # fmt: skip
    blobs, late_rows, operator = {}, 0, DrivenOperator(plan)
    for step, (rows, front_ms) in enumerate(batches):
        if step % steps == 0:
            late_rows, operator = late_rows + operator.late_rows, DrivenOperator(plan, blobs, SMALL)
        tasks = [[row for row in rows if row.partition == number] for number in range(2)]
        partials = [combine_rows(plan, table(one)) for one in tasks if one]
        result_panes = panes(operator.take(pa.concat_tables(partials))) if partials else []
        expected_panes = model.add_rows(rows)
        if front_ms is not None:
            result_panes += panes(operator.advance(front_ms))
            expected_panes += model.advance(front_ms)
        assert late_rows + operator.late_rows == len(model.late)
        behind, late = model.key_lateness()
        if per_key.behind_ms <= SLOTS:  # each slot of the census is a millisecond
            assert list(operator.standing.behind) == behind
        of_keys = {key if isinstance(key, str) else ", ".join(key): count for key, count in late.items()}
        blobs = operator.snapshot()
        assert json.loads(blobs[MANIFEST])["census"]["dropped"] == of_keys
        yield sorted(result_panes), sorted(expected_panes), blobs
    operator = DrivenOperator(plan, blobs, SMALL)
    yield sorted(panes(operator.complete())), model.complete(), operator.snapshot()


WINDOWS = (SlidingWindow(10, 10), SlidingWindow(12, 4), SessionWindow(7))
KEYS = (
    PerKey(5, 60),
    PerKey(5, 60, partitions=Partitions.FASTEST),
    PerKey(0, 100, by=("owner",)),
    PerKey(8, 50, idle_ms=15),
    PerKey(3, 40, by=("owner",), idle_ms=9, partitions=Partitions.FASTEST),
    PerKey(0, 0),
)


HOW = ({}, {"lateness_ms": 13}, {"late_rule": LateRule.EVENT})
SEEDS = 18  # more by a command: per_key_laws.py


def drawn_case(seed):
    """A plan, by the number of a stream: all of them come in turn."""
    per_key, window, how = KEYS[seed % 6], WINDOWS[seed // 6 % 3], HOW[(seed + seed // 6 + seed // 18) % 3]
    return per_key, window, {} if how.get("lateness_ms", 0) > per_key.behind_ms else how


def keys_close(number, batches, steps=1):
    per_key, window, how = drawn_case(number)
    for step, (result_panes, expected_panes, _) in enumerate(both(per_key, window, batches, steps=steps, **how)):
        assert result_panes == expected_panes, step


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_key_closes_by_its_own_watermark(seed):
    keys_close(seed, stream(seed))


@pytest.mark.parametrize("seed", range(2, 8, 2))
def test_an_operator_goes_on_after_its_state_was_written(seed):
    keys_close(seed, stream(seed), steps=7)


@pytest.mark.parametrize("per_key", KEYS, ids=str)
def test_a_row_is_late_by_frame_once_what_counts_for_its_key_has_passed_its_frame(per_key):
    for step, (result_panes, expected_panes, _) in enumerate(
        both(per_key, WINDOWS[1], stream(3), late_rule=LateRule.FRAME)
    ):
        assert result_panes == expected_panes, step


@pytest.mark.parametrize("number", range(6, 12, 2))
def test_keys_of_several_streams_close_by_their_own_watermarks(number):
    keys_close(number, shared(range(number * 8, number * 8 + 8)))


@pytest.mark.parametrize("per_key", KEYS[1:3], ids=str)
def test_rows_judged_one_by_one_are_late_whatever_batches_bring_them(per_key):
    rows = [row for batch, _ in stream(3) for row in batch if row.partition == 0]
    plan = plan_of(WINDOWS[0], per_key, late_rule=LateRule.EVENT)
    outcomes = []
    for size in (1, 7, len(rows)):
        operator, result_panes = DrivenOperator(plan), []
        for at in range(0, len(rows), size):
            result_panes += panes(operator.take(combine_rows(plan, table(rows[at : at + size]))))
        outcomes.append((operator.late_rows, sorted(result_panes + panes(operator.complete()))))
    assert outcomes[0] == outcomes[1] == outcomes[2]
    assert outcomes[0][0] > 0


def test_state_holds_no_row_for_each_row_that_was_judged_by_itself():
    plan = plan_of(WINDOWS[0], PerKey(0, 100), late_rule=LateRule.EVENT)
    operator = DrivenOperator(plan)
    operator.take(combine_rows(plan, table([Row("abc"[at % 3], "x", 0, 5, at) for at in range(300)])))
    assert operator.open_entries == 3
    assert [rows for *_, rows, _ in panes(operator.complete())] == [100, 100, 100]


def test_a_device_a_day_late_loses_nothing_and_nobody_waits_for_it():
    plan = plan_of(WINDOWS[0], PerKey(0, 1000))
    operator = DrivenOperator(plan)
    on_time = [Row("on time", "x", 0, time_ms, time_ms) for time_ms in range(0, 900, 5)]
    operator.take(combine_rows(plan, table([Row("late", "x", 0, 0, 0)])))
    for row in on_time:
        row_panes = panes(operator.take(combine_rows(plan, table([row]))))
        assert bool(row_panes) == (row.time_ms % 10 == 0 and row.time_ms > 0)
        operator.advance(row.time_ms)
    result_panes = []
    for time_ms in range(1, 900, 5):
        result_panes += panes(operator.take(combine_rows(plan, table([Row("late", "x", 0, time_ms, time_ms)]))))
    assert operator.late_rows == 0
    assert [(end, rows) for _, _, end, rows, _ in result_panes] == [(10, 3), *((end, 2) for end in range(20, 900, 10))]


def test_state_holds_open_windows_and_not_a_day_of_closed_ones():
    plan = plan_of(WINDOWS[0], PerKey(0, 100_000))
    blobs, sizes = {}, []
    for step in range(60):
        operator = DrivenOperator(plan, blobs, SMALL)
        rows = [Row(f"device {n}", "x", 0, step * 5 + n % 5, step) for n in range(200)]
        operator.take(combine_rows(plan, table(rows)))
        operator.advance(step * 5)
        blobs = operator.snapshot()
        sizes.append(operator.open_entries)
    assert max(sizes) <= 3 * 200  # two parts of the open frame, and one whose last windows close
    assert sum(len(blob) for name, blob in blobs.items() if name != "own" and not name.startswith("own+")) < 40_000


def test_keys_behind_the_floor_are_forgotten():
    plan = plan_of(WINDOWS[0], PerKey(0, 100))
    blobs, sizes = {}, []
    for step in range(200):
        operator = DrivenOperator(plan, blobs, SMALL)
        operator.take(combine_rows(plan, table([Row(f"once {step}-{n}", "x", 0, step * 10, n) for n in range(20)])))
        operator.advance(step * 10)
        blobs = operator.snapshot()
        sizes.append(sum(len(blob) for name, blob in blobs.items() if name.startswith("own")))
    assert max(sizes[100:]) <= 1.2 * max(sizes[:100])


class Read(MemoryStore):
    """Knows which blobs were read."""

    read: set

    def get(self, name):
        self.read.add(name.partition("+")[0].partition("@")[0])
        return super().get(name)


def test_a_watermark_reads_keys_only_when_one_of_them_may_be_idle():
    plan, store, times = plan_of(WINDOWS[0], PerKey(0, 10_000, idle_ms=160)), Read(), []
    rows = table([Row(f"device {n}", "x", 0, 995 + n % 5, n) for n in range(200)])
    for front_ms in (None, 1_000, 1_001, 1_080, 1_159, 1_160, 1_161, 1_300):
        store.read = set()
        operator = operator_of(plan, store)
        if front_ms is None:
            outputs = list(operator.on_rows(0, combine_rows(plan, rows), None))
        else:
            outputs = list(operator.on_watermark(0, 0, front_ms))
        times.append((front_ms, "own" in store.read, sum(output.rows.num_rows for output in outputs)))
        store.apply(operator.drain())
    assert times == [
        (None, False, 0), (1_000, True, 0), (1_001, False, 0), (1_080, False, 0), (1_159, False, 0), (1_160, True, 200),
        (1_161, False, 0), (1_300, False, 0),
    ]  # fmt: skip
    assert not [name for name in store.blobs if name.startswith(idle_prefix())]


def test_a_key_that_goes_on_before_there_is_a_watermark_leaves_nothing_behind():
    plan = plan_of(WINDOWS[0], PerKey(0, 1000))
    blobs, sizes = {}, []
    for step in range(60):
        operator = DrivenOperator(plan, blobs, SMALL)
        operator.take(combine_rows(plan, table([Row("device", "x", 0, 1000 + step * 10, step)])))
        blobs = operator.snapshot()
        sizes.append(len(blobs[MANIFEST]))
    assert max(sizes[10:]) <= sizes[10] + 10


def test_no_two_keys_are_shown_alike():
    few = [None, "", "null", "'null'", "a", "a, b", "'a", '"a', "b", ", b", "'a, b'", "a\n", "a\\n"]
    keys = [(one, other) for one in few for other in few]
    columns = [pa.array(column, pa.string()) for column in zip(*keys, strict=True)]
    assert len(set(key_texts(columns, np.arange(len(keys))))) == len(keys)
    assert key_texts(columns, np.array([keys.index(("a", "b"))])) == ["a, b"]
    assert len(set(key_texts(columns[1:], np.arange(len(few))))) == len(few)


@pytest.mark.parametrize("kind", [pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.date32()], ids=str)
def test_a_key_that_is_a_time_beyond_the_calendar_is_shown_by_its_number(kind):
    """Spark's times reach farther than the years 1 to 9999 of Python."""
    most = 2 ** (kind.bit_width - 1)
    keys = pa.array([-most, most - 1, 0, None], pa.int32() if kind.bit_width == 32 else pa.int64()).cast(kind)
    *far, within, nothing = key_texts([keys], np.arange(4))
    assert far == [str(-most), str(most - 1)]
    assert "1970" in within
    assert nothing == "null"


def test_the_slowest_keys_of_a_batch_are_behind_the_watermark_that_the_batch_ends_with():
    plan = plan_of(WINDOWS[0], PerKey(0, SLOTS, by=("owner",)))
    operator = DrivenOperator(plan)
    rows = [Row(owner, "x", 0, time_ms, at) for at, (owner, time_ms) in enumerate((("slow", 500), ("fast", 590)))]
    operator.take(combine_rows(plan, table(rows)))
    operator.advance(580)
    assert operator.standing.slowest == [("slow", 80), ("fast", 0)]
    assert operator.standing.behind == [(0, 1), (80, 1)]


def test_rows_that_long_keys_lose_are_told_of_each_key_though_they_begin_alike():
    plan = plan_of(WINDOWS[0], PerKey(0, 1000, by=("owner",)))
    operator = DrivenOperator(plan)
    names = ["device/" * 20 + end for end in "ab"]
    for times in ([(name, 500) for name in names], [(names[0], ms) for ms in range(5)] + [(names[1], 0)]):
        rows = [Row(name, "x", 0, time_ms, at) for at, (name, time_ms) in enumerate(times)]
        operator.take(combine_rows(plan, table(rows)))
    assert [dropped_count for _, dropped_count in operator.standing.dropped_rows] == [5, 1]
    assert len({name for name, _ in operator.standing.slowest}) == 2


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"key_watermark": PerKey(0, 5, by=("device",))}, "which is not among the key columns 'owner', 'page'"),
        ({"key_watermark": PerKey(0, 5), "lateness_ms": 6}, "is beyond behind="),
        ({"key_watermark": PerKey(0, 5), "most_rows": 9}, "leave one of them out"),
        ({"key_watermark": PerKey(0, 5), "by": ()}, "without key columns there is one watermark"),
    ],
)
def test_a_plan_that_cannot_have_watermarks_of_keys_is_refused(settings, sentence):
    plan = plan_of(WINDOWS[0], PerKey(0, 5))
    with pytest.raises(OptionError, match=sentence):
        replace(plan, **settings)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"lag_ms": 7, "behind_ms": 5}, "behind must be the longer one"),
        ({"lag_ms": -1, "behind_ms": 5}, "must be 0 or more"),
        ({"lag_ms": 1, "behind_ms": 5, "idle_ms": 0}, "must be 1 or more"),
        ({"lag_ms": 1, "behind_ms": 5, "by": ()}, "leaves no key"),
        ({"lag_ms": 1, "behind_ms": 5, "by": ("k", "j", "k")}, "per_key: by names the column 'k' twice: name it once"),
        ({"lag_ms": 1, "behind_ms": 5, "partitions": "slowest"}, "Partitions.SLOWEST is expected"),
        ({"lag_ms": "1 minute", "behind_ms": 5}, "a whole number of ms is expected"),
    ],
)
def test_what_cannot_be_a_watermark_of_keys_is_refused(settings, sentence):
    with pytest.raises(OptionError, match=sentence):
        PerKey(**settings)


@pytest.mark.parametrize("by", [5, {"k": "key"}, {"k"}], ids=str)
def test_what_names_no_columns_is_refused_by_the_call(by):
    with pytest.raises(OptionError, match=r"by of per_key is .*a tuple of the names of columns is expected"):
        per_key("1 minute", behind="1 day", by=by)


@pytest.mark.parametrize("per_key", [*KEYS, PerKey(0, 9, by=("k",), idle_ms=3)], ids=str)
def test_reading_tasks_make_the_partials_that_the_operator_takes(per_key):
    per_key = replace(per_key, by=None if per_key.by is None else ("k",))
    how = {"window": SlidingWindow(10, 10), "late_rule": LateRule.EVENT, "key_watermark": per_key}
    spec = frame_stage({"k": "key::string"}, {"n": agg.count()}, **how)
    stage = StageSpec(**json.loads(spec.as_options()[STAGE])).stage(SOURCE, [""], {})
    assert stage.shipped.description() == spec.exchange
    assert stage.shipped.plan.key_watermark == per_key
    assert ("__channel" in stage.shipped.plan.partial_schema.names) == per_key.slowest


def test_all_keys_of_an_owner_live_in_one_bucket():
    plan = plan_of(WINDOWS[0], PerKey(0, 9, by=("owner",)))
    partials = combine_rows(plan, table([Row("device", page, 0, 5, at) for at, page in enumerate("abcdefghij")]))
    buckets = set(bucket_of([partials.column(name) for name in plan.owners], partials.num_rows, 8).tolist())
    assert len(buckets) == 1
