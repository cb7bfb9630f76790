"""What the words of the design's configurations mean: the plan of the standalone operator that keeps messages.

Rule: late messages of an aggregator are collected for ten seconds unless the words say otherwise (W44), and a window is
full with the first message past its end (W42).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from keyedwm.operators.aggregates import functions as agg
from keyedwm.operators.messages.functions import median, quantile
from keyedwm.operators.messages.plan import StorePlan
from keyedwm.operators.messages.retention import Retention
from keyedwm.operators.messages.windows import CompletedBy, hopping, hopping_rows
from keyedwm.operators.panes import Early

SCHEMA = pa.schema(
    [("key", pa.string()), ("value", pa.int64()), ("time", pa.int64()), ("topic", pa.string()),
     ("partition", pa.int32()), ("offset", pa.int64())]
)  # fmt: skip
KEEP = Retention(max_messages=1 << 40)
AGGREGATES: Mapping[str, Any] = {
    "max": agg.max("value"), "min": agg.min("value"), "sum": agg.sum("value"), "count": agg.count(),
    "avg": agg.avg("value"), "mean": agg.avg("value"), "median": median("value"),
}  # fmt: skip
ROWS_BY_NUMBER = "windows of rows are kept by number, not by time"
_DEFAULT_LATE_MS = 10_000
_RANKS = ("p", "percentile", "q", "quantile")
_UNITS_MS = {"ms": 1, "s": 1_000, "second": 1_000, "seconds": 1_000, "minute": 60_000, "minutes": 60_000}
_INTERVAL = re.compile(r"(\d+) ?(ms|seconds?|minutes?|s)\b")


def store_plan(config: Mapping, steps: Iterable[Mapping]) -> tuple[StorePlan, str]:
    """Return the plan of an aggregator, and why a part of its configuration was left out, if one was.

    Raises OptionError for what the product refuses.
    """
    size, advance = config["size"], config.get("advance", config["size"])
    by_rows = config["unit"] == "tuple"
    kept_ms, windows = config.get("retention_time"), config.get("retention_size")
    left_out = ROWS_BY_NUMBER if by_rows and kept_ms is not None else ""
    time_ms = None if by_rows or kept_ms is None else _kept_behind_the_end(kept_ms, size, advance)
    limits = Retention(time_ms=time_ms, max_windows=windows) if (time_ms, windows) != (None, None) else KEEP
    keyed = any("key" in step for step in steps if step["do"] == "add_message")
    plan = StorePlan(
        schema=SCHEMA,
        by=("key",) if keyed else (),
        window=hopping_rows(size, advance) if by_rows else hopping(size, advance, config.get("align", 0) % advance),
        aggregates=(("result", _aggregate(config)), ("offsets", agg.collect("offset"))),
        retention=limits,
        time="time",
        full=CompletedBy.WATERMARK if "last offset" in config.get("full", "") else CompletedBy.MESSAGE,
        early=_early(config.get("early", "disabled")),
        late_every_ms=None if by_rows else late_ms(config.get("late", "default")),
        late_rows=_rows(config.get("late", "")),
    )
    return plan, left_out


def interval_ms(policy: str) -> int | None:
    """The interval that a policy names in words, None if it names none."""
    match = _INTERVAL.search(policy)
    return int(match[1]) * _UNITS_MS[match[2]] if match else None


def late_ms(policy: str) -> int | None:
    """How long late messages are collected, None for panes at once."""
    named_ms = interval_ms(policy)
    return _DEFAULT_LATE_MS if named_ms is None and policy.startswith("default") else named_ms


def _rows(policy: str) -> int | None:
    """Of how many late messages a pane comes, if they are counted."""
    match = re.search(r"every (\d+) (?:late )?messages", policy)
    return int(match[1]) if match else None


def _early(policy: str) -> Early | None:
    every_ms = interval_ms(policy)
    if every_ms is not None:
        return Early(every_ms=every_ms)
    return Early(rows=1) if "each message" in policy or "every message" in policy else None


def _aggregate(config: Mapping) -> Any:
    """The aggregate by its name; a rank stands in the name, or beside it."""
    name = config["agg"]
    if name in AGGREGATES:
        return AGGREGATES[name]
    rank = re.search(r"[\d.]+", name)
    share = (
        float(rank[0]) if rank else next(config[one] for one in ("p", "percentile", "q", "quantile") if one in config)
    )
    return quantile("value", share / 100 if share > 1 else share)


def _kept_behind_the_end(kept_ms: int, size: int, advance: int) -> int:
    """The design keeps the windows that begin so long before the current one; ours are kept so long after their end."""
    return kept_ms // advance * advance - (size - advance)
