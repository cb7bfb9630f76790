"""keyedwm: per-partition keyed watermarks, idle markers and snapshot barriers for Spark Structured Streaming."""
