"""State of operators between batches."""
