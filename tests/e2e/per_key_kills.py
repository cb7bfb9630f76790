"""A year of flights by watermarks of their keys, through Kafka, Spark and Delta, the program killed twice.

Run: python -m tests.e2e.per_key_kills [--lags 0 15 60 180] [--days 365] [--batch 40000]
Prints for each lag how many rows carriers, destinations and aircraft lose, beside the published row-by-row figures of a
year, and how many results differ from those computed row by row in plain Python; ends with 1 if any does.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from examples.demo.flights import HOUR_MS, MINUTE_MS, data_file
from keyedwm.kafka.requests.produce import send
from keyedwm.testing.broker import broker
from tests.e2e.killed import LIMIT_S, ROOT, ms, program
from tests.e2e.per_key_flights import KEYS, TABLE
from tests.tools import cluster_at, make_topic, wait_until

VECTOR = ROOT / "tests" / "vectors" / "windows" / "keyed-watermark-flights.json"
DAY_MS = 24 * HOUR_MS
KILLED_AT = (1, 3)  # versions of the Delta table


def departures(days: int) -> Any:
    """Return the departures in the order in which they became known, with the planned time in ms."""
    import pandas as pd

    rows = pd.read_csv(data_file("flights.csv.zip"))
    rows = rows[rows["dep_delay"].notna()]
    event = rows["time_hour"].str.rstrip("Z").to_numpy("datetime64[ms]").astype(np.int64)
    event += rows["minute"].to_numpy(np.int64) * MINUTE_MS
    known = event + rows["dep_delay"].to_numpy(np.int64) * MINUTE_MS
    rows = rows.assign(event=event).iloc[np.argsort(known, kind="stable")]
    return rows[rows["event"] < event.min() + days * DAY_MS]


def load(bootstrap: str, topic: str, flights: Any) -> None:
    """Write them into one partition, and behind them a record without a value that closes all windows."""
    make_topic(bootstrap, topic, 1)
    values = flights[list(KEYS)].agg(",".join, axis=1).str.encode("utf-8").tolist()
    times = flights["event"].tolist()
    rows = pa.table(
        {
            "key": pa.nulls(len(times) + 1, pa.binary()),
            "value": pa.array([*values, None], pa.binary()),
            "timestamp": [*times, max(times) + 200 * DAY_MS],
        }
    )
    cluster = cluster_at(bootstrap)
    send(cluster, topic, {0: rows})
    cluster.close()


def expected(flights: Any, lag_ms: int, batch: int) -> Counter:
    """Return results, row by row: what, key, end and whether it was lost → flights; by batches of so many records."""
    flights_by_result: Counter = Counter()
    event = flights["event"].tolist()
    for kind in KEYS:
        keys, highest = flights[kind].tolist(), {}
        for first in range(0, len(event), batch):
            before = dict(highest)
            for key, time_ms in zip(keys[first : first + batch], event[first : first + batch], strict=True):
                end = time_ms - time_ms % HOUR_MS + HOUR_MS
                flights_by_result[kind, key, end, end <= before.get(key, -lag_ms) - lag_ms] += 1
                highest[key] = max(highest.get(key, time_ms), time_ms)
    return flights_by_result


def killed_twice(bootstrap: str, topic: str, directory: Path, lag_minutes: int, batch: int) -> Counter:
    """Run the program to its end, killed twice on the way, and return its results as `expected` does."""
    log, arguments = directory / TABLE / "_delta_log", (bootstrap, topic, directory, lag_minutes, batch)
    for versions in (*KILLED_AT, None):
        with program("tests.e2e.per_key_flights", *arguments) as process:
            wait_until(
                lambda: process.poll() is not None or (versions and len(list(log.glob("*.json"))) >= versions),  # noqa: B023
                "a version, or the end", LIMIT_S,
            )  # fmt: skip
            assert (process.returncode == 0) if versions is None else (process.poll() is None), process.returncode
    return results(directory)


def results(directory: Path) -> Counter:
    """Return what the table holds, as `expected` does."""
    from deltalake import DeltaTable

    flights_by_result: Counter = Counter()
    for row in DeltaTable(directory / TABLE).to_pyarrow_table().to_pylist():
        flights_by_result[row["what"], row["key"], ms(row["end"]), row["timing"] == "expired"] += row["flights"]
    return flights_by_result


def count_lost(results_of_keys: Counter) -> dict[str, int]:
    """Return how many rows were lost by each kind of key."""
    return {what: sum(rows for (of, *_, gone), rows in results_of_keys.items() if gone and of == what) for what in KEYS}


def differing(actual: Counter, correct: Counter) -> int:
    """Return how many results differ."""
    return sum(actual[one] != correct[one] for one in actual.keys() | correct.keys())


def main() -> int:
    """Load, run, kill twice, and compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lags", type=int, nargs="+", default=[0, 15, 60, 180])
    parser.add_argument("--days", type=int, default=365)
    parser.add_argument("--batch", type=int, default=40_000)
    arguments = parser.parse_args()
    published = {one["bound_min"]: one for one in json.loads(VECTOR.read_text())["expect"]}
    flights, errors = departures(arguments.days), 0
    with broker() as kafka:
        load(kafka.bootstrap, "flights", flights)
        for lag in arguments.lags:
            with tempfile.TemporaryDirectory() as home:
                actual = killed_twice(kafka.bootstrap, "flights", Path(home), lag, arguments.batch)
            wrong = differing(actual, expected(flights, lag * MINUTE_MS, arguments.batch))
            limits = {what: published[lag][what]["dropped"] for what in KEYS} if lag in published else {}
            above = sum(rows > limits.get(what, rows) for what, rows in count_lost(actual).items())
            errors += wrong + above
            losses = ", ".join(
                f"{what} {rows:,} of {limits.get(what, '?')}" for what, rows in count_lost(actual).items()
            )
            print(f"lag {lag} min: {len(flights):,} flights, lost by {losses}; {wrong} results differ", flush=True)
    return int(errors > 0)


if __name__ == "__main__":
    sys.exit(main())
