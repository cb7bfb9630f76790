"""Real flights through Kafka, a store and the Delta sink, killed twice: medians are exact, and counts add up."""

from __future__ import annotations

import json
import statistics
from collections import defaultdict

import pytest
from deltalake import DeltaTable

from keyedwm.cli.demo.flights import HOUR_MS, read_flights
from keyedwm.cli.demo.load import Step, closing, new_topic
from tests.e2e.killed import LIMIT_S, ms, program
from tests.tools import wait_until

pytestmark = [pytest.mark.starts, pytest.mark.timeout(2_400)]
DAYS = 21


def test_medians_by_origin_and_hour_are_exact_after_two_kills_and_each_flight_is_in_one_or_came_back(
    kafka, topic, tmp_path
):
    departures = read_flights(DAYS)
    with new_topic(kafka.bootstrap, topic) as loaded:
        loaded.write(Step(0, departures))
        loaded.write(closing(departures))
        log = tmp_path / "hours" / "_delta_log"
        for versions in (2, 6):
            with program("tests.e2e.store_flights", kafka.bootstrap, topic, tmp_path) as process:
                wait_until(
                    lambda: process.poll() is not None or len(list(log.glob("*.json"))) >= versions,  # noqa: B023
                    f"version {versions}", LIMIT_S,
                )  # fmt: skip
                assert process.poll() is None, "the program ended before it could be killed"
        with program("tests.e2e.store_flights", kafka.bootstrap, topic, tmp_path) as process:
            wait_until(lambda: process.poll() is not None, "the end", LIMIT_S)
            assert process.returncode == 0
    given = flights_of(departures)
    rejected = rows_of(tmp_path / "rejected")
    back = {(row["partition"], row["offset"]) for row in rejected}
    assert len(back) == len(rejected)
    assert {row["reason"] for row in rejected} == {"outside the retention"}
    panes = [row for row in rows_of(tmp_path / "hours") if row["origin"] in {"EWR", "JFK", "LGA"}]
    last = {}
    for row in sorted(panes, key=lambda row: row["pane"]["index"]):
        last[row["origin"], ms(row["window"]["start"])] = row["flights"], row["delay"]
    wanted = defaultdict(list)
    for place, (origin, hour, delay) in given.items():
        if place not in back:
            wanted[origin, hour].append(delay)
    assert last == {key: (len(delays), statistics.median(delays)) for key, delays in wanted.items()}
    assert sum(flights for flights, _ in last.values()) + len(back) == len(given)
    timings = {row["pane"]["timing"] for row in panes}
    assert {"on_time", "late"} <= timings
    assert len(back) > 100
    assert any(row["pane"]["last"] for row in panes), "no window had to go for want of room"


def flights_of(departures) -> dict[tuple[int, int], tuple[str, int, float]]:
    """Partition and offset → origin, hour and delay."""
    return {
        (row["partition"], row["offset"]): (
            row["key"], row["event_ms"] // HOUR_MS * HOUR_MS, float(json.loads(row["value"])["dep_delay"])
        )
        for row in departures.table.to_pylist()
    }  # fmt: skip


def rows_of(path) -> list[dict]:
    return DeltaTable(path).to_pyarrow_table().to_pylist()
