"""Stage, buckets and unpacking of a join without Spark: every batch begins from the blobs that the one before left."""

from __future__ import annotations

import random
from collections import Counter

import pyarrow as pa
import pytest

from keyedwm.core.control_row import ControlRow, encode_rows
from keyedwm.core.errors import InputError
from keyedwm.core.rows import ControlKind
from keyedwm.operators.buckets import bucket_ids
from keyedwm.operators.join.bounds import Bound
from keyedwm.operators.join.plan import LEFT, RIGHT, How, JoinPlan
from keyedwm.spark.hosting import stage_one
from keyedwm.spark.hosting.bucket_batch import BucketLayout
from keyedwm.spark.hosting.stage_one import CONTROL_TEXT, StageOne
from tests.operators.joins import plan_of
from tests.spark.two_inputs import TwoInputs

TEN = (Bound(0, 0, 0, 10),)


def Pipeline(plan: JoinPlan, buckets: int, name: str = "pairs") -> TwoInputs:
    """All buckets of one join; every batch begins from what the one before wrote down."""
    return TwoInputs(plan, layout_of(plan, buckets, name))


def layout_of(plan: JoinPlan, buckets: int, name: str = "pairs") -> BucketLayout:
    axes = tuple(tuple(axis.key for axis in side.axes) for side in plan.sides)
    return BucketLayout(name, tuple(bucket_ids(buckets)), axes, plan.kind, ("left side", "right side"))


def event(key: str | None, ms: int | None) -> dict:
    return {"k": key, "n": 1, "__time0": ms}


def told(
    channel: str, snapshot: int, watermark_ms: int | None = None, *, idle: bool = False, channels: int = 1
) -> list:
    """What a channel says at the end of a batch."""
    rows = [ControlRow(kind=ControlKind.BARRIER, channel=channel, offset=9, snapshot=snapshot, channels=channels)]
    if watermark_ms is not None:
        rows.insert(
            0, ControlRow(kind=ControlKind.WATERMARK, channel=channel, offset=9, key=0, watermark_ms=watermark_ms)
        )
    if idle:
        rows.insert(1, ControlRow(kind=ControlKind.IDLE, channel=channel, offset=9))
    return [{CONTROL_TEXT: encode_rows([row])[1:-1]} for row in rows]


def kinds(rows: list[dict]) -> list[str]:
    return [row["control"]["kind"] for row in rows if row["control"] is not None]


def events(rows: list[dict]) -> Counter:
    return Counter(
        (row["k"], *(row[name] and round(row[name].timestamp() * 1000) for name in ("event_time_l0", "event_time_r0")))
        for row in rows
        if row["control"] is None
    )


def test_a_batch_of_one_side_alone_is_joined_with_what_the_other_brought_before():
    pipeline = Pipeline(plan_of(TEN), buckets=2)
    first = pipeline.batch([event("a", 3), event("b", 4), *told("t-0", 0, 2)], [])
    assert (events(first), kinds(first)) == (Counter(), ["barrier", "barrier"])
    second = pipeline.batch([], [event("a", 5), event("c", 6), *told("u-0", 0, 5)])
    assert events(second) == {("a", 3, 5): 1}
    assert kinds(second) == ["watermark", "watermark", "barrier"] * 2


def test_barriers_go_up_by_one_in_every_batch_and_say_how_many_buckets_there_are():
    pipeline = Pipeline(plan_of(TEN), buckets=3)
    made = [pipeline.batch(told("t-0", 7, 1), told("u-0", 3, 1)), pipeline.batch([], told("u-0", 4, 2))]
    barriers = [[row["control"] for row in rows if row["control"]["kind"] == "barrier"] for rows in made]
    assert [{(one["snapshot"], one["channels"]) for one in of_batch} for of_batch in barriers] == [{(7, 3)}, {(8, 3)}]
    assert [len(of_batch) for of_batch in barriers] == [3, 3]


def test_the_join_is_idle_when_both_sides_are_and_wakes_with_either():
    pipeline = Pipeline(plan_of(TEN), buckets=1)
    assert kinds(pipeline.batch(told("t-0", 0, 5, idle=True), told("u-0", 0, 5))) == [
        "watermark",
        "watermark",
        "barrier",
    ]
    assert kinds(pipeline.batch([], told("u-0", 1, 6, idle=True))) == ["watermark", "idle", "barrier"]
    assert kinds(pipeline.batch([event("a", 9), *told("t-0", 1, 8)], [])) == ["active", "watermark", "barrier"]


def test_rows_whose_control_rows_were_filtered_are_refused():
    pipeline = Pipeline(plan_of(TEN), buckets=1)
    with pytest.raises(InputError, match="join pairs, right side: a batch came without barrier rows"):
        pipeline.batch(told("t-0", 0, 5), [event("a", 1)])


def test_a_null_key_and_a_missing_event_time_match_nothing_and_leave_an_outer_join_at_once():
    pipeline = Pipeline(plan_of(TEN, how=How.FULL), buckets=2)
    made = pipeline.batch([event(None, 3), event("a", None), *told("t-0", 0, 1)], [event(None, 3), *told("u-0", 0, 1)])
    assert events(made) == {(None, 3, None): 1, ("a", None, None): 1, (None, None, 3): 1}
    assert pipeline.null_event_time_rows == 1


def test_both_sides_of_one_read_are_shipped_as_two_reads_would_ship_them(monkeypatch):
    monkeypatch.setattr(stage_one, "GROUP_ROWS", 4)
    plan = plan_of(TEN)
    inputs, ids = dict(enumerate(plan.inputs)), tuple(bucket_ids(3))
    names = ("k", "n", "v", "w", "at", "then", CONTROL_TEXT)
    kinds = (pa.string(), *[pa.int64()] * 5, pa.string())
    rows = [dict(zip(names, (key, at, at + 1, at + 2, 10 * at, 20 * at, None), strict=True))
            for at, key in enumerate("abcdeabcd")]  # fmt: skip
    rows[4:4] = told("t-0", 0, 5)
    read = pa.Table.from_pylist(rows, schema=pa.schema(list(zip(names, kinds, strict=True))))
    places = (0, 1, 2, 4), (0, 1, 3, 5)
    apart = [
        row
        for (number, side), of_side in zip(inputs.items(), places, strict=True)
        for out in StageOne({number: side}, ids)(read.select([*of_side, 6]).to_batches(max_chunksize=4))
        for row in out.to_pylist()
    ]
    together = StageOne(inputs, ids, places=places)(read.to_batches(max_chunksize=4))
    once = [row for out in together for row in out.to_pylist()]
    assert len({row["part"] for row in once if row["partials"] is not None}) > 1
    assert [row for side in (LEFT, RIGHT) for row in once if row["input"] == side] == apart


@pytest.mark.parametrize("how", list(How))
def test_results_do_not_depend_on_the_number_of_buckets_or_tasks(how, seed):
    chance = random.Random(f"{seed} {how}")
    batches = []
    for number in range(8):
        sides = []
        for channel in "tu":
            rows = [event(chance.choice("abcdef"), number * 5 + chance.randrange(12)) for _ in range(8)]
            sides.append(rows + told(f"{channel}-0", number, number * 5 - 3))
        batches.append(sides)
    plan = plan_of(TEN, how=how)
    answers = []
    for buckets in (1, 3):
        pipeline = Pipeline(plan, buckets)
        made = [row for sides in batches for row in pipeline.batch(*sides)]
        names = [field.name for field in plan.result_schema]
        answers.append(Counter(tuple(row[name] for name in names) for row in made if row["control"] is None))
    assert answers[0] == answers[1]
    assert answers[0]
