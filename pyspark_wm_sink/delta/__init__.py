"""The Delta target: stage Parquet files, publish them with one commit of the table's log."""
