"""The report of the demo: the table, the JSON and the verdict.

Rule: figures are shown as they came out. The verdict judges keyedwm only: a record that was lost though it was not late
behind its own partition's watermark, one counted twice, or an event table that differs from the input, is a failure.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from rich.table import Table

from examples.demo.exact import Difference
from examples.demo.flights import Flights

EXACT = "exact"
SIDES = ("native", "keyedwm", EXACT)
_HEADS = {"native": "native Spark", "keyedwm": "keyedwm", EXACT: "exact answer"}
_ROWS = {
    "rows_in": "rows in",
    "late_behind_own_watermark": "rows late behind their own partition's watermark",
    "lost": "rows lost",
    "hours_wrong": "hours wrong",
    "seconds": "seconds",
}
COMPARED = ("partition", "offset", "key", "value", "timestamp_ms")


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """One side's column of the table; hours are (origin, hour) cells, seconds those spent in micro-batches."""

    rows_in: int
    late_behind_own_watermark: int
    lost: int
    hours_wrong: int
    seconds: float


def as_json(sides: Mapping[str, Figures], broker: str) -> str:
    """The figures by side, and how the broker was found."""
    return json.dumps({**{side: asdict(sides[side]) for side in SIDES}, "broker": broker}, indent=2) + "\n"


def as_table(sides: Mapping[str, Figures]) -> Table:
    """The table for the terminal: a row per figure, a column per side."""
    table = Table("")
    for side in SIDES:
        table.add_column(_HEADS[side], justify="right")
    for name, label in _ROWS.items():
        table.add_row(label, *(_formatted(getattr(sides[side], name)) for side in SIDES))
    return table


def broken_promise(flights: Flights, late: NDArray[np.bool_], keyedwm: Difference) -> str | None:
    """One sentence if keyedwm's counts break what it promises."""
    if keyedwm.surplus:
        return f"keyedwm counted {keyedwm.surplus:,} records more than there are"
    wronged = np.flatnonzero(keyedwm.lost_rows & ~late)
    if not len(wronged):
        return None
    first = flights.table.slice(int(wronged[0]), 1).to_pylist()[0]
    return (
        f"keyedwm lost {len(wronged):,} records that were not late behind their own partition's watermark, "
        f"the first at partition {first['partition']}, offset {first['offset']} ({first['key']})"
    )


def unlike_input(produced: pa.Table, events: pa.Table) -> str | None:
    """One sentence if the event table is not exactly what was produced (columns COMPARED, any row order)."""
    order = [("partition", "ascending"), ("offset", "ascending")]
    produced, events = (table.select(COMPARED).sort_by(order).combine_chunks() for table in (produced, events))
    if len(produced) != len(events):
        return f"the event table has {len(events):,} rows, {len(produced):,} were produced"
    for name in COMPARED:
        same = pc.fill_null(
            pc.equal(produced[name], events[name].cast(produced.schema.field(name).type)), fill_value=False
        )
        same = pc.or_(same, pc.and_(pc.is_null(produced[name]), pc.is_null(events[name])))
        at = pc.index(same, value=False).as_py()
        if at >= 0:
            where = f"partition {produced['partition'][at]}, offset {produced['offset'][at]}"
            was = f"{name} is {events[name][at]}, not {produced[name][at]}"
            return f"the event table differs from the input at {where}: {was}"
    return None


def _formatted(figure: float) -> str:
    return f"{figure:.1f}" if isinstance(figure, float) else f"{figure:,}"
