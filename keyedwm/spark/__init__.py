# ruff: noqa: A004  the aggregates are called as Spark calls its own
"""DataFrame functions: native operators driven by the coalesced watermark, and windows of our own."""

from keyedwm.operators.aggregates.functions import (
    Aggregate,
    approx_count_distinct,
    approx_quantile,
    avg,
    collect,
    count,
    count_if,
    first,
    hll_sketch,
    kll_sketch,
    last,
    linear_trend,
    map_agg,
    max,
    median,
    min,
    quantile,
    stddev,
    sum,
    theta_sketch,
    top_n,
    variance,
)
from keyedwm.operators.process.processor import Processor
from keyedwm.spark.api.aggregate import aggregate
from keyedwm.spark.api.async_map import async_map
from keyedwm.spark.api.join import join, join_latest
from keyedwm.spark.api.kafka import kafka
from keyedwm.spark.api.late_rows import events, late_rows, on_time_rows, rejected, sql_view, with_rejected
from keyedwm.spark.api.metrics import metrics
from keyedwm.spark.api.process import process
from keyedwm.spark.api.running import deduplicate, running
from keyedwm.spark.api.savepoint import savepoint
from keyedwm.spark.api.source import source
from keyedwm.spark.api.store import Store, window_function
from keyedwm.spark.api.watermark import with_watermark
from keyedwm.spark.api.window_join import window_join
from keyedwm.spark.api.window_specs import (
    early,
    hopping,
    hopping_key_rows,
    hopping_rows,
    on_demand,
    per_key,
    session,
    session_rows,
    sliding,
    tumbling,
    tumbling_key_rows,
    tumbling_rows,
)
from keyedwm.spark.failures.reason import reason, show_reason_last
from keyedwm.spark.hosting.source_description import Source
from keyedwm.spark.inspect.list_rows import held_rows
from keyedwm.spark.inspect.list_state import held_messages, held_windows, oldest_offsets
from keyedwm.spark.inspect.progress import log_progress, source_progress
from keyedwm.spark.setup.conf import recommended_conf, session_conf, start_in_turn
from keyedwm.spark.setup.interpreter import use_this_python

__all__ = [
    "Aggregate",
    "Processor",
    "Source",
    "Store",
    "aggregate",
    "approx_count_distinct",
    "approx_quantile",
    "async_map",
    "avg",
    "collect",
    "count",
    "count_if",
    "deduplicate",
    "early",
    "events",
    "first",
    "held_messages",
    "held_rows",
    "held_windows",
    "hll_sketch",
    "hopping",
    "hopping_key_rows",
    "hopping_rows",
    "join",
    "join_latest",
    "kafka",
    "kll_sketch",
    "last",
    "late_rows",
    "linear_trend",
    "log_progress",
    "map_agg",
    "max",
    "median",
    "metrics",
    "min",
    "oldest_offsets",
    "on_demand",
    "on_time_rows",
    "per_key",
    "process",
    "quantile",
    "reason",
    "recommended_conf",
    "rejected",
    "running",
    "savepoint",
    "session",
    "session_conf",
    "session_rows",
    "sliding",
    "source",
    "source_progress",
    "sql_view",
    "start_in_turn",
    "stddev",
    "sum",
    "theta_sketch",
    "top_n",
    "tumbling",
    "tumbling_key_rows",
    "tumbling_rows",
    "variance",
    "window_function",
    "window_join",
    "with_rejected",
    "with_watermark",
]

use_this_python()
show_reason_last()
