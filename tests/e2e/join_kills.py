"""A year of flights with the weather at their airport, through Kafka, Spark and Delta, the program killed twice.

Run: python -m tests.e2e.join_kills [--kind join|latest] [--days 365]
Prints how many flights met weather, how many did not, and how many rows are wrong against pandas; ends with 1 if any
is. `join`: 326,993 and 1,528 in a year.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from examples.demo.flights import data_file
from keyedwm.kafka.requests.produce import send
from keyedwm.testing.broker import broker
from tests.e2e.join_flights import CLOSING
from tests.tools import cluster_at, make_topic, wait_until

ROOT = Path(__file__).parents[2]
KINDS = ("join", "latest")
KILLED_AT = (2, 5)  # versions of the Delta table
LIMIT_S = 900.0
MINUTE_MS, DAY_MS = 60_000, 86_400_000
FLIGHTS, WEATHER = "flights", "weather"


def feed(days: int, kind: str) -> tuple[Any, Any]:
    """Departed flights by their scheduled time (the hour for `join`), and the weather, in order of time."""
    import pandas as pd

    def ms(hours: Any) -> Any:
        return (pd.to_datetime(hours).astype("int64") // 10**6).astype("int64")

    flown = pd.read_csv(data_file("flights.csv.zip"))
    flown = flown[flown.dep_time.notna()]
    minutes = 0 if kind == "join" else flown.minute.astype("int64") * MINUTE_MS
    flights = pd.DataFrame({"origin": flown.origin, "time": ms(flown.time_hour) + minutes})
    observations = pd.read_csv(data_file("weather.csv"))
    weather = pd.DataFrame({"origin": observations.origin, "time": ms(observations.time_hour)})
    end = min(flights.time.min(), weather.time.min()) + days * DAY_MS + 5 * MINUTE_MS * 12
    sides = []
    for name, side in ((FLIGHTS, flights), (WEATHER, weather)):
        rows = side[side.time < end].sort_values("time", kind="stable").reset_index(drop=True)
        sides.append(rows.assign(**{name: np.arange(len(rows))}))
    return sides[0], sides[1]


def expected(kind: str, flights: Any, weather: Any) -> Any:
    """Each flight with the number of its weather, or none, by pandas."""
    import pandas as pd

    if kind == "latest":
        pairs = pd.merge_asof(flights, weather, on="time", by="origin")
    else:
        pairs = flights.merge(weather, on=["origin", "time"], how="left")
    return pairs[["origin", FLIGHTS, WEATHER]]


def load(bootstrap: str, topic: str, rows: Any, numbers: str) -> None:
    """A partition for each airport, and a record that closes each, a week later."""
    origins = sorted(rows.origin.unique())
    make_topic(bootstrap, topic, len(origins))
    end_ms = int(rows.time.max()) + 7 * DAY_MS
    tables = {}
    for partition, origin in enumerate(origins):
        rows_of_origin = rows[rows.origin == origin]
        keys = [origin.encode()] * len(rows_of_origin) + [CLOSING.encode()]
        values = [b"%d" % number for number in rows_of_origin[numbers]] + [b"0"]
        tables[partition] = pa.table(
            {
                "key": pa.array(keys, pa.binary()),
                "value": pa.array(values, pa.binary()),
                "timestamp": [*rows_of_origin.time.tolist(), end_ms],
            }
        )
    cluster = cluster_at(bootstrap)
    send(cluster, topic, tables)
    cluster.close()


def run(kind: str, bootstrap: str, directory: Path, versions: int | None) -> None:
    """Run the program to its end, or until the table has so many versions: then it is killed."""
    arguments = [kind, bootstrap, FLIGHTS, WEATHER, directory]
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", "tests.e2e.join_flights", *map(str, arguments)],
        cwd=ROOT, stdin=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    log = directory / "flown" / "_delta_log"
    try:
        wait_until(
            lambda: process.poll() is not None or (versions and len(list(log.glob("*.json"))) >= versions),
            "a version, or the end", LIMIT_S,
        )  # fmt: skip
        if versions is None and process.returncode:
            raise SystemExit(f"the program ended with {process.returncode}")
        if versions is not None and process.poll() is not None:
            raise SystemExit("the program ended before it could be killed")
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def wrong(actual: Any, correct: Any) -> int:
    """How many flights are missing, too many, or met another weather."""
    columns = ["origin", FLIGHTS, WEATHER]
    both = [side[columns].fillna(-1).astype({WEATHER: "int64"}).value_counts() for side in (actual, correct)]
    return int(both[0].sub(both[1], fill_value=0).abs().sum())


def main() -> int:
    """Load, run, kill twice, and compare."""
    from deltalake import DeltaTable

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", choices=KINDS, default=KINDS[0])
    parser.add_argument("--days", type=int, default=365)
    arguments = parser.parse_args()
    flights, weather = feed(arguments.days, arguments.kind)
    began = time.monotonic()
    with broker() as kafka, tempfile.TemporaryDirectory() as home:
        load(kafka.bootstrap, FLIGHTS, flights, FLIGHTS)
        load(kafka.bootstrap, WEATHER, weather, WEATHER)
        for versions in (*KILLED_AT, None):
            run(arguments.kind, kafka.bootstrap, Path(home), versions)
        table = DeltaTable(Path(home) / "flown").to_pandas()
    table = table.rename(columns={"flight": FLIGHTS})
    pairs = int(table[WEATHER].notna().sum())
    errors = wrong(table, expected(arguments.kind, flights, weather))
    print(
        f"{arguments.kind}: {len(flights):,} flights, {len(weather):,} weather rows, killed {len(KILLED_AT)} times: "
        f"{pairs:,} met weather, {len(table) - pairs:,} did not, {errors} wrong; {time.monotonic() - began:.0f} s"
    )
    return int(errors > 0)


if __name__ == "__main__":
    sys.exit(main())
