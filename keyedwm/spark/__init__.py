"""DataFrame functions: native Spark operators driven by the coalesced watermark."""

from keyedwm.spark.watermark import with_watermark

__all__ = ["with_watermark"]
