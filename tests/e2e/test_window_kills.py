"""A year of real flights through Kafka, the source, `aggregate` and the Delta sink, killed twice on the way."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator

import pytest
from deltalake import DeltaTable

from tests.e2e.killed import LIMIT_S, ROOT, ms, program
from tests.e2e.per_key_kills import departures, differing, expected, killed_twice, load, lost
from tests.tools import wait_until

pytestmark = [pytest.mark.starts, pytest.mark.timeout(2_400)]  # minutes on a machine of its own

GOLDEN = ROOT / "tests" / "vectors" / "windows" / "flights-golden-tumbling-join.json"


@pytest.fixture
def flights(kafka, topic) -> Iterator[str]:
    """A topic with the 328,521 departures of 2013, a partition per origin, and a record that closes each."""
    from keyedwm.cli.demo.flights import read_flights
    from keyedwm.cli.demo.load import Step, closing, new_topic

    departures = read_flights()
    with new_topic(kafka.bootstrap, topic) as loaded:
        loaded.write(Step(0, departures))
        loaded.write(closing(departures))
        yield topic


def test_flights_by_origin_and_hour_are_exact_after_two_kills(kafka, flights, tmp_path):
    log = tmp_path / "hours" / "_delta_log"
    for versions in (2, 5):
        with program("tests.e2e.window_flights", kafka.bootstrap, flights, tmp_path) as process:
            wait_until(
                lambda: process.poll() is not None or len(list(log.glob("*.json"))) >= versions,  # noqa: B023
                f"version {versions}", LIMIT_S,
            )  # fmt: skip
            assert process.poll() is None, "the program ended before it could be killed"
    with program("tests.e2e.window_flights", kafka.bootstrap, flights, tmp_path) as process:
        wait_until(lambda: process.poll() is not None, "the end", LIMIT_S)
        assert process.returncode == 0
    table = DeltaTable(tmp_path / "hours").to_pyarrow_table(columns=["origin", "start", "end", "flights"]).to_pylist()
    rows = sorted((r["origin"], ms(r["start"]), ms(r["end"]), r["flights"]) for r in table)
    golden = json.loads(GOLDEN.read_text())["expect"]["tumbling_1h_by_origin"]
    assert (len(rows), sum(row[3] for row in rows)) == (golden["rows"], golden["sum"])
    told = "\n".join("|".join(map(str, row)) for row in rows)
    assert hashlib.sha256(told.encode()).hexdigest() == golden["sha256"]


def test_what_keys_lose_by_watermarks_of_their_own_is_counted_exactly_after_two_kills(kafka, topic, tmp_path):
    flights, batch = departures(days=14), 2_000
    load(kafka.bootstrap, topic, flights)
    made = killed_twice(kafka.bootstrap, topic, tmp_path, 15, batch)
    assert differing(made, expected(flights, 15 * 60_000, batch)) == 0
    gone = lost(made)
    assert gone["carrier"] > gone["dest"] > gone["tailnum"] >= 0
