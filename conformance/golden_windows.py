"""Whole data sets through the vectorised windows: New York's departures; Nexmark's bids come from `nexmark.py`.

Rule: results are compared by the hash of their sorted rows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

from conformance.driver import DrivenOperator
from conformance.verdict import Verdict, compare
from examples.demo.flights import HOUR_MS, ORIGINS, read_flights
from keyedwm.operators.aggregates import functions as agg
from keyedwm.operators.aggregates.spec import AggregateSpec
from keyedwm.operators.frames.partials import combine_rows
from keyedwm.operators.frames.plan import SlidingWindow, WindowPlan, tumbling
from keyedwm.operators.results import WINDOW

_PIECE_ROWS = 10_000


def flights(vector: dict) -> Verdict:
    """Tumbling one hour by origin, batch by batch."""
    expected = vector["expect"]["tumbling_1h_by_origin"]
    records = read_flights().table
    origins = pa.array(ORIGINS).take(records["partition"].combine_chunks())
    rows = windowed(
        records.append_column("origin", origins), tumbling(HOUR_MS), ("origin",), (("count", agg.count()),), "event_ms"
    )
    top = max(rows, key=lambda row: (row[3], row[0], row[1]))
    hashes = {
        "rows": len(rows),
        "sum": sum(row[3] for row in rows),
        "max": [top[3], top[0], top[1]],
        "sha256": hashed(rows),
    }
    return compare([expected[name] for name in hashes], list(hashes.values()))


def windowed(
    table: pa.Table,
    window: SlidingWindow,
    by: tuple[str, ...],
    aggregates: tuple[tuple[str, AggregateSpec], ...],
    time: str,
) -> list[tuple]:
    """The windows of a whole table, taken piece by piece: by columns, start, end, aggregates."""
    plan = WindowPlan(schema=table.schema, by=by, window=window, aggregates=aggregates, time=time)
    operator = DrivenOperator(plan)
    for at in range(0, len(table), _PIECE_ROWS):
        operator.take(combine_rows(plan, table.slice(at, _PIECE_ROWS)))
        operator = DrivenOperator(plan, operator.snapshot())
    results = operator.complete()
    edges = [
        pc.divide(pc.struct_field(results[WINDOW], edge).cast(pa.int64()), 1000).to_pylist()
        for edge in ("start", "end")
    ]
    values = [results[name].to_pylist() for name, _ in aggregates]
    return list(zip(*(results[name].to_pylist() for name in by), *edges, *values, strict=True))


def hashed(rows: Iterable[tuple]) -> str:
    """The hash that the vectors have of rows in any order."""
    text = "\n".join("|".join(map(str, row)) for row in sorted(rows))
    return hashlib.sha256(text.encode()).hexdigest()
