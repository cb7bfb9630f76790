# ruff: noqa: A004  the aggregates are called as Spark calls its own
"""Windows and joins for programs without Spark: every public name of them; times are milliseconds.

Rule: no other module of the project imports this package, so workers of Spark never load it.
"""

from keyedwm.core import deprecations
from keyedwm.core.window_rules import Touching
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
    min,
    stddev,
    sum,
    theta_sketch,
    top_n,
    variance,
)
from keyedwm.operators.frames.plan import SessionWindow, SlidingWindow, tumbling
from keyedwm.operators.join.plan import How
from keyedwm.operators.messages.functions import median, quantile, window_function
from keyedwm.operators.messages.join.plan import Emit, Keep, WindowJoinPlan, WindowJoinSide
from keyedwm.operators.messages.join.window_join import WindowJoin
from keyedwm.operators.messages.on_demand import on_demand
from keyedwm.operators.messages.plan import StorePlan
from keyedwm.operators.messages.retention import Retention
from keyedwm.operators.messages.window_operator import WindowOperator
from keyedwm.operators.messages.windows import (
    CompletedBy,
    hopping,
    hopping_key_rows,
    hopping_rows,
    session_rows,
    tumbling_key_rows,
    tumbling_rows,
)
from keyedwm.operators.panes import Early, EveryBy
from keyedwm.operators.state.store import MemoryStore

__all__ = [
    "Aggregate",
    "CompletedBy",
    "Early",
    "Emit",
    "EveryBy",
    "How",
    "Keep",
    "MemoryStore",
    "Retention",
    "SessionWindow",
    "SlidingWindow",
    "StorePlan",
    "Touching",
    "WindowJoin",
    "WindowJoinPlan",
    "WindowJoinSide",
    "WindowOperator",
    "approx_count_distinct",
    "approx_quantile",
    "avg",
    "collect",
    "count",
    "count_if",
    "first",
    "hll_sketch",
    "hopping",
    "hopping_key_rows",
    "hopping_rows",
    "kll_sketch",
    "last",
    "linear_trend",
    "map_agg",
    "max",
    "median",
    "min",
    "on_demand",
    "quantile",
    "session_rows",
    "stddev",
    "sum",
    "theta_sketch",
    "top_n",
    "tumbling",
    "tumbling_key_rows",
    "tumbling_rows",
    "variance",
    "window_function",
]


def __getattr__(name: str) -> type[CompletedBy]:
    """Return the enum for its first name, which programs may use; warn of it."""
    if name == "Full":
        deprecations.warn("keyedwm.windows.Full")
        return CompletedBy
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
