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
from tests.operators.joins import DrivenJoin

HOUR_MS, DAY_MS = 3_600_000, 86_400_000
STEP_MS, BEHIND_MS = 7 * DAY_MS, 6 * HOUR_MS
SCHEMAS = (
    pa.schema([("origin", pa.string()), ("number", pa.int64())]),
    pa.schema([("origin", pa.string()), ("temp", pa.float64())]),
)


@pytest.fixture(scope="module")
def flights():
    """Departed flights by their scheduled hour and minute."""
    flight_table = pd.read_csv(data_file("flights.csv.zip"))
    flight_table = flight_table[flight_table.dep_time.notna()].reset_index(drop=True)
    hours = pd.to_datetime(flight_table.time_hour).astype("int64") // 10**6
    return pd.DataFrame(
        {
            "origin": flight_table.origin,
            "number": np.arange(len(flight_table)),
            "hour": hours,
            "minute": flight_table.minute,
        }
    )


@pytest.fixture(scope="module")
def weather():
    weather_table = pd.read_csv(data_file("weather.csv"))
    hours = pd.to_datetime(weather_table.time_hour).astype("int64") // 10**6
    return pd.DataFrame({"origin": weather_table.origin, "temp": weather_table.temp, "time": hours})


def plan_of(bound: Bound, **settings) -> JoinPlan:
    sides = [
        JoinInputSpec(name, schema, ("origin",), (Axis(name, 0),))
        for name, schema in zip(("flights", "weather"), SCHEMAS, strict=True)
    ]
    return JoinPlan(left=sides[LEFT], right=sides[RIGHT], bounds=(bound,), how=How.LEFT, **settings)


def joined_tables(plan: JoinPlan, flights, weather) -> Iterator[pa.Table]:
    """Week by week, the weather six hours behind; the operator is built anew after each."""
    join, late = DrivenJoin(plan), 0
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
            yield from (output.rows for output in join.operator.on_rows(side, table, None))
            yield from (output.rows for output in join.operator.on_watermark(side, 0, end))
            done[side] = end
        late += join.operator.late_rows
        join.restart()
    assert late == 0
    yield from (output.rows for output in join.operator.on_end())


def test_every_flight_meets_the_weather_of_its_hour_or_none(flights, weather):
    result_table = pa.concat_tables(
        joined_tables(plan_of(Bound(0, 0, 0, 0)), flights.assign(time=flights.hour), weather)
    )
    is_matched = result_table["event_time_weather"].is_valid().to_numpy()
    assert (int(is_matched.sum()), int((~is_matched).sum())) == (326_993, 1_528)
    assert sorted(result_table["number"].to_pylist()) == list(range(len(flights)))


def test_every_flight_meets_the_latest_weather_before_it_as_pandas_has_it(flights, weather):
    timed = flights.assign(time=flights.hour + flights.minute * 60_000)
    result_table = pa.concat_tables(
        joined_tables(plan_of(Bound(0, 0, -FARTHEST_MS, 0), latest=True), timed, weather)
    ).to_pandas()
    expected_table = pd.merge_asof(
        timed.sort_values("time"),
        weather.assign(seen=weather.time).sort_values("time"),
        on="time",
        by="origin",
    )
    result_table, expected_table = (
        one.sort_values("number", ignore_index=True) for one in (result_table, expected_table)
    )
    assert len(result_table) == len(expected_table) == 328_521
    np.testing.assert_array_equal(result_table.temp, expected_table.temp)
    weather_ms = result_table.event_time_weather.astype("int64") // 1000
    assert (weather_ms[expected_table.seen.notna()] == expected_table.seen[expected_table.seen.notna()]).all()
    assert result_table.event_time_weather.isna().sum() == expected_table.seen.isna().sum()
