"""Record batches to and from Arrow columns."""
