"""DataFrame functions: native operators driven by the coalesced watermark, and windows of our own."""

from keyedwm.spark.aggregate import aggregate
from keyedwm.spark.conf import recommended_conf
from keyedwm.spark.watermark import with_watermark
from keyedwm.spark.window_specs import early, session, sliding, tumbling
from keyedwm.windows.aggregates import count, sum  # noqa: A004  the names are those of Spark's functions

__all__ = [
    "aggregate",
    "count",
    "early",
    "recommended_conf",
    "session",
    "sliding",
    "sum",
    "tumbling",
    "with_watermark",
]
