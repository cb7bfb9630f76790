"""The source half, found by Spark's discovery; imports next to nothing."""

from keyedwm.plugin import DefaultSource

__all__ = ["DefaultSource"]
