"""Stream-to-stream joins over whole columns; no Spark."""
