"""A year of flights out of New York with the weather at their airport, one side hours behind, restarted every week."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from examples.demo.flights import data_file
from keyedwm.operators.join.bounds import Bound
from keyedwm.operators.join.plan import LEFT, RIGHT, Axis, How, JoinInputSpec, JoinPlan
from keyedwm.operators.plan_checks import FARTHEST_MS
from tests.operators.joins import Driven

HOUR_MS, DAY_MS = 3_600_000, 86_400_000
STEP_MS, BEHIND_MS = 7 * DAY_MS, 6 * HOUR_MS
SCHEMAS = (
    pa.schema([("origin", pa.string()), ("number", pa.int64())]),
    pa.schema([("origin", pa.string()), ("temp", pa.float64())]),
)


@pytest.fixture(scope="module")
def flights():
    """Departed flights by their scheduled hour and minute."""
    found = pd.read_csv(data_file("flights.csv.zip"))
    found = found[found.dep_time.notna()].reset_index(drop=True)
    hours = pd.to_datetime(found.time_hour).astype("int64") // 10**6
    return pd.DataFrame(
        {"origin": found.origin, "number": np.arange(len(found)), "hour": hours, "minute": found.minute}
    )


@pytest.fixture(scope="module")
def weather():
    seen = pd.read_csv(data_file("weather.csv"))
    hours = pd.to_datetime(seen.time_hour).astype("int64") // 10**6
    return pd.DataFrame({"origin": seen.origin, "temp": seen.temp, "time": hours})


def plan_of(bound: Bound, **settings) -> JoinPlan:
    sides = [
        JoinInputSpec(name, schema, ("origin",), (Axis(name, 0),))
        for name, schema in zip(("flights", "weather"), SCHEMAS, strict=True)
    ]
    return JoinPlan(left=sides[LEFT], right=sides[RIGHT], bounds=(bound,), how=How.LEFT, **settings)


def played(plan: JoinPlan, flights, weather) -> Iterator[pa.Table]:
    """Week by week, the weather six hours behind; the operator is built anew after each."""
    driven, late = Driven(plan), 0
    frames = flights.sort_values("time", kind="stable"), weather.sort_values("time", kind="stable")
    first = int(min(frame.time.min() for frame in frames))
    last = int(max(frame.time.max() for frame in frames))
    ends = [*range(first + STEP_MS, last + 1, STEP_MS), last + 1]
    done = [first, first]
    for week in ends:
        for side in (LEFT, RIGHT):
            end = week if side == LEFT or week == ends[-1] else week - BEHIND_MS
            frame = frames[side]
            rows = frame[(frame.time >= done[side]) & (frame.time < end)]
            one = plan.sides[side]
            table = pa.Table.from_pandas(rows[[*one.schema.names, "time"]], preserve_index=False)
            table = table.rename_columns([*one.schema.names, one.times[0]])
            table = one.shipped.exchange_rows(table.cast(one.shipped.schema))
            yield from (made.rows for made in driven.operator.on_rows(side, table, None))
            yield from (made.rows for made in driven.operator.on_watermark(side, 0, end))
            done[side] = end
        late += driven.operator.late_rows
        driven.restart()
    assert late == 0
    yield from (made.rows for made in driven.operator.on_end())


def test_every_flight_meets_the_weather_of_its_hour_or_none(flights, weather):
    made = pa.concat_tables(played(plan_of(Bound(0, 0, 0, 0)), flights.assign(time=flights.hour), weather))
    matched = made["event_time_weather"].is_valid().to_numpy()
    assert (int(matched.sum()), int((~matched).sum())) == (326_993, 1_528)
    assert sorted(made["number"].to_pylist()) == list(range(len(flights)))


def test_every_flight_meets_the_latest_weather_before_it_as_pandas_has_it(flights, weather):
    timed = flights.assign(time=flights.hour + flights.minute * 60_000)
    made = pa.concat_tables(played(plan_of(Bound(0, 0, -FARTHEST_MS, 0), latest=True), timed, weather)).to_pandas()
    wanted = pd.merge_asof(
        timed.sort_values("time"),
        weather.assign(seen=weather.time).sort_values("time"),
        on="time",
        by="origin",
    )
    made, wanted = (one.sort_values("number", ignore_index=True) for one in (made, wanted))
    assert len(made) == len(wanted) == 328_521
    np.testing.assert_array_equal(made.temp, wanted.temp)
    seen = made.event_time_weather.astype("int64") // 1000
    assert (seen[wanted.seen.notna()] == wanted.seen[wanted.seen.notna()]).all()
    assert made.event_time_weather.isna().sum() == wanted.seen.isna().sum()
