"""State that moves to other buckets and plans: nothing is lost, nothing comes twice, and the rest is refused."""

from __future__ import annotations

import json
import pickle
from collections import Counter
from datetime import datetime, timezone

import pyarrow as pa
import pytest

from keyedwm.core.control_row import ControlRow
from keyedwm.core.errors import FormatError, InputError, OptionError
from keyedwm.core.rows import ControlKind
from keyedwm.core.window_rules import LatePolicy, LateRule
from keyedwm.operators.aggregates import functions as agg
from keyedwm.operators.buckets import bucket_ids
from keyedwm.operators.frames.plan import SessionWindow, SlidingWindow, WindowPlan
from keyedwm.operators.frames.rescale import FrameRescale
from keyedwm.operators.keyed.per_key import PerKey
from keyedwm.operators.panes import Early
from keyedwm.operators.state.manifest import MANIFEST
from keyedwm.operators.state.store import MemoryStore
from keyedwm.savepoint_files import check_blobs
from keyedwm.spark.hosting.bucket_batch import BucketLayout, BucketManifest
from keyedwm.spark.hosting.continue_from import check_follows
from keyedwm.spark.hosting.rescale_state import RescaledState
from tests.compat.plain import AGGREGATES
from tests.operators.moving import pieces
from tests.spark.test_bucket_batch import SCHEMA, Pipeline, results, staged, steps

ALL = ("rows", "values", "total", "mean", "low", "high", "first", "last", "all", "distinct")


def plan_of(window, names=ALL, **how) -> WindowPlan:
    aggregates = tuple(one for one in AGGREGATES if one[0] in names)
    return WindowPlan(schema=SCHEMA, by=("k",), window=window, aggregates=aggregates, time="__time", **how)


PLANS = {
    "tumbling": (SlidingWindow(6_000, 6_000), {}),
    "panes": (
        SlidingWindow(6_000, 6_000),
        {"early": Early(rows=3), "lateness_ms": 4_000, "late": LatePolicy.EMIT},
    ),
    "sliding": (SlidingWindow(6_000, 2_000, 500), {"late_rule": LateRule.FRAME}),
    "blocks": (SlidingWindow(20_000, 500), {}),
    "discarding": (SlidingWindow(6_000, 2_000), {"lateness_ms": 4_000, "accumulating": False}),
    "keys": (SlidingWindow(6_000, 2_000), {"key_watermark": PerKey(500, 9_000)}),
    "idle keys": (SlidingWindow(6_000, 6_000), {"key_watermark": PerKey(500, 9_000, idle_ms=2_000)}),
    "sessions of keys": (SessionWindow(2_000), {"key_watermark": PerKey(500, 9_000)}),
    "sessions": (SessionWindow(700), {}),
    "long sessions": (SessionWindow(2_000), {}),
    "session panes": (SessionWindow(700), {"early": Early(rows=2), "lateness_ms": 2_000, "late": LatePolicy.EMIT}),
}


def move_of(old: Pipeline, plan: WindowPlan, with_description=True, buckets=2) -> RescaledState:
    """As a savepoint has it."""
    stores = [old.state[one][1] for one in old.layout.ids]
    move = FrameRescale(
        who="aggregate hours",
        plan=plan,
        count=buckets,
        digest=old.plan.digest(),
        description=json.loads(json.dumps(old.plan.description())) if with_description else None,
        states=tuple(json.loads(store.get(MANIFEST)) for store in stores),
        blobs=tuple(tuple(name for name in store.blobs if name != MANIFEST) for store in stores),
    )
    notes = tuple(json.loads(json.dumps(old.state[one][0].as_json())) for one in old.layout.ids)
    return RescaledState(rescale=move, name="hours", manifests=notes, follows={})


def moved_pipeline(old: Pipeline, plan: WindowPlan, buckets: int) -> Pipeline:
    """Another pipeline that begins with the state of this one."""
    begin = pickle.loads(pickle.dumps(move_of(old, plan, buckets=buckets)))  # noqa: S301  as Spark does
    new = Pipeline(plan, buckets)
    state_pieces = pieces(begin, new.layout, [old.state[one][1].blobs for one in old.layout.ids])
    for number, one in enumerate(new.layout.ids):
        bucket_pieces = [piece for piece in state_pieces if piece.bucket == one]
        blobs = {piece.name: piece.blob for piece in bucket_pieces}
        assert len(blobs) == len(bucket_pieces)
        half = begin.manifest_with(
            begin.manifest_with(None, bucket_pieces[::2], number), bucket_pieces[1::2], number
        )  # Spark may hand it over in pieces
        assert json.loads(half) == json.loads(begin.manifest_with(None, bucket_pieces, number))
        blobs[MANIFEST] = half
        note = begin.first_manifest(new.layout, one)
        note.blobs = {name: len(blob) for name, blob in blobs.items()}
        new.state[one] = note, MemoryStore(blobs)
    return new


@pytest.mark.parametrize("name", PLANS)
def test_results_are_those_of_a_query_that_was_not_moved(name, seed):
    window, how = PLANS[name]
    plan = plan_of(window, **how)
    still, moving_pipeline = Pipeline(plan, 2), Pipeline(plan, 2)
    row_count = 0
    for number, tasks in enumerate(steps(f"{seed} {name}")[-8:]):
        if number % 3 == 2:
            moving_pipeline = moved_pipeline(moving_pipeline, plan, number)
        expected_rows = results(still.batch([staged(rows) for rows in tasks]))
        assert results(moving_pipeline.batch([staged(rows) for rows in tasks])) == expected_rows
        row_count += expected_rows.total()
    assert row_count > 10


def test_counts_of_keys_continue_in_as_many_buckets(seed):
    window, how = PLANS["keys"]
    plan = plan_of(window, **how)
    old = Pipeline(plan, 2)
    for tasks in steps(f"{seed} counts")[-8:]:
        old.batch([staged(rows) for rows in tasks])
    new = moved_pipeline(old, plan, 2)
    counts = [
        [json.loads(one.state[number][1].get(MANIFEST))["census"] for number in one.layout.ids] for one in (old, new)
    ]
    assert counts[0] == counts[1]
    assert any(one["forgotten"] for one in counts[0])


@pytest.mark.parametrize("name", PLANS)
def test_aggregates_that_stay_hold_what_they_held_and_new_ones_begin(name, seed):
    """Of windows that were open, an added aggregate tells what came since; of those that open later, everything."""
    window, how = PLANS[name]
    before, after = ("rows", "total", "first", "high"), ("high", "mean", "first", "all", "rows")
    kept_names = ("high", "first", "rows")
    still, moving_pipeline = Pipeline(plan_of(window, after, **how), 2), Pipeline(plan_of(window, before, **how), 2)
    batches = [*steps(f"{seed} {name} others")[:8], LAST]
    row_count = 0
    for number, tasks in enumerate(batches):
        if number == 2:
            moving_pipeline = moved_pipeline(moving_pipeline, plan_of(window, after, **how), 3)
        expected_rows = still.batch([staged(rows) for rows in tasks])
        moved_rows = moving_pipeline.batch([staged(rows) for rows in tasks])
        assert only(moved_rows, kept_names) == only(expected_rows, kept_names)
        later = [
            [row for row in rows if row["control"] or row["window"]["start"] >= MOVE_TIME]
            for rows in (moved_rows, expected_rows)
        ]
        assert results(later[0]) == results(later[1])
        row_count += results(later[0]).total()
    assert row_count > 2


# The columns of the state are those of a plan's windows and keys; rules for late rows and panes add none.
COLUMNS_OF_STATE = ("sliding", "keys", "sessions of keys", "sessions")


@pytest.mark.parametrize(
    ("name", "kept_names"),
    [(name, (("rows",), ("rows", "values"))[at % 2]) for at, name in enumerate(COLUMNS_OF_STATE)],
)
def test_aggregates_behind_those_that_stay_are_forgotten(name, kept_names, seed):
    """Those that stay keep their places: the first columns of the state are those of the new plan already."""
    window, how = PLANS[name]
    plan = plan_of(window, kept_names, **how)
    still, moving_pipeline = Pipeline(plan, 2), Pipeline(plan_of(window, ("rows", "values", "total", "high"), **how), 2)
    row_count = 0
    for number, tasks in enumerate([*steps(f"{seed} {name} forgotten")[:6], LAST]):
        if number == 2:
            moving_pipeline = moved_pipeline(moving_pipeline, plan, 3)
        expected_rows = only(still.batch([staged(rows) for rows in tasks]), kept_names)
        assert only(moving_pipeline.batch([staged(rows) for rows in tasks]), kept_names) == expected_rows
        row_count += expected_rows.total()
    assert row_count > 2


# Every event of the batches before the move is below it.
MOVE_TIME = datetime.fromtimestamp(2 * 5 + 9, timezone.utc)
LAST = steps("last")[-1]


def only(rows, names) -> Counter:
    return Counter(
        repr({name: row[name] for name in ("k", "window", "pane", *names)}) for row in rows if row["control"] is None
    )


def started_pipeline(plan: WindowPlan) -> Pipeline:
    pipeline = Pipeline(plan, 2)
    for tasks in steps("refused")[:3]:
        pipeline.batch([staged(rows) for rows in tasks])
    return pipeline


TUMBLING = SlidingWindow(6_000, 6_000)


@pytest.mark.parametrize(
    ("plan", "sentence"),
    [
        (
            plan_of(SlidingWindow(8_000, 8_000)),
            "windows of the savepoint are .*6000.*, and of this plan .*8000",
        ),
        (
            plan_of(TUMBLING, lateness_ms=1),
            "the rules for late rows and panes .* are .*late_rule=window, lateness_ms=0, .* this plan .*_ms=1, ",
        ),
        (
            WindowPlan(schema=SCHEMA, by=("v",), window=TUMBLING, aggregates=(("n", agg.count()),), time="__time"),
            "the key columns of the savepoint are by k string, and of this plan by v double",
        ),
        (plan_of(TUMBLING, ("last",)), "'last' is last.v., which cannot be added to windows that are open"),
    ],
)
def test_another_plan_is_refused_in_one_sentence(plan, sentence):
    old = started_pipeline(plan_of(TUMBLING, ("rows", "first")))
    with pytest.raises(OptionError, match=sentence):
        move_of(old, plan)


def own_of(version):
    """An aggregate of the user's own, in this version of its functions."""
    own = agg.Aggregate(
        column="v", result=pa.float64(), create=float, accumulate=lambda total, value: total + value,
        combine=lambda one, other: one + other, version=version,
    )  # fmt: skip
    return WindowPlan(schema=SCHEMA, by=("k",), window=TUMBLING, aggregates=(("own", own),), time="__time")


@pytest.mark.parametrize(
    ("plan", "changed_plan", "sentence"),
    [
        (own_of(1), own_of(2), r"'own' is Aggregate\(v: version 1; .* of this plan Aggregate\(v: version 2; "),
        (
            plan_of(TUMBLING, ("rows", "total")),
            WindowPlan(
                schema=SCHEMA, by=("k",), window=TUMBLING, time="__time",
                aggregates=(("rows", agg.count()), ("total", agg.max("v"))),
            ),
            r"'total' is sum\(v\) of the savepoint, and of this plan max\(v\): give it another name",
        ),
    ],
    ids=["another version", "another function"],
)  # fmt: skip
def test_an_aggregate_that_is_another_one_under_its_name_does_not_begin_anew_in_silence(plan, changed_plan, sentence):
    old = started_pipeline(plan)
    with pytest.raises(OptionError, match=sentence):
        move_of(old, changed_plan)


def test_a_plan_that_nobody_noted_moves_as_it_is_or_not_at_all():
    plan = plan_of(TUMBLING, ("rows", "first"))
    old = started_pipeline(plan)
    assert move_of(old, plan, with_description=False)
    with pytest.raises(OptionError, match=r"is of keyedwm 0\.2\.0, which did not note the plan"):
        move_of(old, plan_of(TUMBLING, ("rows",)), with_description=False)


def test_results_that_are_held_back_do_not_move():
    old = started_pipeline(plan_of(TUMBLING, ("rows",)))
    _, store = old.state[old.layout.ids[1]]
    manifest = json.loads(store.get(MANIFEST))
    store.blobs[MANIFEST] = json.dumps(manifest | {"watermark_ms": manifest["watermark_ms"] - 6_000}).encode()
    with pytest.raises(OptionError, match="max_rows_per_batch holds results back"):
        move_of(old, old.plan)


def test_a_savepoint_that_was_copied_in_part_is_refused():
    old = started_pipeline(plan_of(TUMBLING))
    notes = move_of(old, old.plan).manifests
    counts = {number: len(note["blobs"]) - 1 for number, note in enumerate(notes)}
    check_blobs("place", notes, counts)
    check_blobs("place", [*notes, {"blobs": {MANIFEST: 5}}], counts)  # a bucket that holds nothing
    assert counts[1] > 1
    for copied_counts in (counts | {1: counts[1] - 1}, counts | {1: 2 * counts[1]}, {0: counts[0]}):
        sentence = (
            f"place has {copied_counts.get(1, 0)} blobs of bucket 1 under state, and savepoint.json lists {counts[1]}"
        )
        with pytest.raises(FormatError, match=sentence):
            check_blobs("place", notes, copied_counts)


def test_channels_that_are_new_tell_their_watermark_and_known_ones_do_not():
    old = started_pipeline(plan_of(TUMBLING))
    begin = move_of(old, old.plan)
    layout = BucketLayout("hours", tuple(bucket_ids(3)), ((0,),))
    emitted_watermarks_ms = [begin.first_manifest(layout, one).emitted_ms for one in layout.ids]
    assert emitted_watermarks_ms == [old.state[0][0].emitted_ms] * 2 + [None]
    assert isinstance(begin.first_manifest(layout, 0), BucketManifest)


def barriers(source: str, snapshot: int) -> list[ControlRow]:
    return [
        ControlRow(kind=ControlKind.BARRIER, channel=f"{source}-{n}", snapshot=snapshot, channels=2, source=source)
        for n in range(2)
    ]


def test_the_first_batch_must_come_next_after_the_savepoint():
    follows = check_follows("aggregate hours", {"a": 4, "b": 7}, barriers("a", 4))
    assert follows == {"a": None, "b": 7}
    assert check_follows("aggregate hours", follows, barriers("a", 5)) == follows
    assert check_follows("aggregate hours", follows, [*barriers("a", 6), *barriers("b", 7)]) == {}
    for late in (barriers("b", 8), barriers("c", 0)):
        with pytest.raises(InputError, match="give the same savepoint to the source"):
            check_follows("aggregate hours", follows, late)
