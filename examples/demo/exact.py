"""The exact answer, and what a table of counts lost against it.

Rule: independent of keyedwm and of Spark; nothing here but sorting, counting and a running maximum.

Late behind its own partition's watermark: a record whose event time lies below the highest event time seen earlier in
its own partition minus the lag, in partition order, record by record. It does not depend on how the partition was cut
into batches. A watermark taken once per batch is never above it, so what keyedwm may drop is a part of these records.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from examples.demo.flights import HOUR_MS, ORIGINS, Flights

COUNTS = pa.schema([("origin", pa.string()), ("hour_ms", pa.int64()), ("count", pa.int64())])


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The difference of a table of counts from the exact one.

    lost_rows: marks the records (in the flights' order) that no count holds. A closed window takes nothing any more, so
    of an hour that lacks n records of its origin these are the last n to reach Kafka.
    surplus: how many are counted beyond those that exist. hours_wrong: (origin, hour) cells with another count.
    """

    lost_rows: NDArray[np.bool_]
    surplus: int
    hours_wrong: int


def exact_counts(flights: Flights) -> pa.Table:
    """Flights by origin and hour of event time (columns of COUNTS)."""
    event_ms = flights.numbers("event_ms")
    hours = pa.table({"origin": flights.table["key"], "hour_ms": event_ms - event_ms % HOUR_MS})
    return hours.group_by(["origin", "hour_ms"]).aggregate([([], "count_all")]).rename_columns(COUNTS.names)


def late_behind_own_watermark(flights: Flights, lag_ms: int) -> NDArray[np.bool_]:
    """Marks the records below the highest event time seen earlier in their partition, minus the lag."""
    late = np.zeros(len(flights), np.bool_)
    partition, event_ms = flights.numbers("partition"), flights.numbers("event_ms")
    for own in range(len(ORIGINS)):
        indices = np.flatnonzero(partition == own)
        highest_ms = np.maximum.accumulate(event_ms[indices])
        late[indices[1:]] = event_ms[indices[1:]] < highest_ms[:-1] - lag_ms
    return late


def difference(flights: Flights, counts: pa.Table) -> Difference:
    """Compares `counts` (columns of COUNTS) with the exact answer."""
    counts = counts.group_by(["origin", "hour_ms"]).aggregate([("count", "sum")]).rename_columns(COUNTS.names)
    cells = exact_counts(flights).join(
        counts, ["origin", "hour_ms"], join_type="full outer", right_suffix="_found", use_threads=False
    )
    exact_numbers, table_numbers = (pc.fill_null(cells[name], 0).to_numpy() for name in ("count", "count_found"))
    return Difference(
        lost_rows=_lost_rows(flights, counts),
        surplus=int(np.maximum(table_numbers - exact_numbers, 0).sum()),
        hours_wrong=int(np.count_nonzero(table_numbers != exact_numbers)),
    )


def _lost_rows(flights: Flights, counts: pa.Table) -> NDArray[np.bool_]:
    """Within its cell, in arrival order, a record is lost if its number is not below the cell's count."""
    event_ms = flights.numbers("event_ms")
    cell = event_ms // HOUR_MS * len(ORIGINS) + flights.numbers("partition")
    order = np.argsort(cell, kind="stable")
    sorted_cell = cell[order]
    number = np.arange(len(cell)) - np.searchsorted(sorted_cell, sorted_cell)
    partition = pc.index_in(counts["origin"], value_set=pa.array(ORIGINS)).to_numpy()
    key = counts["hour_ms"].to_numpy() // HOUR_MS * len(ORIGINS) + partition
    by_key = np.argsort(key)
    at = np.minimum(np.searchsorted(key, sorted_cell, sorter=by_key), max(len(key) - 1, 0))
    is_lost = np.ones(len(cell), np.bool_)
    if len(key):
        place = by_key[at]
        cell_counts = np.where(key[place] == sorted_cell, counts["count"].to_numpy()[place], 0)
        is_lost[order] = number >= cell_counts
    return is_lost
