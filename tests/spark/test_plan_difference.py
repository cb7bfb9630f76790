"""A plan that cannot use a checkpoint's state is told by what differs."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from keyedwm.core.errors import OptionError
from keyedwm.operators.aggregates import functions as agg
from keyedwm.operators.frames.plan import SessionWindow, SlidingWindow
from keyedwm.operators.join.bounds import Bound
from keyedwm.operators.join.plan import How as Joined
from keyedwm.operators.messages.bucket_store import BucketStore
from keyedwm.operators.messages.join.bucket_join import BucketWindowJoin
from keyedwm.operators.messages.join.plan import How, WindowJoinPlan, WindowJoinSide
from keyedwm.operators.messages.retention import Retention
from keyedwm.operators.messages.windows import HoppingWindow
from keyedwm.operators.panes import Early
from keyedwm.spark.hosting.bucket_state import require_owner
from keyedwm.spark.hosting.plan_difference import difference
from tests.operators import joins, stored, window_joins
from tests.operators.streams import plan_of

TEN, TWENTY = HoppingWindow(10, 10), HoppingWindow(20, 20)
ROWS = (("rows", agg.count()),)


def noted(plan):
    return json.loads(json.dumps(plan.description(), sort_keys=True))  # as buckets write it


def windows(window=SlidingWindow(10, 10), aggregates=ROWS, **settings):  # noqa: B008
    return plan_of(window, aggregates=aggregates, **settings)


def a_store(window=TEN, **settings):
    return BucketStore(plan=stored.plan_of(window, **settings))


def a_join(window=TEN, **settings):
    return BucketWindowJoin(plan=window_joins.plan_of(window, **settings))


def pairs(bounds=(Bound(0, 0, 0, 10),), **settings):  # noqa: B008
    return joins.plan_of(bounds, **settings)


def long(last):
    return pa.field("v", pa.struct([*(pa.field(f"field{at}", pa.int64()) for at in range(12)), pa.field("z", last)]))


V, W = pa.field("v", pa.int64()), pa.field("w", pa.int64())


def sides(left=(), right=(), names=("a", "b")):
    """A join of two sides with these columns beside those that both have."""
    schemas = [pa.schema([*stored.SCHEMA, *own]) for own in (left, right)]
    made = [WindowJoinSide(name=name, schema=own, on=("k",)) for name, own in zip(names, schemas, strict=True)]
    retention = Retention(time_ms=30)
    return BucketWindowJoin(plan=WindowJoinPlan(left=made[0], right=made[1], window=TEN, retention=retention))


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (windows(), windows(SlidingWindow(20, 20)), [
            "it has 'window=sliding offset_ms=0 size_ms=10 slide_ms=10' where", "size_ms=20 slide_ms=20"]),
        (windows(), windows(aggregates=(("n", agg.count()),)), [
            "it has 'aggregates rows count", "this plan has 'aggregates n count"]),
        (windows(), windows(early=Early(rows=3)), ["it has 'early=none' where this", "every_ms=none rows=3'"]),
        (windows(), windows(accumulating=False), [
            "it has 'accumulating=True' where this plan has 'accumulating=False'"]),
        (a_store(), a_store(TWENTY), [
            "it has 'window=time offset_ms=0 size_ms=10 step_ms=10", "'window=time offset_ms=0 size_ms=20 step_ms"]),
        (a_store(), a_store(by=("n",)), ["it has 'by=k' where this plan has 'by=n'"]),
        (a_store(), a_store(late_rows=2), ["by=clock by_count=False", "by=clock by_count=True"]),
        (a_store(), a_store(early=Early(rows=3)), ["it has 'early=none' where this", "every_ms=none rows=3'"]),
        (a_store(), a_store(late_every_ms=5), ["together=False' where", "together=True'"]),
        (a_join(), a_join(how=How.LEFT), ["it has 'how=inner' where this plan has 'how=left'"]),
        (a_join(), a_join(TWENTY), [
            "it has 'window=time offset_ms=0 size_ms=10 step_ms=10", "'window=time offset_ms=0 size_ms=20 step_ms"]),
        (a_join(), a_join(early_every_ms=5), ["it has 'early=False' where this plan has 'early=True'"]),
        (a_join(early_every_ms=5), a_join(late_every_ms=5), [
            "it has 'early=True', 'late=False' where this plan has 'early=False', 'late=True'"]),
        (a_join(unbounded="left"), a_join(unbounded="right"), [
            "it has 'left: unbounded=True', 'right: unbounded=False' where", "'left: unbounded=False', 'right: unb"]),
        (sides(), sides(names=("b", "a")), [
            "it has 'sides 1=a', 'sides 2=b' where this plan has 'sides 1=b', 'sides 2=a'"]),
        (sides([V]), sides((), [V]), ["it has 'a: schema v int64' where this plan has 'b: schema v int64'"]),
        (sides([V, W]), sides([W, V]), [
            "in another order it has 'a: schema v int64' where this plan has 'a: schema w int64'"]),
        (sides([long(pa.int32())]), sides([long(pa.int64())]), [
            "it has '...", "z: int32>' where this plan has '...", "z: int64>'"]),
        (pairs(), pairs(how=Joined.LEFT), ["it has 'how=inner' where this plan has 'how=left'"]),
        (pairs(), pairs((Bound(0, 0, 0, 9),)), ["it has 'bounds=(l0, r0): from 0 to 10 ms' where", "from 0 to 9 ms'"]),
        (pairs(), pairs(on=("n",)), [
            "it has 'left: on=k', 'right: on=k' where this plan has 'left: on=n', 'right: on=n'"]),
        (a_join(), a_join(SessionWindow(5)), ["it has 'window=time", "'window=session gap_ms=5"]),
    ],
)  # fmt: skip
def test_what_differs_is_named_on_both_sides(old, new, told):
    found = difference(noted(old), new.description())
    assert all(words in found for words in told), found
    assert difference(noted(new), new.description()) == difference(None, new.description()) == ""
    note = {"version": 2, "buckets": 1, "plan": "one", "description": noted(old), "axis": 0, "name": "n"}
    with pytest.raises(OptionError) as refused:
        require_owner("aggregate", note, {**note, "plan": "other", "description": new.description()}, "windows or keys")
    assert f"(windows or keys differ; {found}): go back to that plan" in str(refused.value)


@pytest.mark.parametrize(
    ("other", "told"),
    [
        ({"buckets": 3}, "the checkpoint has 2 buckets and this plan 3; "),
        ({"buckets": 3}, "give buckets=2"),
        ({"axis": 5}, "follows the time axis with key 3, this plan the one with key 5"),
        ({"name": "days"}, "the checkpoint calls it hours, and so its channels: "),
        ({"name": "days"}, "give name='hours'"),
    ],
)
def test_another_number_of_buckets_axis_or_name_is_refused_with_the_one_that_fits(other, told):
    note = {"version": 2, "buckets": 2, "plan": "one", "description": {}, "axis": 3, "name": "hours"}
    require_owner("aggregate", note, note, "windows or keys")
    with pytest.raises(OptionError) as refused:
        require_owner("aggregate", note, note | other, "windows or keys")
    assert told in str(refused.value)


def test_state_of_0_2_0_is_taken_by_its_own_digest_and_else_told_to_run_under_its_python_once():
    note = {"version": 2, "buckets": 1, "plan": "by code", "axis": 0, "name": "n"}
    owner = {**note, "plan": "by version", "description": {"kind": "process"}}
    require_owner("aggregate", note, owner, "functions", ("by code",))
    with pytest.raises(OptionError, match="run the query for one batch with that Python and this keyedwm"):
        require_owner("aggregate", note, owner, "functions", ("by other code",))
    with pytest.raises(OptionError, match=r"\(functions differ\): go back to that plan"):
        require_owner("aggregate", note, owner, "functions")


def test_a_long_list_of_columns_is_cut():
    columns = [pa.field(f"c{at}", pa.int64()) for at in range(6)]
    new = {"schema": [[one.name, str(one.type)] for one in columns]}
    assert difference({}, new) == (
        "it has nothing where this plan has 'schema c0 int64', 'schema c1 int64', 'schema c2 int64' and 3 more"
    )
    assert difference({"by": ["x" * 500]}, {}).endswith("x...' where this plan has nothing")
