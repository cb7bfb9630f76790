"""A year of real departures under watermarks of carriers, destinations and aircraft: what is lost, counted exactly."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from benchmarks.per_key_year import departures
from conformance.driver import DrivenOperator
from examples.demo.flights import HOUR_MS, MINUTE_MS
from keyedwm.operators.aggregates.functions import count
from keyedwm.operators.frames.partials import combine_rows
from keyedwm.operators.frames.plan import SlidingWindow, WindowPlan
from keyedwm.operators.keyed.per_key import PerKey
from tests.seeds import times

VECTOR = json.loads((Path(__file__).parents[1] / "vectors" / "windows" / "keyed-watermark-flights.json").read_text())
SCHEMA = pa.schema([("key", pa.string()), ("time", pa.int64())])
BATCH_MS = 7 * 24 * HOUR_MS


@pytest.fixture(scope="module")
def flights():
    """Departures in the order in which they became known: `event` and `known`, in ms, beside the columns of the set."""
    return departures()


def brute(keys, event, batches, lag_ms):
    """Rows lost, and the rows of each (key, hour), batch by batch by the watermark of the key before it."""
    highest, lost_rows, window_counts = {}, 0, {}
    for first, behind in batches:
        before = dict(highest)
        for key, time_ms in zip(keys[first:behind], event[first:behind], strict=True):
            end = time_ms - time_ms % HOUR_MS + HOUR_MS
            if end <= before.get(key, -lag_ms) - lag_ms:
                lost_rows += 1
            else:
                window_counts[key, end] = window_counts.get((key, end), 0) + 1
            highest[key] = max(highest.get(key, time_ms), time_ms)
    return lost_rows, window_counts


# Of each key and each bound; the vector's replay (`conformance/keyed_data.py`) counts all of them together.
KEYS = ("carrier", "dest", "tailnum", "carrier")
# The most keys; of the others the first weeks, of which less is lost than of the year.
OF_A_YEAR, WEEKS = "tailnum", 13


@pytest.mark.parametrize(
    ("key", "expected"),
    list(zip(KEYS, VECTOR["expect"], strict=True)),
    ids=lambda one: str(one if one in KEYS else one["bound_min"]),
)
def test_no_more_is_lost_than_row_by_row_and_it_is_counted_exactly(key, expected, flights):
    lag_ms = expected["bound_min"] * MINUTE_MS
    plan = WindowPlan(
        schema=SCHEMA, by=("key",), time="time", window=SlidingWindow(HOUR_MS, HOUR_MS),
        aggregates=(("flights", count()),), key_watermark=PerKey(lag_ms, 60 * BATCH_MS),
    )  # fmt: skip
    keys, event = flights[key].to_list(), flights["event"].to_numpy()
    borders = [0, *(np.flatnonzero(np.diff(flights["known"] // BATCH_MS)) + 1).tolist(), len(keys)]
    batches = list(pairwise(borders))[: None if key == OF_A_YEAR else times(WEEKS)]
    rows = pa.table([pa.array(keys, pa.string()), pa.array(event)], schema=SCHEMA)
    outputs, late_rows, operator = [], 0, DrivenOperator(plan)
    for at, (first, behind) in enumerate(batches):
        outputs.append(operator.take(combine_rows(plan, rows.slice(first, behind - first))))
        operator.advance(int(flights["known"].iloc[behind - 1]) - BATCH_MS)
        if at % 10 == 9:
            late_rows, operator = late_rows + operator.late_rows, DrivenOperator(plan, operator.snapshot())
    outputs.append(operator.complete())
    lost_rows, expected_counts = brute(keys, event.tolist(), batches, lag_ms)
    assert late_rows + operator.late_rows == lost_rows <= expected[key]["dropped"]
    window_table = pa.concat_tables(outputs).flatten()
    ends = window_table["window.end"].cast(pa.int64()).to_numpy() // 1000
    actual_counts = dict(
        zip(
            zip(window_table["key"].to_pylist(), ends.tolist(), strict=True),
            window_table["flights"].to_pylist(),
            strict=True,
        )
    )
    assert actual_counts == expected_counts
    assert window_table.num_rows == len(expected_counts)
