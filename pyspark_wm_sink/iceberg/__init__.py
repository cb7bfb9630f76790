"""The Iceberg target: stage Parquet files, publish them with one snapshot of the table."""
