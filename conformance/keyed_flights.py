"""New York's departures as they become known: how many are late under one watermark, and under one for each key.

Rule: the watermark follows every event, by the product's `AxisRun` over a whole column; an event is held against the
watermark before it. Who is late by a key's own watermark is counted by the product's windows, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from conformance.driver import DrivenOperator
from conformance.verdict import Verdict, compare, fail
from keyedwm.arrow.axis import AxisRun
from keyedwm.cli.demo.flights import HOUR_MS, MINUTE_MS, data_file
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
_KEYS = ("origin", "carrier", "dest", "tailnum")


def keyed_flights(vector: dict) -> Verdict:
    """Count late events and those whose hour is closed, for several bounds."""
    import pandas as pd

    if "flights" not in vector["config"]["dataset"]:
        return fail(f"the package brings the flights of New York, not {vector['config']['dataset']}")
    flights = pd.read_csv(data_file("flights.csv.zip"))
    known = flights[flights["dep_delay"].notna()]
    hour_ms = known["time_hour"].str.rstrip("Z").to_numpy("datetime64[ms]").astype(np.int64)
    event_ms = hour_ms + known["minute"].to_numpy(np.int64) * MINUTE_MS
    order = np.argsort(event_ms + known["dep_delay"].to_numpy(np.int64) * MINUTE_MS, kind="stable")
    known, event_ms = known.iloc[order], event_ms[order]
    rows = {"global": [np.arange(len(known))]}
    rows |= {key: list(known.groupby(key).indices.values()) for key in _KEYS}
    made = []
    for expected in vector["expect"]:
        bound_ms = expected["bound_min"] * MINUTE_MS
        counts = {name: _counts([event_ms[own] for own in parts], bound_ms) for name, parts in rows.items()}
        for key in _KEYS:
            if key in expected:
                counts[key]["late"] = late_by_key(known[key], event_ms, bound_ms)
        made.append({"bound_min": expected["bound_min"], **counts})
    return compare(vector["expect"], made)


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
    late = dropped = 0
    for event_ms in parts:
        before_ms = _watermark_before(event_ms, bound_ms)
        late += int((event_ms < before_ms).sum())
        dropped += int((event_ms - event_ms % HOUR_MS + HOUR_MS <= before_ms).sum())
    return {"late": late, "dropped": dropped}


def _watermark_before(event_ms: NDArray[np.int64], bound_ms: int) -> NDArray[np.int64]:
    run = AxisRun(AxisConfig(0, FixedLag(bound_ms), NoThrottle()), AxisState(), 0)
    positions, watermarks = run.rows(event_ms, None)
    before = np.searchsorted(positions, np.arange(len(event_ms)))  # those that earlier events have moved
    return np.concatenate([[MIN_MS], watermarks])[before]
