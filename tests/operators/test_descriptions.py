"""Plans are described in checkpoints and savepoints; names in the code may change, descriptions and digests may not.

`python -m tests.operators.test_descriptions` writes the descriptions of plans that are new in the list below.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from keyedwm.core.window_rules import LatePolicy, LateRule, Touching
from keyedwm.operators.aggregates import functions as agg
from keyedwm.operators.frames.plan import SessionWindow, SlidingWindow, tumbling
from keyedwm.operators.frames.zoned import ZonedWindow
from keyedwm.operators.join.bounds import Bound
from keyedwm.operators.join.plan import Axis, How, JoinInputSpec, JoinPlan
from keyedwm.operators.keyed.per_key import Partitions, PerKey
from keyedwm.operators.messages.bucket_store import BucketStore
from keyedwm.operators.messages.functions import median, window_function
from keyedwm.operators.messages.join.bucket_join import BucketWindowJoin
from keyedwm.operators.messages.join.plan import Emit, Keep, WindowJoinPlan, WindowJoinSide
from keyedwm.operators.messages.plan import StorePlan
from keyedwm.operators.messages.retention import Retention
from keyedwm.operators.messages.windows import CompletedBy, HoppingWindow
from keyedwm.operators.panes import Early, EveryBy
from keyedwm.operators.state.description import lines_of
from tests.compat import operators as compat
from tests.operators import joins, streams

GOLDEN = Path(__file__).with_name("descriptions.json")
HOPPING, RETENTION = HoppingWindow(6_000, 4_000, 1_000), Retention(time_ms=30_000)
DECIMAL = pa.schema([("k", pa.string()), ("d", pa.decimal128(10, 2)), ("t", pa.bool_()), ("event_time", pa.int64())])


def _store(window: Any, **settings: Any) -> BucketStore:
    aggregates = (("all", agg.collect("n")), ("middle", median("n")), ("own", window_function(len, pa.int64(), 2)))
    plan = StorePlan(
        schema=compat.SCHEMA, by=("k",), window=window, aggregates=aggregates, retention=RETENTION, **settings
    )
    return BucketStore(plan=plan, late=LatePolicy.EMIT, read_from=("json:$.k",))


def _window_join(window: Any, unbounded: str = "", **settings: Any) -> BucketWindowJoin:
    sides = {
        name: WindowJoinSide(name=name, schema=compat.SCHEMA, on=("k",), unbounded=name == unbounded)
        for name in ("left", "right")
    }
    return BucketWindowJoin(
        plan=WindowJoinPlan(**sides, window=window, retention=RETENTION, **settings), read_from=("x",)
    )


def _two_axes() -> JoinPlan:
    left = JoinInputSpec("left", joins.SCHEMAS[0], ("k",), (Axis("l0", 0), Axis("l1", 3)), read_from=("json:$.k",))
    right = JoinInputSpec("right", joins.SCHEMAS[1], ("k",), (Axis("r0", 0),))
    bounds = (Bound(0, 0, -5, 10), Bound(1, 0, 0, None))
    return JoinPlan(left=left, right=right, bounds=bounds, condition="v < w", late=LatePolicy.EMIT)


PLANS: Mapping[str, Callable[[], Any]] = {
    **compat.PLANS,
    "all aggregates": partial(streams.plan_of, tumbling(10_000, 2_000)),
    "types": lambda: streams.WindowPlan(
        schema=DECIMAL, by=("k", "t"), window=tumbling(10), aggregates=(("total", agg.sum("d")), ("high", agg.max("d")))
    ),
    "early by rows": partial(streams.plan_of, SlidingWindow(20, 10, 3), early=Early(rows=3), accumulating=False),
    "early by event time": partial(
        streams.plan_of, tumbling(10), early=Early(every_ms=5, by=EveryBy.EVENT), read_from=("json:$.k",)
    ),
    "late rule": partial(streams.plan_of, tumbling(10), late_rule=LateRule.EVENT),
    "zoned, late": partial(streams.plan_of, ZonedWindow("America/New_York", 86_400_000), lateness_ms=7),
    "sessions": partial(streams.plan_of, SessionWindow(5, Touching.SEPARATE), lateness_ms=3, early=Early(rows=2)),
    "sessions per key": partial(
        streams.plan_of, SessionWindow(5), key_watermark=PerKey(1, 9, ("k",), 7, Partitions.FASTEST)
    ),
    "store, panes": partial(
        _store, HOPPING, early=Early(rows=2, every_ms=9), late_every_ms=5, late_by=EveryBy.EVENT, accumulating=False,
    ),
    "store, late rows": partial(_store, HOPPING, late_rows=3),
    "store, full by message": partial(_store, tumbling(6_000), full=CompletedBy.MESSAGE),
    "window join, rows of a window": partial(_window_join, HOPPING, keep=Keep.LAST, how=How.FULL),
    "window join, unbounded": partial(_window_join, tumbling(6_000), "right", early_every_ms=5, late_every_ms=7),
    "session join, running": partial(_window_join, SessionWindow(700), emit=Emit.RUNNING),
    "session join, paired": partial(_window_join, SessionWindow(700), emit=Emit.PAIRED),
    "join of two axes": _two_axes,
}  # fmt: skip


def description_of(plan: Any) -> dict[str, Any]:
    description = json.loads(json.dumps(plan.description()))
    lines = list(lines_of(description))
    for side in [description, *description.get("sides", ())]:
        side.pop("arrow_schema", None)  # another Arrow may write it otherwise
    return {"digest": plan.digest(), "description": description, "lines": lines}


def test_every_plan_is_in_the_file():
    assert list(json.loads(GOLDEN.read_text())) == list(PLANS)


@pytest.mark.parametrize("name", PLANS)
def test_a_description_is_the_one_that_checkpoints_have(name):
    assert description_of(PLANS[name]()) == json.loads(GOLDEN.read_text())[name]


if __name__ == "__main__":
    known = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}
    golden = {name: known.get(name) or description_of(plan()) for name, plan in PLANS.items()}
    GOLDEN.write_text("".join(
        ["{\n", ",\n".join(f"{json.dumps(name)}: {json.dumps(one)}" for name, one in golden.items()), "\n}\n"]
    ))  # fmt: skip
