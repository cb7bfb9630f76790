"""DataFrame functions: native Spark operators driven by the coalesced watermark."""
