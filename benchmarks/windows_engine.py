"""Rates of the window engine by CPU second: combining rows, and closing windows at overlaps 1, 60 and 600.

Every run is checked before it counts: the rows counted in all results must be the rows put in, once for each window.
`python benchmarks/windows_engine.py [--rows N]`
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from benchmarks.measure import how_many
from conformance.driver import DrivenOperator
from keyedwm.operators.aggregates import functions as agg
from keyedwm.operators.frames.partials import combine_rows
from keyedwm.operators.frames.plan import SessionWindow, SlidingWindow, WindowPlan, tumbling

BATCH_ROWS = 200_000
SPAN_MS = 4_000_000
JITTER_MS = 2_000


@dataclass
class Spent:
    """CPU seconds by stage."""

    combine_s: float = 0.0
    take_s: float = 0.0
    advance_s: float = 0.0
    changed_s: float = 0.0
    results: int = 0
    counted_rows: int = 0
    blobs: dict[str, int] = field(default_factory=dict)
    peak_bytes: int = 0
    peak_entries: int = 0


def stream(rows: int, keys: int, *, text: bool) -> pa.Table:
    """Rows of random keys (`text`: as strings) over SPAN_MS of event time, out of order by up to JITTER_MS."""
    rng = np.random.default_rng(7)
    numbers = rng.integers(0, keys, rows)
    names = pa.array([f"key-{number:06d}" for number in range(keys)])
    times = np.arange(rows) * SPAN_MS // rows + rng.integers(0, JITTER_MS, rows)
    return pa.table(
        {
            "k": names.take(pa.array(numbers)) if text else pa.array(numbers),
            "event_time": pa.array(times * 1000).view(pa.timestamp("us", tz="UTC")),
            "n": rng.integers(0, 1000, rows),
            "x": rng.normal(size=rows),
        }
    )


def run(plan: WindowPlan, table: pa.Table) -> Spent:
    """All batches through both stages, state written after each as the Spark operator does."""
    spent = Spent()
    operator = DrivenOperator(plan)
    for at in range(0, len(table), BATCH_ROWS):
        batch = table.slice(at, BATCH_ROWS)
        ticks = [time.process_time()]
        partials = combine_rows(plan, batch)
        ticks.append(time.process_time())
        operator.take(partials)
        ticks.append(time.process_time())
        results = operator.advance((at + len(batch)) * SPAN_MS // len(table))
        ticks.append(time.process_time())
        changed_blobs, removed_names = operator.changed()
        ticks.append(time.process_time())
        for name, after, before in zip(
            ("combine_s", "take_s", "advance_s", "changed_s"), ticks[1:], ticks, strict=False
        ):
            setattr(spent, name, getattr(spent, name) + after - before)
        spent.blobs = {name: size for name, size in spent.blobs.items() if name not in removed_names}
        spent.blobs |= {name: len(blob) for name, blob in changed_blobs.items()}
        held_bytes = sum(spent.blobs.values())
        if held_bytes > spent.peak_bytes:
            spent.peak_bytes, spent.peak_entries = held_bytes, operator.open_entries
        spent.results += results.num_rows
        spent.counted_rows += int(results["rows"].to_numpy().sum())
    results = operator.complete()
    spent.counted_rows += int(results["rows"].to_numpy().sum())
    return spent


def measured(title: str, plan: WindowPlan, table: pa.Table, overlap: int) -> None:
    """Run a plan over the rows and print its rates; raises SystemExit unless each row counted in `overlap` windows."""
    run(plan, table.slice(0, 2 * BATCH_ROWS))  # compiled
    spent = run(plan, table)
    if spent.counted_rows != overlap * len(table):
        raise SystemExit(f"{title}: {spent.counted_rows} rows counted, {overlap * len(table)} were put in")
    stages = spent.take_s + spent.advance_s + spent.changed_s
    print(
        f"{title:44} combine {len(table) / spent.combine_s / 1e6:6.1f} M rows/s · hold {spent.take_s:5.2f} s · "
        f"close {spent.advance_s:5.2f} s ({spent.results / max(spent.advance_s, 1e-9) / 1e6:5.1f} M results/s) · "
        f"write {spent.changed_s:5.2f} s · whole {len(table) / (spent.combine_s + stages) / 1e6:5.2f} M rows/s · "
        f"{spent.peak_bytes / max(1, spent.peak_entries):5.0f} bytes/(key, frame)"
    )


def restart(table: pa.Table, window: SlidingWindow) -> None:
    """How long a new operator takes to read a million (key, frame)."""
    plan = plan_of(table, window, (("rows", agg.count()), ("total", agg.sum("n"))))
    operator = DrivenOperator(plan)
    for at in range(0, len(table), BATCH_ROWS):
        operator.take(combine_rows(plan, table.slice(at, BATCH_ROWS)))
    blobs = operator.snapshot()
    before = time.process_time()
    again = DrivenOperator(plan, blobs)
    spent = time.process_time() - before
    if again.open_entries != operator.open_entries:
        raise SystemExit(f"restart: {again.open_entries} (key, frame) read, {operator.open_entries} were written")
    print(
        f"restart: {again.open_entries} (key, frame) of {sum(map(len, blobs.values())) / 1e6:.0f} MB in {spent:.2f} s"
    )


def plan_of(table: pa.Table, window: SlidingWindow | SessionWindow, aggregates: tuple) -> WindowPlan:
    """A plan over rows of `stream`, by key."""
    return WindowPlan(schema=table.schema, by=("k",), window=window, aggregates=aggregates)


def main() -> None:
    """Measure every case and print it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=how_many, default=4_000_000)
    rows = parser.parse_args().rows
    sums = (("rows", agg.count()), ("total", agg.sum("n")))
    windows = ((tumbling(10_000), 1), (SlidingWindow(60_000, 1000), 60), (SlidingWindow(600_000, 1000), 600))
    for text in (False, True):
        table = stream(rows, 1000, text=text)
        for window, overlap in windows:
            name = f"{'text' if text else 'int64'} keys, {window.size_ms // 1000} s / {window.slide_ms // 1000} s"
            measured(f"{name}, count + sum", plan_of(table, window, sums), table, overlap)
    for column, aggregate in (("min", agg.min("n")), ("sum of floats", agg.sum("x")), ("last", agg.last("n"))):
        for window, overlap in windows[1:]:
            plan = plan_of(table, window, (("rows", agg.count()), ("made", aggregate)))
            measured(f"text keys, {window.size_ms // 1000} s / 1 s, {column}", plan, table, overlap)
    table = stream(rows, 100_000, text=True)
    measured("sessions of 100,000 keys, gap 10 s", plan_of(table, SessionWindow(10_000), sums), table, 1)
    restart(stream(min(rows, 4_000_000), 1000, text=True), SlidingWindow(60_000, 1000))


if __name__ == "__main__":
    main()
