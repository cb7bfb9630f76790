"""The operators inside Spark: stage one, buckets, unpacking."""
