# ruff: noqa: A004  the aggregates are called as Spark calls its own
"""DataFrame functions: native operators driven by the coalesced watermark, and windows of our own."""

from keyedwm.spark.aggregate import aggregate
from keyedwm.spark.conf import recommended_conf
from keyedwm.spark.source import source
from keyedwm.spark.start import start_in_turn
from keyedwm.spark.watermark import with_watermark
from keyedwm.spark.window_specs import early, session, sliding, tumbling
from keyedwm.windows.aggregates import (
    Aggregate,
    approx_count_distinct,
    avg,
    collect,
    count,
    first,
    last,
    max,
    min,
    sum,
)

__all__ = [
    "Aggregate",
    "aggregate",
    "approx_count_distinct",
    "avg",
    "collect",
    "count",
    "early",
    "first",
    "last",
    "max",
    "min",
    "recommended_conf",
    "session",
    "sliding",
    "source",
    "start_in_turn",
    "sum",
    "tumbling",
    "with_watermark",
]
