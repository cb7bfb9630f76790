"""Real flights through Kafka, the source, windows of three kinds and the Delta sink, killed on the way: exact.

More kills by KEYEDWM_KILLS=2; `tests.e2e.per_key_kills` kills twice, and `make campaign` again and again.
"""

from __future__ import annotations

import hashlib
import json
import os
import statistics
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from examples.demo.flights import HOUR_MS, read_flights
from examples.demo.load import Step, closing, new_topic
from tests.e2e.killed import LIMIT_S, ROOT, ms, program
from tests.e2e.per_key_kills import count_lost, departures, differing, expected, load, results
from tests.e2e.three_flights import BITE_OF_KEYS, LAG_MINUTES, QUERIES
from tests.tools import wait_until

pytestmark = [pytest.mark.starts, pytest.mark.timeout(2_400)]  # minutes on a machine of its own

GOLDEN = ROOT / "tests" / "vectors" / "windows" / "flights-golden-tumbling-join.json"
DAYS_OF_KEYS, DAYS_OF_STORE = 10, 21
KILLS = int(os.environ.get("KEYEDWM_KILLS", "1"))


@pytest.fixture(scope="module")
def topics(kafka) -> Iterator[list[str]]:
    """The 328,521 departures of 2013, ten days of them in one partition, and three weeks; closed by a record each."""
    names = [f"killed-{of}" for of in QUERIES]
    with ExitStack() as loaded:
        for name, flights in ((names[0], read_flights()), (names[2], read_flights(DAYS_OF_STORE))):
            topic = loaded.enter_context(new_topic(kafka.bootstrap, name))
            topic.write(Step(0, flights))
            topic.write(closing(flights))
        load(kafka.bootstrap, names[1], departures(DAYS_OF_KEYS))
        yield names


@pytest.fixture(scope="module")
def killed(kafka, topics: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the three queries, which ended at the last start, having continued after each kill."""
    home = tmp_path_factory.mktemp("killed")
    arguments = ("tests.e2e.three_flights", kafka.bootstrap, home, *topics)
    before = versions(home)
    at_kills = []
    for _ in range(KILLS):
        with program(*arguments) as process:
            wait_until(
                lambda: process.poll() is not None or all(versions(home)[of] > before[of] for of in QUERIES),  # noqa: B023
                "a new version of each table", LIMIT_S,
            )  # fmt: skip
            assert process.poll() is None, "the program ended before it could be killed"
        before = versions(home)
        at_kills.append(before)
    with program(*arguments) as process:
        wait_until(lambda: process.poll() is not None, "the end", LIMIT_S)
        assert process.returncode == 0
    ended = versions(home)
    assert all(ended[of] > at_kill[of] for at_kill in at_kills for of in QUERIES), (at_kills, ended)
    return home


def versions(home: Path) -> dict[str, int]:
    """How many versions the table of each query has."""
    return {of: len(list((home / of / "hours" / "_delta_log").glob("*.json"))) for of in QUERIES}


def test_flights_by_origin_and_hour_are_exact_after_a_kill(killed: Path):
    table_rows = rows_of(killed / "windows" / "hours")
    rows = sorted((r["origin"], ms(r["start"]), ms(r["end"]), r["flights"]) for r in table_rows)
    golden = json.loads(GOLDEN.read_text())["expect"]["tumbling_1h_by_origin"]
    assert (len(rows), sum(row[3] for row in rows)) == (golden["rows"], golden["sum"])
    text = "\n".join("|".join(map(str, row)) for row in rows)
    assert hashlib.sha256(text.encode()).hexdigest() == golden["sha256"]


def test_what_keys_lose_by_watermarks_of_their_own_is_counted_exactly_after_a_kill(killed: Path):
    actual = results(killed / "keys")
    assert differing(actual, expected(departures(DAYS_OF_KEYS), LAG_MINUTES * 60_000, BITE_OF_KEYS)) == 0
    losses = count_lost(actual)
    assert losses["carrier"] > losses["dest"] > losses["tailnum"] >= 0


def test_medians_by_origin_and_hour_are_exact_after_a_kill_and_each_flight_is_in_one_or_came_back(killed: Path):
    flights_by_place = flights_of(read_flights(DAYS_OF_STORE))
    rejected = rows_of(killed / "store" / "rejected")
    back = {(row["partition"], row["offset"]) for row in rejected}
    assert len(back) == len(rejected)
    assert {row["reason"] for row in rejected} == {"outside the retention"}
    panes = [row for row in rows_of(killed / "store" / "hours") if row["origin"] in {"EWR", "JFK", "LGA"}]
    last = {}
    for row in sorted(panes, key=lambda row: row["pane"]["index"]):
        last[row["origin"], ms(row["window"]["start"])] = row["flights"], row["delay"]
    delays_by_hour = defaultdict(list)
    for place, (origin, hour, delay) in flights_by_place.items():
        if place not in back:
            delays_by_hour[origin, hour].append(delay)
    assert last == {key: (len(delays), statistics.median(delays)) for key, delays in delays_by_hour.items()}
    assert sum(flights for flights, _ in last.values()) + len(back) == len(flights_by_place)
    timings = {row["pane"]["timing"] for row in panes}
    assert {"on_time", "late"} <= timings
    assert len(back) > 100
    assert any(row["pane"]["last"] for row in panes), "no window had to go for want of room"


def flights_of(departures: Any) -> dict[tuple[int, int], tuple[str, int, float]]:
    """Partition and offset → origin, hour and delay."""
    return {
        (row["partition"], row["offset"]): (
            row["key"], row["event_ms"] // HOUR_MS * HOUR_MS, float(json.loads(row["value"])["dep_delay"])
        )
        for row in departures.table.to_pylist()
    }  # fmt: skip


def rows_of(path: Path) -> list[dict]:
    return DeltaTable(path).to_pyarrow_table().to_pylist()
