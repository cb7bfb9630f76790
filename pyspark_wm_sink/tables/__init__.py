"""The part of the table formats that is the same: stage Parquet files, publish them with one commit of the table."""
