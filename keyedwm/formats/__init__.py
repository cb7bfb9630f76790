"""Values in Avro, and the heads that name their schemas, as Arrow columns; no Spark and no registry."""
