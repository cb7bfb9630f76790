"""keyedwm: per-partition keyed watermarks, idle markers and snapshot barriers for Spark Structured Streaming."""

__version__ = "0.5.0.dev0"
