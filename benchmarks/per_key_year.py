"""A year of departures in small batches by watermarks of aircraft: how large the state is from month to month.

Run: python -m benchmarks.per_key_year [--hours 6] [--lag 15] [--behind 24] [--idle 0]
Windows of an hour, a bucket in this process, a fresh operator a batch, as Spark does it. A batch holds the departures
that became known in so many hours, and W is the highest time so far, less a day.
"""

from __future__ import annotations

import argparse
import resource
from time import process_time

import numpy as np
import pandas as pd
import pyarrow as pa

from benchmarks.measure import how_many
from examples.demo.flights import HOUR_MS, MINUTE_MS, data_file
from keyedwm.operators.aggregates.functions import count
from keyedwm.operators.frames.partials import combine_rows
from keyedwm.operators.frames.plan import SlidingWindow, WindowPlan
from keyedwm.operators.keyed.per_key import PerKey
from keyedwm.operators.protocol import operator_of
from keyedwm.operators.state.store import MemoryStore

SCHEMA = pa.schema([("key", pa.string()), ("time", pa.int64())])
DAY_MS = 24 * HOUR_MS


def departures() -> pd.DataFrame:
    """Return the departures in the order in which they became known: `event` and `known` in ms, and the aircraft."""
    flights = pd.read_csv(data_file("flights.csv.zip"))
    flights = flights[flights["dep_delay"].notna()]
    event = flights["time_hour"].str.rstrip("Z").to_numpy("datetime64[ms]").astype(np.int64)
    event += flights["minute"].to_numpy(np.int64) * MINUTE_MS
    known = event + flights["dep_delay"].to_numpy(np.int64) * MINUTE_MS
    return flights.assign(event=event, known=known).sort_values("known", kind="stable")


def main() -> None:
    """Print a line a month."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hours", type=how_many, default=6)
    parser.add_argument("--lag", type=int, default=15, help="minutes")
    parser.add_argument("--behind", type=int, default=24, help="hours")
    parser.add_argument("--idle", type=int, default=0, help="hours, 0 for none")
    options = parser.parse_args()
    per_key = PerKey(options.lag * MINUTE_MS, options.behind * HOUR_MS, idle_ms=options.idle * HOUR_MS or None)
    plan = WindowPlan(
        schema=SCHEMA, by=("key",), time="time", window=SlidingWindow(HOUR_MS, HOUR_MS),
        aggregates=(("flights", count()),), key_watermark=per_key,
    )  # fmt: skip
    flights, store, late, results = departures(), MemoryStore(), 0, 0
    rows = pa.table([pa.array(flights["tailnum"], pa.string()), pa.array(flights["event"])], schema=SCHEMA)
    known, began_s = flights["known"].to_numpy(), process_time()
    borders = np.searchsorted(known, np.arange(known[0], known[-1] + options.hours * HOUR_MS, options.hours * HOUR_MS))
    print("departures, results, lost; keys held; most bytes and blobs of the state that month; CPU s; most memory")
    sizes: list[tuple[int, int, int]] = []
    for at, (first, behind) in enumerate(zip(borders[:-1].tolist(), borders[1:].tolist(), strict=True)):
        operator = operator_of(plan, store)
        outputs = (
            [*operator.on_rows(0, combine_rows(plan, rows.slice(first, behind - first)), None)]
            if behind > first
            else []
        )
        outputs += operator.on_watermark(0, 0, int(known[behind - 1]) - DAY_MS) if behind else []
        late, results = late + operator.late_rows, results + sum(output.rows.num_rows for output in outputs)
        key_count = operator.key_summary().key_count
        store.apply(operator.drain())
        sizes.append((sum(store.sizes.values()), len(store.blobs), key_count))
        if len(sizes) * options.hours >= 30 * 24 or at == len(borders) - 2:
            bytes_, blobs, keys = (max(column) for column in zip(*sizes, strict=True))
            memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
            print(
                f"{behind:,}, {results:,}, {late:,}; {keys:,}; {bytes_:,}, {blobs}; {process_time() - began_s:.0f}; "
                f"{memory} MiB", flush=True,
            )  # fmt: skip
            sizes = []


if __name__ == "__main__":
    main()
