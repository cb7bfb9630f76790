"""keyedwm: per-partition keyed watermarks, idle markers and snapshot barriers for Spark Structured Streaming."""

__version__ = "0.4.0"
